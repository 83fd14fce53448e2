package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// SamplesPath is the file of completions that a run shows: one JSON object a line, each with the "step" of its weights.
func (f *Folder) SamplesPath() string { return f.Path(samplesName) }

// LogSamples appends samples, which marshal to objects with a "step", to samples.jsonl, all or none of them. They are on
// the disk when it returns: a checkpoint that follows goes on from them.
func (f *Folder) LogSamples(samples ...any) error {
	var lines bytes.Buffer
	out := json.NewEncoder(&lines)
	out.SetEscapeHTML(false) // tags are to be read
	for _, s := range samples {
		if err := out.Encode(s); err != nil {
			return fmt.Errorf("%s: %w", samplesName, err)
		}
	}
	if err := appendFile(f.SamplesPath(), lines.Bytes()); err != nil {
		return fmt.Errorf("%s cannot be written: %w", f.SamplesPath(), cause(err))
	}
	return syncDir(f.Dir)
}

func appendFile(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(appendLine(file, text), file.Sync(), file.Close())
}

// CutSamples removes the samples after the given step, which a resumed run is about to draw again.
func (f *Folder) CutSamples(step int) error {
	lines, err := metricLines(f.SamplesPath())
	if err != nil || lines == nil {
		return err
	}
	var kept bytes.Buffer
	for i, line := range lines {
		var s struct{ Step *int }
		if err := json.Unmarshal(line, &s); err != nil || s.Step == nil {
			return fmt.Errorf("%s:%d: no sample of a run: want a JSON object with a step", f.SamplesPath(), i+1)
		}
		if *s.Step <= step {
			kept.Write(line)
			kept.WriteByte('\n')
		}
	}
	return replaceFile(f.SamplesPath(), kept.Bytes())
}
