package sweep

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/posttrain/posttrain/internal/run"
)

const tableName = "table.jsonl" // in the folder of a sweep

// Measure is one number of a finished run.
type Measure struct {
	Name string
	Estimate
}

// Estimate is a number with its 95 % interval, as summary.json has it. Low and High are nil where there is no interval;
// Count and Total are those of a share.
type Estimate struct {
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
	Count int      `json:"count,omitempty"`
	Total int      `json:"total,omitempty"`
}

// Result compares the finished runs of a sweep.
type Result struct {
	Dir  string // the folder of the sweep
	Axes []Axis
	Rows []Row // of the points, in their order
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
	fmt.Fprintf(&b, "95%% intervals. Table: %s\n", filepath.Join(r.Dir, tableName))
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

// write writes table.jsonl, a line for each row so far.
func (r *Result) write(folder *run.Folder) error {
	var lines []any
	for _, row := range r.Rows {
		values, measures := map[string]json.Number{}, map[string]Estimate{}
		for _, o := range row.Point {
			values[o.Key] = json.Number(o.Value)
		}
		for _, m := range row.Measures {
			measures[m.Name] = m.Estimate
		}
		lines = append(lines, map[string]any{"values": values, "measures": measures, "steps": row.Steps,
			"seconds": row.Seconds, "run": filepath.Base(row.Dir)})
	}
	return folder.WriteLines(tableName, lines...)
}
