package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/float"
)

// Record is one line of metrics.jsonl: what was measured at a step. Values have TRL's names (loss, logps/chosen,
// eval_loss, …). JSON has no NaN and no infinities: they are written as null with a note that says which.
type Record struct {
	Step   int
	Epoch  float64 // passes over the data, with their fraction
	Values map[string]float64
}

// OfClock reports whether a metric is a time or a speed. These differ between two runs of the same config, seed, engine
// and data; nothing else in metrics.jsonl does.
func OfClock(metric string) bool {
	return metric == "step_time" || metric == "eval_runtime" || strings.HasPrefix(metric, "time/") ||
		strings.HasSuffix(metric, "tokens_per_second")
}

// Series are a metric's values, in the order of the records that have it.
func Series(records []Record, name string) (all []float64) {
	for _, r := range records {
		if v, ok := r.Values[name]; ok {
			all = append(all, v)
		}
	}
	return all
}

// Seconds is how long the steps and validations of a run took. A record has the mean of the steps since the one before.
func Seconds(records []Record) (seconds float64) {
	last := 0
	for _, r := range records {
		if t, ok := r.Values["step_time"]; ok {
			seconds, last = seconds+t*float64(r.Step-last), r.Step
		}
		seconds += r.Values["eval_runtime"]
	}
	return seconds
}

// reserved are the keys of a line that are not metrics.
var reserved = []string{"step", "epoch", "note"}

// MarshalJSON writes step, epoch, then the values sorted by name, so that equal records are equal bytes.
func (r Record) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	var notes []string
	fmt.Fprintf(&b, `{"step":%d`, r.Step)
	put := func(name string, v float64) {
		key, _ := json.Marshal(name) // strings always marshal
		number := []byte("null")
		if float.IsFinite(v) {
			number, _ = json.Marshal(v) // shortest form that reads back the same
		} else {
			notes = append(notes, fmt.Sprintf("%s is %v", name, v))
		}
		fmt.Fprintf(&b, ",%s:%s", key, number)
	}
	put("epoch", r.Epoch)
	for _, name := range slices.Sorted(maps.Keys(r.Values)) {
		if slices.Contains(reserved, name) {
			return nil, fmt.Errorf("metric %q: this name is reserved: choose another", name)
		}
		put(name, r.Values[name])
	}
	if len(notes) > 0 {
		note, _ := json.Marshal(strings.Join(notes, ", "))
		fmt.Fprintf(&b, `,"note":%s`, note)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Record) UnmarshalJSON(line []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return err
	}
	if fields["step"] == nil {
		return errors.New(`no "step"`)
	}
	if err := json.Unmarshal(fields["step"], &r.Step); err != nil {
		return fmt.Errorf("step %s: want a whole number", fields["step"])
	}
	r.Epoch, r.Values = 0, map[string]float64{}
	for name, raw := range fields {
		if name == "step" || name == "note" {
			continue
		}
		v, err := number(raw)
		if err != nil {
			return fmt.Errorf("%s %s: want a number or null", name, raw)
		}
		if name == "epoch" {
			r.Epoch = v
		} else {
			r.Values[name] = v
		}
	}
	var note string
	if json.Unmarshal(fields["note"], &note) == nil {
		r.read(note)
	}
	return nil
}

// read sets the values that a note says to be infinite.
func (r *Record) read(note string) {
	for part := range strings.SplitSeq(note, ", ") {
		name, what, _ := strings.Cut(part, " is ")
		if v, ok := r.Values[name]; ok && math.IsNaN(v) && strings.HasSuffix(what, "Inf") {
			r.Values[name] = math.Inf(map[string]int{"+Inf": 1, "-Inf": -1}[what])
		}
	}
}

func number(raw json.RawMessage) (float64, error) {
	if string(raw) == "null" {
		return math.NaN(), nil
	}
	var v float64
	err := json.Unmarshal(raw, &v)
	return v, err
}

// Log appends a record to metrics.jsonl. If the line does not fit on the disk, none of it stays in the file.
func (f *Folder) Log(r Record) error {
	line, err := r.MarshalJSON()
	if err != nil {
		return err
	}
	if err := f.AppendLoose(metricsName, append(line, '\n')); err != nil {
		return err
	}
	f.tell(func(w Watcher) { w.AddRecord(r) })
	return nil
}

// syncMetrics flushes the records logged so far to the disk: a run that resumes from a checkpoint relies on them.
func (f *Folder) syncMetrics() error {
	err := files.SyncFile(f.Path(metricsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s cannot be flushed: %w", f.Path(metricsName), Cause(err))
	}
	return syncDir(f.Dir)
}

// ReadMetrics is all records of the folder, in the order of logging; nil before the first.
func (f *Folder) ReadMetrics() ([]Record, error) {
	return ReadMetrics(f.Path(metricsName))
}

// ReadMetrics reads a metrics.jsonl. Half a last line, as a crash leaves it, is ignored.
func ReadMetrics(path string) ([]Record, error) {
	lines, err := completeLines(path)
	if err != nil {
		return nil, err
	}
	records := make([]Record, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal(line, &records[i]); err != nil {
			return nil, fmt.Errorf("%s:%d: not a line of metrics: %s", path, i+1, fault.OneLine(err.Error()))
		}
	}
	return records, nil
}

// CutMetrics removes the records after the given step, which a resumed run is about to measure again, and returns
// their number.
func (f *Folder) CutMetrics(step int) (int, error) {
	return f.DropMetrics(func(r Record) bool { return r.Step > step })
}

// DropMetrics removes records, and returns their number.
func (f *Folder) DropMetrics(which func(Record) bool) (int, error) {
	removed, err := cutLines(f.Path(metricsName), func(line []byte) (bool, error) {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return false, fmt.Errorf("not a line of metrics: %w", err)
		}
		return !which(r), nil
	})
	f.tell(Watcher.Rewind)
	return removed, err
}
