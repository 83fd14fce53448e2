package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/internal/run"
)

// Log is what a run has logged, with the names of TRL.
type Log struct {
	Path    string
	Kind    string // posttrain, TRL or verl
	Records []run.Record
}

// Names of files in run folders.
const ours, trls = "metrics.jsonl", "trainer_state.json"

// wanted are the logs that Read knows.
const wanted = "want a run folder of posttrain, a folder with TRL's trainer_state.json, that file, metrics.jsonl, " +
	"or a log of verl (console or jsonl)"

// Read reads the log of a run: of a folder its metrics.jsonl or TRL's trainer_state.json, also that of the newest
// checkpoint-N in it; or a file.
func Read(path string) (*Log, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, run.Cause(err))
	}
	if info.IsDir() {
		return readFolder(path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, run.Cause(err))
	}
	l, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s%w", path, err)
	}
	l.Path = path
	return l, nil
}

func readFolder(dir string) (*Log, error) {
	atEnd := filepath.Join(dir, trls) // which training that goes on leaves behind
	candidates := []string{filepath.Join(dir, ours), atEnd}
	if newest, step := newestCheckpoint(dir); newest != "" {
		at := 2
		if step > stepOf(atEnd) {
			at = 1
		}
		candidates = slices.Insert(candidates, at, filepath.Join(newest, trls))
	}
	for _, path := range candidates {
		if _, err := os.Stat(path); err == nil {
			return Read(path)
		}
	}
	return nil, fmt.Errorf("%s: there is no log of a run in it: %s", dir, wanted)
}

// stepOf is the step that a file of TRL was written at; the largest number where it does not say it.
func stepOf(path string) int {
	state := struct {
		Step *int `json:"global_step"`
	}{}
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(pythons.ReplaceAll(text, []byte("${1}null")), &state) != nil || state.Step == nil {
		return math.MaxInt
	}
	return *state.Step
}

// newestCheckpoint is TRL's folder checkpoint-N of the largest N, and N; "" without one.
func newestCheckpoint(dir string) (newest string, most int) {
	most = -1
	all, _ := filepath.Glob(filepath.Join(dir, "checkpoint-*", trls))
	for _, path := range all {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "checkpoint-"))
		if err == nil && n > most {
			most, newest = n, filepath.Dir(path)
		}
	}
	return newest, most
}

// pythons are what Python writes for numbers that JSON has not.
var pythons = regexp.MustCompile(`([:\[,]\s*)(?:NaN|-?Infinity)\b`)

// parse reads a log. Its error begins with a colon, and the line where there is one.
func parse(text []byte) (l *Log, err error) {
	text = pythons.ReplaceAll(text, []byte("${1}null"))
	var state struct {
		History []map[string]any `json:"log_history"`
	}
	switch trimmed := bytes.TrimSpace(text); {
	case json.Unmarshal(trimmed, &state) == nil && state.History != nil:
		l = &Log{Kind: "TRL"}
		for i, entry := range state.History {
			if err := l.add(entry); err != nil {
				return nil, fmt.Errorf(": log_history[%d]: %w", i, err)
			}
		}
	case bytes.HasPrefix(trimmed, []byte("{")):
		l, err = parseLines(text)
	default:
		l = parseConsole(text)
	}
	if err == nil && len(l.Records) == 0 {
		err = errors.New(": it has no metrics: " + wanted)
	}
	return l, err
}

// parseLines reads one JSON object a line: ours, or verl's with step and data. Half a last line is ignored.
func parseLines(text []byte) (*Log, error) {
	l, n := &Log{Kind: "posttrain"}, 0
	for line := range bytes.Lines(text) {
		n++
		var entry map[string]any
		if err := json.Unmarshal(line, &entry); err != nil {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break // a crash left it, or the run is writing it
			}
			return nil, fmt.Errorf(":%d: not a JSON object: %s", n, strings.Join(strings.Fields(err.Error()), " "))
		}
		if data, ok := entry["data"].(map[string]any); ok {
			data = maps.Clone(data)
			data["step"], entry, l.Kind = entry["step"], data, "verl"
		}
		if err := l.add(entry); err != nil {
			return nil, fmt.Errorf(":%d: %w", n, err)
		}
	}
	return l, nil
}

// gradient and the other fragile metrics are those whose NaN says that a run is broken. Others may have no value.
const gradient = "grad_norm"

var fragile = []string{"loss", gradient, "eval_loss"}

// add adds an object with a step. Values that are no numbers are passed over.
func (l *Log) add(entry map[string]any) error {
	step, ok := entry["step"].(float64)
	if !ok || step < 0 || step != float64(int(step)) {
		return fmt.Errorf("step %v: want a whole number, 0 or more", entry["step"])
	}
	r := run.Record{Step: int(step), Values: map[string]float64{}}
	for _, name := range slices.Sorted(maps.Keys(entry)) { // two of verl's names may be one of TRL's
		x, ok := entry[name].(float64)
		if entry[name] == nil && slices.Contains(fragile, rename(name)) { // null, as parse makes of NaN
			x, ok = math.NaN(), true
		}
		if ok && name != "step" {
			r.Values[rename(name)] = x
		}
	}
	l.Records = append(l.Records, r)
	return nil
}

// consoleLine is a line of verl's console logger: step:3 - actor/entropy:0.52 - critic/score/mean:0.1. Ray may put the
// process before it, and a terminal's colours.
var consoleLine = regexp.MustCompile(`\bstep:(\d+) - (.+)`)

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// parseConsole reads the lines of verl's console that have metrics.
func parseConsole(text []byte) *Log {
	l := &Log{Kind: "verl"}
	for line := range bytes.Lines(text) {
		found := consoleLine.FindSubmatch(colours.ReplaceAll(line, nil))
		if found == nil {
			continue
		}
		step, err := strconv.Atoi(string(found[1]))
		if err != nil {
			continue
		}
		r := run.Record{Step: step, Values: map[string]float64{}}
		for part := range strings.SplitSeq(strings.TrimSpace(string(found[2])), " - ") {
			at := strings.LastIndex(part, ":")
			if at < 0 {
				continue
			}
			number := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(part[at+1:]), "np.float64("), ")")
			if x, err := strconv.ParseFloat(number, 64); err == nil {
				r.Values[rename(strings.TrimSpace(part[:at]))] = x
			}
		}
		l.Records = append(l.Records, r)
	}
	return l
}

// verls are verl's names of metrics that TRL names otherwise.
var verls = map[string]string{
	"actor/entropy": "entropy", "actor/entropy_loss": "entropy", "actor/kl_loss": "kl", "critic/kl": "kl",
	"critic/score/mean": "reward", "response_length/mean": "completions/mean_length",
	"response_length/clip_ratio": "completions/clipped_ratio", "actor/grad_norm": "grad_norm", "actor/pg_loss": "loss",
	"train/loss": "loss", "val/loss": "eval_loss", // of its SFT trainer
}

// rename is TRL's name of a metric.
func rename(name string) string {
	if to, ok := verls[name]; ok {
		return to
	}
	return name
}
