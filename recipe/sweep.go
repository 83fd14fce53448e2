package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/hubcache"
	"github.com/posttrain/posttrain/internal/run"
)

// SweepFlag is the flag that gives a key and the numbers that it takes.
const SweepFlag = "--sweep"

// Sweeps are the sweeps of a command with options O, a type whose pointer has RunDirectory.
type Sweeps[O any] struct {
	Spec    *config.Spec[O]
	Tested  func(*O) bool // a run with the options has a test, which sweeps are compared by
	Split   string        // of the test in the options' data: test or eval
	Columns []string      // measures of the table, by their names in summary.json
	Example string        // a key with values, for messages

	run      func(context.Context, O, run.Reporter) error
	settings *config.Spec[sweepSettings]
}

// NewSweeps registers the sweeps of a command, whose runs give a result R.
func NewSweeps[O, R any](s Sweeps[O], train func(context.Context, O, run.Reporter) (R, error)) *Sweeps[O] {
	s.run = func(ctx context.Context, o O, r run.Reporter) error {
		_, err := train(ctx, o, r)
		return err
	}
	s.settings = config.Register(&config.Spec[sweepSettings]{Command: s.Spec.Command + " " + SweepFlag})
	return &s
}

// Sweep trains once for each value of a key of the config, or for each point of a grid of several keys, one run after
// the other, and compares their tests after training.
//
// The folder of a sweep has config.yaml (which keys and values), for each point a config NAME.yaml and a run folder
// NAME, where NAME is key=value, and table.jsonl of the runs that are finished. The configs are written before the
// first run: a sweep continues with what it was started with, whatever has become of the config that the user named.
type Sweep[O any] struct {
	// Fetch brings the models and data that a run's options name to this machine, and names them there.
	Fetch func(context.Context, *O, run.Reporter) error
	Allow config.Grants // what the configs in its folder may have done

	*Sweeps[O]
	texts   []string // key=number,number
	points  []point
	options []*O   // of a new sweep's points
	out     string // the folder to make; "": runs/<command>-sweep-<time>
	resume  string // the folder to continue; "": a new sweep
}

// point is a value of each key.
type point []config.Override

// name names the folder of the point's run.
func (p point) name() string {
	var parts []string
	for _, o := range p {
		parts = append(parts, o.Key+"="+o.Value)
	}
	return strings.Join(parts, ",")
}

// sweepSettings is config.yaml of a sweep.
type sweepSettings struct {
	Sweep []string `yaml:"sweep"`
}

const (
	sweepConfig = "config.yaml"
	tableName   = "table.jsonl"
)

// wrong is what is wrong with a text of the flag.
func wrong(text, format string, args ...any) error {
	return fault.Fault{Key: SweepFlag, Value: text, Problem: fmt.Sprintf(format, args...)}
}

// gridOf reads texts such as key=1,2. It gives all combinations of values, the last key's changing fastest.
func gridOf(texts []string, example string) ([]point, error) {
	example = SweepFlag + " " + example
	points, seen := []point{nil}, map[string]bool{}
	for _, text := range texts {
		key, list, found := strings.Cut(text, "=")
		switch key = strings.TrimSpace(key); {
		case !found || key == "":
			return nil, wrong(text, "want a key and its numbers, such as %s", example)
		case strings.TrimSpace(list) == "":
			return nil, wrong(text, "there are no values: want numbers with commas between, such as %s", example)
		case seen[key]:
			return nil, wrong(text, "another %s has this key: want all its values in one", SweepFlag)
		}
		seen[key] = true
		values, err := numbersOf(text, list, example)
		if err != nil {
			return nil, err
		}
		var longer []point
		for _, p := range points {
			for _, v := range values {
				longer = append(longer, append(slices.Clip(p), config.Override{Flag: SweepFlag, Key: key, Value: v}))
			}
		}
		points = longer
	}
	return points, nil
}

// numbersOf are different numbers, as JSON has them, which the table is in.
func numbersOf(text, list, example string) (values []string, err error) {
	seen := map[float64]string{}
	for value := range strings.SplitSeq(list, ",") {
		value = strings.TrimSpace(value)
		x, err := strconv.ParseFloat(value, 64)
		if err != nil || !json.Valid([]byte(value)) {
			return nil, wrong(text, "%q is not a number: want numbers with commas between, such as %s", value, example)
		}
		if other, twice := seen[x]; twice {
			return nil, wrong(text, "%s is there twice (%s): want each value once", value, other)
		}
		seen[x] = value
		values = append(values, value)
	}
	return values, nil
}

// In says that a folder has a sweep.
func (s *Sweeps[O]) In(dir string) bool {
	text, err := config.Open(filepath.Join(dir, sweepConfig))
	return dir != "" && err == nil && config.CommandOf(text) == s.settings.Command
}

