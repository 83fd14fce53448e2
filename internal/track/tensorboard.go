package track

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/run"
)

// boards is the folder of event files in a run folder, eventsStart the beginning of their names.
const boards, eventsStart = "tensorboard", "events.out.tfevents."

// TensorBoard writes what a run logs into event files in RUN/tensorboard. A run that is resumed begins a new file,
// which tells readers to forget what the run measures again. Where there is no file yet, the first has the whole run so
// far.
type TensorBoard struct {
	Clock func() time.Time

	folder *run.Folder
	out    run.Reporter
	failed bool // the last event could not be written
	warned bool
	file   string // in the run folder, with slashes; "": none was begun since the run was opened or cut
}

// NewTensorBoard makes a watcher of a folder, which it does not attach.
func NewTensorBoard(f *run.Folder, out run.Reporter) *TensorBoard {
	return &TensorBoard{Clock: time.Now, folder: f, out: run.Listen(out)}
}

// AddRecord writes a record's values as scalars.
func (t *TensorBoard) AddRecord(r run.Record) { t.add(r.Step, scalars(r)) }

// AddSamples writes samples as texts.
func (t *TensorBoard) AddSamples(step int, lines []byte) { t.add(step, texts(lines)) }

// Rewind ends the file: another begins with what is logged next.
func (t *TensorBoard) Rewind() { t.file = "" }

// Close does nothing, since every event is in the file.
func (t *TensorBoard) Close() {}

// add writes an event, or begins a file, which has it. After a fault the next event begins a file with the whole run.
func (t *TensorBoard) add(step int, what []byte) {
	var err error
	switch {
	case t.file != "":
		err = t.write(step, what)
	case t.failed:
		err = t.begin(0)
	default:
		err = t.begin(step)
	}
	if t.failed = err != nil; !t.failed {
		return
	}
	t.file = ""
	if !t.warned {
		t.warned = true
		t.out.Warn("TensorBoard: %v; training continues, and what is missing is tried again with the next record", err)
	}
}

// begin makes an event file with what the run folder has from a step on: the first step that is new, and whose lines
// the folder has already.
func (t *TensorBoard) begin(step int) error {
	dir := t.folder.Path(boards)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("folder %s cannot be made: %w", dir, run.Cause(err))
	}
	earlier, err := filepath.Glob(filepath.Join(dir, eventsStart+"*"))
	if err != nil {
		return err
	}
	// Readers take files in the order of their names.
	t.file = path.Join(boards, fmt.Sprintf("%s%010d.posttrain.%06d", eventsStart, t.Clock().Unix(), len(earlier)))
	if err := t.write(0, version()); err != nil {
		return err
	}
	if len(earlier) == 0 {
		return t.replay(0)
	}
	if err := t.write(step, restart()); err != nil {
		return err
	}
	return t.replay(step)
}

// replay writes what the run folder has from a step on.
func (t *TensorBoard) replay(from int) error {
	records, err := t.folder.ReadMetrics()
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Step < from {
			continue
		}
		if err := t.write(r.Step, scalars(r)); err != nil {
			return err
		}
	}
	return t.folder.ReadSamples(func(step int, lines []byte) error {
		if step < from {
			return nil
		}
		return t.write(step, texts(lines))
	})
}

// write appends an event, all of it or none.
func (t *TensorBoard) write(step int, what []byte) error {
	return t.folder.AppendLoose(t.file, appendRecord(nil, event(t.Clock(), step, what)))
}

// scalars is a summary of a record.
func scalars(r run.Record) []byte {
	values := [][]byte{scalar("train/epoch", r.Epoch)}
	for _, name := range slices.Sorted(maps.Keys(r.Values)) {
		values = append(values, scalar(tagOf(name), r.Values[name]))
	}
	return summary(values...)
}

// tagOf names a metric as the TensorBoard callback of transformers does: train/loss, eval/loss, test/loss.
func tagOf(metric string) string {
	for _, split := range []string{"eval", "test"} {
		if rest, ok := strings.CutPrefix(metric, split+"_"); ok {
			return split + "/" + rest
		}
	}
	return "train/" + metric
}

// texts is a summary of samples: samples/1, samples/2, …, so that one can follow each over the steps.
func texts(lines []byte) []byte {
	var values [][]byte
	for line := range bytes.Lines(lines) {
		values = append(values, text(fmt.Sprintf("samples/%d", len(values)+1), markdown(line)))
	}
	return summary(values...)
}

// markdown shows the fields of a sample sorted by name, texts as they are.
func markdown(line []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil {
		return indent(string(line))
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := string(fields[name])
		_ = json.Unmarshal(fields[name], &value) // what is no text stays JSON
		fmt.Fprintf(&b, "**%s**\n\n%s\n", name, indent(value))
	}
	return b.String()
}

// ends are what ends a line in Markdown, each with the indent of the next.
var ends = strings.NewReplacer("\r\n", "\n    ", "\r", "\n    ", "\n", "\n    ")

// indent makes a text a block that Markdown leaves alone.
func indent(s string) string { return "    " + ends.Replace(strings.TrimRight(s, "\n")) + "\n" }
