package run

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// finished is a run folder with a config, metrics, a model, two checkpoints and a receipt. Its data are 60 rows.
func finished(t *testing.T) (f *Folder, data string, r Receipt) {
	t.Helper()
	root := t.TempDir()
	data = filepath.Join(root, "pairs.jsonl")
	var rows strings.Builder
	for i := range 60 {
		fmt.Fprintf(&rows, `{"prompt":"Q%d","chosen":"yes","rejected":"no"}`+"\n", i)
	}
	base := filepath.Join(root, "base")
	f, err := Create(filepath.Join(root, "run"), "mappo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	text := "command: mappo\nmodel: " + base + "\nseed: 1\ndata:\n  train: " + data + "\n  eval: \"\"\nloss:\n  beta: 0.1\n"
	for _, do := range []func() error{
		func() error { return os.WriteFile(data, []byte(rows.String()), 0o666) },
		func() error { return os.Mkdir(base, 0o777) },
		func() error { return os.WriteFile(filepath.Join(base, "model.safetensors"), content(1, "base"), 0o666) },
		func() error { return f.WriteConfig([]byte(text)) },
		func() error { return f.Log(Record{Step: 1, Values: map[string]float64{"loss": 0.5}}) },
		func() error { return f.Log(Record{Step: 2, Values: map[string]float64{"loss": 0.4}}) },
		func() error { _, err := f.WriteCheckpoint(1, writeContent(1)); return err },
		func() error { _, err := f.WriteCheckpoint(2, writeContent(2)); return err },
		func() error { return f.WriteSummary("done\n") },
		func() error { return f.WriteReceipt(Receipt{Command: "mappo", Engine: "go", Seed: 1, Steps: 2}) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	if r, err = ReadReceipt(f.Dir); err != nil {
		t.Fatal(err)
	}
	if found := r.Check(f.Dir); found != nil || len(r.Binary) != 64 || len(r.Inputs) != 2 || len(r.Results) != 11 {
		t.Fatalf("%q, %d inputs, %d results", found, len(r.Inputs), len(r.Results))
	}
	return f, data, r
}

// TestReceiptNamesChanges plants 120 changes, one at a time: each is found, and the file, line or key is named.
func TestReceiptNamesChanges(t *testing.T) {
	f, data, r := finished(t)
	rng := rand.New(rand.NewPCG(1, 2))
	config := f.Path(configName)
	for i := range 120 {
		path, want := "", ""
		var change func(text []byte) []byte
		switch i % 4 {
		case 0: // a bit of a checkpoint or of the base model
			path = []string{filepath.Join(f.CheckpointDir(1+rng.IntN(2)), contentNames[rng.IntN(3)]),
				filepath.Join(filepath.Dir(data), "base", "model.safetensors")}[rng.IntN(2)]
			want = path + ": its SHA-256 begins with "
			change = func(text []byte) []byte { text[rng.IntN(len(text))] ^= 1 << rng.IntN(8); return text }
		case 1: // a letter of a row of the data
			n := rng.IntN(60)
			path, want = data, fmt.Sprintf("%s:%d: the line is not the run's", data, n+1)
			change = func(text []byte) []byte {
				return []byte(strings.Replace(string(text), fmt.Sprintf(`"Q%d"`, n), fmt.Sprintf(`"R%d"`, n), 1))
			}
		case 2: // a key of the config
			path = config
			key := []string{"seed: 1", "beta: 0.1"}[rng.IntN(2)]
			want = config + ": " + map[string]string{"seed: 1": "seed: 1, now 1", "beta: 0.1": "loss.beta: 0.1, now 0.1"}[key]
			change = func(text []byte) []byte {
				return []byte(strings.Replace(string(text), key, key+fmt.Sprint(1+rng.IntN(9)), 1))
			}
		case 3: // a row less
			path, want = data, data+": 59 blocks of lines, the run had 60"
			change = func(text []byte) []byte {
				lines := strings.SplitAfter(string(text), "\n")
				n := rng.IntN(60)
				return []byte(strings.Join(append(lines[:n:n], lines[n+1:]...), ""))
			}
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, change(append([]byte(nil), whole...)), 0o666); err != nil {
			t.Fatal(err)
		}
		if found := strings.Join(r.Check(f.Dir), "\n"); !strings.Contains(found, want) {
			t.Errorf("change %d: found %q, want %q", i, found, want)
		}
		if err := os.WriteFile(path, whole, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if found := r.Check(f.Dir); found != nil {
		t.Errorf("all is as it was, but found %q", found)
	}
}

func TestReceiptFaults(t *testing.T) {
	f, data, r := finished(t)
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	if found := r.Check(f.Dir); len(found) != 1 || found[0] != data+" cannot be read: no such file or directory" {
		t.Errorf("%q", found)
	}
	if err := os.WriteFile(f.Path(receiptName), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := ReadReceipt(f.Dir)
	expect.Error(t, err, receiptName+": not the receipt of a run: ")
	dir := t.TempDir()
	_, err = ReadReceipt(dir)
	expect.Error(t, err, dir+": there is no receipt.json: want the folder of a run that has ended")
}
