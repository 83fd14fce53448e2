package verify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/preference"
)

// trained is the folder of a run of six steps, with a checkpoint every two.
func trained(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := func(role, s string) data.Text { return data.Text{Messages: []data.Message{{Role: role, Content: s}}} }
	var pairs []data.Preference
	for _, answer := range []string{"Yes.", "Today.", "By noon.", "Never again.", "Soon."} {
		pairs = append(pairs, data.Preference{Prompt: text("user", "When?"), Chosen: text("assistant", answer),
			Rejected: text("assistant", "No.")})
	}
	path := filepath.Join(dir, "pairs.jsonl")
	if err := data.WritePreferences(path, pairs); err != nil {
		t.Fatal(err)
	}
	o := preference.Defaults("dpo")
	o.Model, o.Backend, o.Data.Train, o.Loss.Prior = embedded.Name, "go", config.Names{path}, "none"
	o.Train.BatchSize, o.Train.MicroBatchSize, o.Train.MaxSteps, o.Train.Epochs = 2, 2, 6, 0
	o.Train.CheckpointEvery, o.Train.CheckpointKeep = 2, 5
	o.Place = recipe.Place{Out: filepath.Join(dir, "run")}
	result, err := preference.Run(context.Background(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return result.Dir
}

// TestReplay: all intervals of an honest run give its bits. A checkpoint that was changed together with its manifest is
// found, and the run folder stays as it was.
func TestReplay(t *testing.T) {
	dir := trained(t)
	intervals, err := Intervals(dir)
	if err != nil || len(intervals) != 3 || intervals[0] != (Interval{0, 2}) || intervals[2].String() != "steps 5 to 6" {
		t.Fatalf("%v, %v", intervals, err)
	}
	for _, i := range intervals {
		if differences, err := Replay(t.Context(), dir, i, nil); err != nil || differences != nil {
			t.Errorf("%v: %v, %v", i, differences, err)
		}
	}
	forge(t, checkpoint(dir, 4), "second_moments.safetensors")
	for _, i := range intervals[1:] {
		differences, err := Replay(t.Context(), dir, i, nil)
		if err != nil || len(differences) == 0 || !strings.Contains(differences[0], " is not what the steps give: byte ") {
			t.Errorf("%v: %v, %v: want a difference", i, differences, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "checkpoints")); err != nil || len(left) < 3 {
		t.Errorf("%v, %v: the run's checkpoints are gone", left, err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Replay(stopped, dir, intervals[1], nil); !errors.Is(err, recipe.ErrInterrupted) {
		t.Errorf("%v: want an interruption", err)
	}
}

// forge changes the last number of a checkpoint's file, and the manifest with it.
func forge(t *testing.T, dir, name string) {
	t.Helper()
	path, manifest := filepath.Join(dir, name), filepath.Join(dir, "manifest.json")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	was := sum(content)
	content[len(content)-1] ^= 1
	if !strings.Contains(string(list), was) {
		t.Fatalf("%s is not in the manifest", name)
	}
	forged := strings.ReplaceAll(string(list), was, sum(content))
	if err := errors.Join(os.WriteFile(path, content, 0o666), os.WriteFile(manifest, []byte(forged), 0o666)); err != nil {
		t.Fatal(err)
	}
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

// TestReplayFaults are one line each.
func TestReplayFaults(t *testing.T) {
	dir := t.TempDir()
	if _, err := Intervals(dir); err == nil || !strings.Contains(err.Error(), "has kept no checkpoint") {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"command: eval ci\n": "a run of posttrain eval ci cannot be repeated",
		"command: ci-rl\nrollout:\n  engine: vllm\n  urls:\n    - http://127.0.0.1:1/v1\n": "rollout.engine vllm: servers drew",
	} {
		if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Replay(t.Context(), dir, Interval{0, 2}, nil)
		expect.Error(t, err, want)
	}
}