// New plans a sweep. It reads all configs: every point's must be right.
func (all *Sweeps[O]) New(in config.Input, texts []string, out string) (*Sweep[O], error) {
	points, err := gridOf(texts, all.Example)
	if err != nil {
		return nil, err
	}
	for i, o := range points[0] {
		kind := all.Spec.TypeOf(o.Key)
		if all.Spec.HasKey(o.Key) && !slices.Contains([]string{"int", "uint", "float"}, kind) {
			return nil, wrong(texts[i], "%s is not a number (its type is %s): want a key such as %s",
				o.Key, kind, strings.Split(all.Example, "=")[0])
		}
		for _, set := range in.Overrides {
			if set.Key == o.Key {
				return nil, wrong(texts[i], "%s sets %s, too: remove one of the two", set.Flag, o.Key)
			}
		}
	}
	s := &Sweep[O]{Sweeps: all, texts: texts, points: points, out: out}
	for _, p := range points {
		o, err := all.Spec.Load(config.Input{Path: in.Path, Overrides: slices.Concat(in.Overrides, p), Flags: in.Flags,
			Allow: in.Allow})
		if err != nil {
			return nil, err
		}
		if !all.Tested(o) {
			return nil, wrong("data."+all.Split+"_fraction 0", "runs are compared by their tests: want a number above 0, or "+
				"data.%s", all.Split)
		}
		s.options, s.Allow = append(s.options, o), all.Spec.Needs(o)
	}
	return s, nil
}

// Open reads a sweep to continue; what its configs may have done is allowed.
func (all *Sweeps[O]) Open(dir string, allowed config.Grants) (*Sweep[O], error) {
	path := filepath.Join(dir, sweepConfig)
	stored, err := all.settings.Load(config.Input{Path: path})
	if err != nil {
		return nil, err
	}
	if len(stored.Sweep) == 0 {
		return nil, fmt.Errorf("%s: sweep is missing: want its keys and values", path)
	}
	points, err := gridOf(stored.Sweep, all.Example)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Sweep[O]{Sweeps: all, texts: stored.Sweep, points: points, resume: dir, Allow: allowed}, nil
}

// Explain explains the runs of a new sweep, one after the other.
func (s *Sweep[O]) Explain() (text string) {
	for i, o := range s.options {
		text += s.points[i].name() + ":\n" + any(o).(config.Explainer).Explain() + "\n"
	}
	return text
}

// Train runs what is not finished, and gives the table of all. An interrupted sweep is a Stopped.
func (s *Sweep[O]) Train(ctx context.Context, r run.Reporter) (string, error) {
	for _, o := range s.options {
		if err := s.Fetch(ctx, o, r); err != nil {
			return "", err
		}
	}
	folder, err := s.open()
	if err != nil {
		return "", err
	}
	defer folder.Close()
	var rows []sweepRow
	for i, p := range s.points {
		if err := s.runPoint(ctx, folder, i, run.Listen(r)); err != nil {
			return "", s.explain(err, folder, i, ctx.Err() != nil)
		}
		row, err := readRow(folder.Path(p.name()), s.Columns)
		if err != nil {
			return "", err
		}
		rows = append(rows, row)
		if err := writeTable(folder, s.points, rows); err != nil {
			return "", err
		}
	}
	text := sweepTable(s.points, rows, s.Columns) + fmt.Sprintf("95%% intervals. Table: %s\n", folder.Path(tableName))
	return text, folder.WriteSummary(text)
}

