package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
)

// SamplesPath is the file of completions that a run shows: one JSON object a line, each with the "step" of its weights.
func (f *Folder) SamplesPath() string { return f.Path(samplesName) }

// LogSamples appends samples, which marshal to objects with a "step", to samples.jsonl: all of them or none. They are
// on the disk when it returns, so that the checkpoint that follows may rely on them.
func (f *Folder) LogSamples(samples ...any) error {
	lines, err := encodeLines(samplesName, samples)
	if err != nil {
		return err
	}
	if err := f.Append(samplesName, lines); err != nil {
		return err
	}
	return bySteps(lines, func(step int, lines []byte) error {
		f.tell(func(w Watcher) { w.AddSamples(step, lines) })
		return nil
	})
}

// ReadSamples calls read with the lines of every step of samples.jsonl, in their order. Half a last line is ignored.
func (f *Folder) ReadSamples(read func(step int, lines []byte) error) error {
	text, err := readIfThere(f.SamplesPath())
	if err != nil {
		return err
	}
	if err := bySteps(text[:bytes.LastIndexByte(text, '\n')+1], read); err != nil {
		return fmt.Errorf("%s: %w", f.SamplesPath(), err)
	}
	return nil
}

// bySteps calls read with successive lines of the same step.
func bySteps(text []byte, read func(step int, lines []byte) error) error {
	var same []byte
	last := 0
	for line := range bytes.Lines(text) {
		step, err := sampleStep(line)
		if err != nil {
			return err
		}
		if step != last && same != nil {
			if err := read(last, same); err != nil {
				return err
			}
			same = nil
		}
		last, same = step, append(same, line...)
	}
	if same == nil {
		return nil
	}
	return read(last, same)
}

func sampleStep(line []byte) (int, error) {
	var s struct{ Step *int }
	if err := json.Unmarshal(line, &s); err != nil || s.Step == nil {
		return 0, errors.New("not a sample of a run: want a JSON object with a step")
	}
	return *s.Step, nil
}

// Append appends text to a file of the folder, all of it or none. It is on the disk when it returns.
func (f *Folder) Append(name string, text []byte) error {
	if err := f.AppendLoose(name, text); err != nil {
		return err
	}
	return errors.Join(files.SyncFile(f.Path(name)), syncDir(f.Dir))
}

// CutSamples removes the samples after the given step, which a resumed run is about to draw again.
func (f *Folder) CutSamples(step int) error {
	_, err := cutLines(f.SamplesPath(), func(line []byte) (bool, error) {
		of, err := sampleStep(line)
		return of <= step, err
	})
	f.tell(Watcher.Rewind)
	return err
}

// AppendLoose is Append without waiting for the disk: a power cut may take the end of the file.
func (f *Folder) AppendLoose(name string, text []byte) error {
	if err := f.Held(); err != nil {
		return err
	}
	return appendFile(f.Path(name), text)
}

// WriteLines stores records as a file of the folder, one JSON object a line, whole or not at all.
func (f *Folder) WriteLines(name string, records ...any) error {
	lines, err := encodeLines(name, records)
	if err != nil {
		return err
	}
	return f.WriteFile(name, lines)
}

// ReadLines calls read with every line of a file of the folder. A missing file has no lines.
func (f *Folder) ReadLines(name string, read func(line []byte) error) error {
	text, err := readIfThere(f.Path(name))
	if err != nil {
		return err
	}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if err := read(line); err != nil {
			return fmt.Errorf("%s:%d: %s", f.Path(name), n, fault.OneLine(err.Error()))
		}
	}
	return nil
}

func encodeLines(name string, records []any) ([]byte, error) {
	var lines bytes.Buffer
	for _, r := range records {
		if err := data.WriteLine(&lines, r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return lines.Bytes(), nil
}

// completeLines are the lines of a file that end with a line break; a crash may leave half a line after them. They are
// nil where there is no file.
func completeLines(path string) ([][]byte, error) {
	text, err := readIfThere(path)
	if text == nil {
		return nil, err
	}
	lines := bytes.Split(text, []byte("\n"))
	return lines[:len(lines)-1], nil
}

// readIfThere is a file's content, nil where there is no file.
func readIfThere(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, Cause(err))
	}
	return text, nil
}

// cutLines leaves only the lines that keep accepts, and half a last line goes too. It returns how many it removed.
// A missing file stays missing.
func cutLines(path string, keep func(line []byte) (bool, error)) (removed int, err error) {
	lines, err := completeLines(path)
	if lines == nil {
		return 0, err
	}
	var kept bytes.Buffer
	for i, line := range lines {
		ok, err := keep(line)
		if err != nil {
			return 0, fmt.Errorf("%s:%d: %s", path, i+1, fault.OneLine(err.Error()))
		}
		if ok {
			kept.Write(append(line, '\n'))
		} else {
			removed++
		}
	}
	return removed, replaceFile(path, kept.Bytes())
}

// appendFile appends text to a file, all of it or none.
func appendFile(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err == nil {
		err = errors.Join(appendText(file, text), file.Close())
	}
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, Cause(err))
	}
	return nil
}

func appendText(file *os.File, text []byte) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if _, err = file.Write(text); err != nil {
		return errors.Join(err, file.Truncate(info.Size()))
	}
	return nil
}
