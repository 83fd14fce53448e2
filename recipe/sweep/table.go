package sweep

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/posttrain/posttrain/internal/run"
)

// Names in the folder of a sweep.
const (
	tableName   = "table.jsonl"
	csvName     = "table.csv"
	pictureName = "tradeoff.png"
)

// Result compares the finished runs of a sweep.
type Result struct {
	Dir     string // the folder of the sweep
	Command string
	Axes    []Axis
	Rows    []Row // of the points, in their order

	x, y string
}

// Row is what the run of a point came to.
type Row struct {
	Point    Point
	Measures []Measure
	Steps    int
	Seconds  float64 // of its steps and validations
	Dir      string  // the run folder
}

// row reads the row of a finished run.
func (r Recipe[O]) row(dir string, p Point) (Row, error) {
	steps, measures, err := r.Read(dir)
	if err != nil {
		return Row{}, err
	}
	records, err := run.ReadMetrics(filepath.Join(dir, "metrics.jsonl"))
	return Row{p, measures, steps, run.Seconds(records), dir}, err
}

// String gives the result as a table.
func (r *Result) String() string {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, a := range r.Axes {
		fmt.Fprintf(t, "%s\t", a.Key)
	}
	for _, m := range r.Rows[0].Measures {
		fmt.Fprintf(t, "%s\t", m.Name)
	}
	fmt.Fprintln(t, "steps\ttime")
	for _, row := range r.Rows {
		for _, o := range row.Point {
			fmt.Fprintf(t, "%s\t", o.Value)
		}
		for _, m := range row.Measures {
			fmt.Fprintf(t, "%v\t", m.Estimate)
		}
		fmt.Fprintf(t, "%d\t%v\n", row.Steps, time.Duration(row.Seconds*float64(time.Second)).Round(time.Second))
	}
	_ = t.Flush() // a Buffer takes everything
	fmt.Fprintf(&b, "95%% intervals. Table: %s, %s\nPicture: %s\n", filepath.Join(r.Dir, tableName), csvName,
		filepath.Join(r.Dir, pictureName))
	return b.String()
}

// String is a share in percent with its count, or another number, with the interval.
func (e Estimate) String() string {
	switch {
	case e.Value == nil:
		return "-"
	case e.Total > 0:
		return fmt.Sprintf("%.1f%% %d/%d%s", 100**e.Value, e.Count, e.Total, e.interval(100, 1))
	}
	return fmt.Sprintf("%.3f%s", *e.Value, e.interval(1, 3))
}

func (e Estimate) interval(scale float64, digits int) string {
	if e.Low == nil || e.High == nil {
		return ""
	}
	return fmt.Sprintf(" (%.*f to %.*f)", digits, scale**e.Low, digits, scale**e.High)
}

// write writes the table and the picture of the rows so far.
func (r *Result) write(folder *run.Folder) error {
	lines, err := r.jsonLines()
	if err != nil {
		return err
	}
	if err := folder.WriteFile(tableName, lines); err != nil {
		return err
	}
	if err := folder.WriteFile(csvName, r.csv()); err != nil {
		return err
	}
	var keys []string
	for _, a := range r.Axes {
		keys = append(keys, a.Key)
	}
	title := fmt.Sprintf("posttrain %s by %s", r.Command, strings.Join(keys, ", "))
	return folder.WriteDots(pictureName, run.Dots{Title: title, X: r.x, Y: r.y, Dots: r.dots()})
}

// jsonLines is table.jsonl, a line for each row.
func (r *Result) jsonLines() ([]byte, error) {
	var b bytes.Buffer
	for _, row := range r.Rows {
		values, measures := map[string]json.Number{}, map[string]Estimate{}
		for _, o := range row.Point {
			values[o.Key] = json.Number(o.Value)
		}
		for _, m := range row.Measures {
			measures[m.Name] = m.Estimate
		}
		line, err := json.Marshal(map[string]any{"values": values, "measures": measures, "steps": row.Steps,
			"seconds": row.Seconds, "run": filepath.Base(row.Dir)})
		if err != nil {
			return nil, err
		}
		b.Write(append(line, '\n'))
	}
	return b.Bytes(), nil
}

// csv is table.csv: three columns for each measure.
func (r *Result) csv() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	var head []string
	for _, a := range r.Axes {
		head = append(head, a.Key)
	}
	for _, m := range r.Rows[0].Measures {
		head = append(head, m.Name, m.Name+"_low", m.Name+"_high")
	}
	_ = w.Write(append(head, "steps", "seconds", "run")) // a Buffer takes everything
	for _, row := range r.Rows {
		var cells []string
		for _, o := range row.Point {
			cells = append(cells, o.Value)
		}
		for _, m := range row.Measures {
			cells = append(cells, cell(m.Value), cell(m.Low), cell(m.High))
		}
		_ = w.Write(append(cells, strconv.Itoa(row.Steps), cell(&row.Seconds), filepath.Base(row.Dir)))
	}
	w.Flush()
	return b.Bytes()
}

// cell is empty for a number that is not there.
func cell(x *float64) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'g', -1, 64)
}

// dots are the points of the picture: runs that have both measures.
func (r *Result) dots() (dots []run.Dot) {
	for _, row := range r.Rows {
		x, y := row.find(r.x), row.find(r.y)
		if x.Value != nil && y.Value != nil {
			dots = append(dots, run.Dot{Label: row.Point.label(), X: x.range3(), Y: y.range3()})
		}
	}
	return dots
}

func (r Row) find(name string) Estimate {
	for _, m := range r.Measures {
		if m.Name == name {
			return m.Estimate
		}
	}
	return Estimate{}
}

// range3 is value, low and high; without an interval all three are the value.
func (e Estimate) range3() [3]float64 {
	if e.Low == nil || e.High == nil {
		return [3]float64{*e.Value, *e.Value, *e.Value}
	}
	return [3]float64{*e.Value, *e.Low, *e.High}
}