// open makes the folder with the configs of all points, or opens the one to continue.
func (s *Sweep[O]) open() (*run.Folder, error) {
	if s.resume != "" {
		folder, err := run.Open(s.resume)
		if err == nil {
			err = folder.Own(tableName)
		}
		return folder, err
	}
	folder, err := run.Create(s.out, s.Spec.Command+"-sweep")
	if err != nil {
		return nil, err
	}
	for i, p := range s.points {
		if err := folder.Own(p.name() + ".yaml"); err != nil {
			return nil, errors.Join(err, folder.Close())
		}
		if err := folder.WriteFile(p.name()+".yaml", s.Spec.Resolve(s.options[i])); err != nil {
			return nil, errors.Join(err, folder.Close())
		}
	}
	// The last file: from now on the sweep can be continued.
	if err := folder.WriteConfig(s.settings.Resolve(&sweepSettings{s.texts})); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

// runPoint begins a point's run, continues it, or finds it finished.
func (s *Sweep[O]) runPoint(ctx context.Context, folder *run.Folder, i int, r run.Reporter) error {
	name := s.points[i].name()
	dir := folder.Path(name)
	if run.Finished(dir) {
		r.Say("run %d of %d, %s: finished before", i+1, len(s.points), name)
		return nil
	}
	r.Say("run %d of %d, %s", i+1, len(s.points), name)
	path, dirs := dir+".yaml", RunDir{Out: dir}
	if begun := filepath.Join(dir, sweepConfig); hubcache.Exists(begun) {
		path, dirs = begun, RunDir{Resume: dir}
	}
	o, err := s.Spec.Load(config.Input{Path: path, Allow: s.Allow})
	if err == nil {
		err = s.Fetch(ctx, o, r)
	}
	if err == nil {
		*any(o).(interface{ RunDirectory() *RunDir }).RunDirectory() = dirs
		err = s.run(ctx, *o, r)
	}
	return err
}

// explain says where the sweep ended. A new sweep whose first run could not begin leaves nothing.
func (s *Sweep[O]) explain(err error, folder *run.Folder, i int, interrupted bool) error {
	name := s.points[i].name()
	where := fmt.Sprintf("in run %d of %d, %s", i+1, len(s.points), name)
	if stopped := (*Stopped)(nil); errors.As(err, &stopped) {
		return &Stopped{Where: where + ", " + stopped.Where, Dir: folder.Dir}
	}
	if interrupted {
		return &Stopped{Where: where, Dir: folder.Dir}
	}
	if i == 0 && s.resume == "" && !hubcache.Exists(folder.Path(name)) {
		return errors.Join(err, folder.Close(), os.RemoveAll(folder.Dir)) // it was empty before
	}
	return fmt.Errorf("%s: %w (the sweep continues with --resume %s)", where, err, folder.Dir)
}

// measured is a number of the test with its 95 % interval, as summary.json has it. Low and High are nil where there is
// no interval; Count and Total belong to a share.
type measured struct {
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
	Count int      `json:"count,omitempty"`
	Total int      `json:"total,omitempty"`
}

// String is a share in percent with its count, or another number, with the interval.
func (m measured) String() string {
	if m.Value == nil {
		return "-"
	}
	text, scale, digits := fmt.Sprintf("%.3f", *m.Value), 1.0, 3
	if m.Total > 0 {
		text, scale, digits = fmt.Sprintf("%.1f%% %d/%d", 100**m.Value, m.Count, m.Total), 100, 1
	}
	if m.Low != nil && m.High != nil {
		text += fmt.Sprintf(" (%.*f to %.*f)", digits, scale**m.Low, digits, scale**m.High)
	}
	return text
}

// sweepRow is what the run of a point came to.
type sweepRow struct {
	dir      string
	steps    int
	seconds  float64 // of steps and validations
	measures map[string]measured
}

// readRow reads the row of a finished run: its test after training.
func readRow(dir string, columns []string) (row sweepRow, err error) {
	path := filepath.Join(dir, "summary.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return row, err
	}
	var s struct {
		Steps int
		Test  struct {
			After *struct{ All map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return row, fmt.Errorf("%s: %w", path, err)
	}
	if s.Test.After == nil {
		return row, fmt.Errorf("%s: it has no test after training", path)
	}
	row = sweepRow{dir: dir, steps: s.Steps, measures: map[string]measured{}}
	for _, name := range columns {
		text, has := s.Test.After.All[name]
		if !has { // not every loss has all measures
			continue
		}
		var m measured
		if err := json.Unmarshal(text, &m); err != nil {
			return row, fmt.Errorf("%s: %s: %w", path, name, err)
		}
		row.measures[name] = m
	}
	records, err := run.ReadMetrics(filepath.Join(dir, "metrics.jsonl"))
	row.seconds = run.Seconds(records)
	return row, err
}

func sweepTable(points []point, rows []sweepRow, columns []string) string {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, o := range points[0] {
		fmt.Fprintf(t, "%s\t", o.Key)
	}
	fmt.Fprintln(t, strings.Join(columns, "\t")+"\tsteps\ttime")
	for i, row := range rows {
		for _, o := range points[i] {
			fmt.Fprintf(t, "%s\t", o.Value)
		}
		for _, name := range columns {
			fmt.Fprintf(t, "%v\t", row.measures[name])
		}
		fmt.Fprintf(t, "%d\t%v\n", row.steps, time.Duration(row.seconds*float64(time.Second)).Round(time.Second))
	}
	_ = t.Flush() // a Buffer takes everything
	return b.String()
}

// writeTable writes table.jsonl, a line for each row so far.
func writeTable(folder *run.Folder, points []point, rows []sweepRow) error {
	var lines []any
	for i, row := range rows {
		values := map[string]json.Number{}
		for _, o := range points[i] {
			values[o.Key] = json.Number(o.Value)
		}
		lines = append(lines, map[string]any{"values": values, "measures": row.measures, "steps": row.steps,
			"seconds": row.seconds, "run": filepath.Base(row.dir)})
	}
	return folder.WriteLines(tableName, lines...)
}
