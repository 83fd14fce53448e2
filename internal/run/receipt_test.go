package run

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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

// TestReceiptOfAPattern: each file that a pattern of the config means is in the receipt.
func TestReceiptOfAPattern(t *testing.T) {
	_, data, _ := finished(t)
	pattern := filepath.Join(filepath.Dir(data), "p*.jsonl")
	found, err := inputsOf([]byte("data:\n  train: '" + pattern + "'\n"))
	if _, has := found[data]; err != nil || len(found) != 1 || !has {
		t.Error(found, err)
	}
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
			n := rng.IntN(60)
			path, want = data, fmt.Sprintf("%s:%d: from here on it is not the run's: it has 59 lines, the run's had 60",
				data, n+1)
			change = func(text []byte) []byte {
				lines := strings.SplitAfter(string(text), "\n")
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
		if found := r.Check(f.Dir); len(found) != 1 || !strings.HasPrefix(found[0], want) {
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

// TestReceiptInputs: names with a space, patterns, links to folders and further keys are found; words that are no files
// are passed over.
func TestReceiptInputs(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"my pairs.jsonl": "{}\n", "a-1.parquet": "1", "a-2.parquet": "2",
		"base/model.safetensors": "3", "base/.cache/x": "4", "chat.jinja": "5", "unused": "6",
		"internal/embedded/pairs.jsonl": "7"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("base", "current"); err != nil {
		t.Fatal(err)
	}
	all, err := inputsOf([]byte("model: current\nreference: org/name@0123\nseed: 1\nchat:\n  template: chat.jinja\n" +
		"data:\n  train: \"my pairs.jsonl\"\n  eval: a-*.parquet\n  test: embedded\n  validation: \"\"\n" +
		"other: unused\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a-1.parquet", "a-2.parquet", "chat.jinja", "current/.cache/x", "current/model.safetensors",
		"my pairs.jsonl"}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("inputs %q, want %q", got, want)
	}
	if h := all["a-2.parquet"]; h.SHA256 != hashOf([]byte("2")) {
		t.Errorf("%+v", h)
	}
}

// TestLongFilesOfLines: 5,000 lines have hashes of two lines each; where many differ, 20 places are named.
func TestLongFilesOfLines(t *testing.T) {
	path, lines := filepath.Join(t.TempDir(), "rows.jsonl"), make([]string, 5000)
	for i := range lines {
		lines[i] = fmt.Sprintln(i)
	}
	store := func() {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	store()
	h, err := hashFile(path, 0)
	if err != nil || h.Block != 2 || len(h.Blocks) != 2500 || h.Lines != 5000 {
		t.Fatalf("%d blocks of %d, %v", len(h.Blocks), h.Block, err)
	}
	lines[4998] = "x\n"
	store()
	want := []string{path + ":4999 to 5000: these lines are not the run's"}
	if got := h.differences(path); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	slices.Reverse(lines)
	store()
	if got := h.differences(path); len(got) != 21 || got[20] != path+": 2480 more places are not the run's" {
		t.Errorf("%q", got)
	}
	lines = append(lines, "y\n")
	lines[1] = "z\n"
	store()
	want = []string{path + ":1: from here on it is not the run's: it has 5001 lines, the run's had 5000"}
	if got := h.differences(path); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReceiptNote: another program is named with both hashes, and the run's version where it has one.
func TestReceiptNote(t *testing.T) {
	_, _, r := finished(t)
	if note := r.Note(); note != "" {
		t.Errorf("the same program: %s", note)
	}
	r.Binary, r.Version = strings.Repeat("a", 64), "v1.2.3"
	want := "another program made the run (v1.2.3): its SHA-256 begins with aaaaaaaa, this one's with bbbbbbbb"
	if note := r.noteOf(strings.Repeat("b", 64)); note != want {
		t.Errorf("%s, want %s", note, want)
	}
	if note := r.noteOf(""); note != "" {
		t.Errorf("a program that cannot be read: %s", note)
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

// TestReceiptLeavesServedWeightsOut: what servers of rollouts read is gone after the run, and is in no receipt.
func TestReceiptLeavesServedWeightsOut(t *testing.T) {
	f, _, _ := finished(t)
	if err := os.MkdirAll(f.Path(servedName, "x-v1"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Path(servedName, "x-v1", "model.safetensors"), []byte("w"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteReceipt(Receipt{Command: "ci-rl"}); err != nil {
		t.Fatal(err)
	}
	r, err := ReadReceipt(f.Dir)
	if err != nil || len(r.Results) != 11 {
		t.Errorf("%d results, %v: want 11", len(r.Results), err)
	}
}

// TestReceiptHasTheInputsOfTheStart: data that changes while the run is under way is not the run's.
func TestReceiptHasTheInputsOfTheStart(t *testing.T) {
	f, data, _ := finished(t)
	if err := os.WriteFile(data, []byte("{}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteReceipt(Receipt{Command: "mappo"}); err != nil {
		t.Fatal(err)
	}
	r, err := ReadReceipt(f.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if found := r.Check(f.Dir); len(found) == 0 || !strings.Contains(found[0], data) {
		t.Errorf("%q, want the data", found)
	}
}

// TestInputsOfARunThatStartsOver: a run that ended before its first checkpoint reads its files again when it is
// resumed.
func TestInputsOfARunThatStartsOver(t *testing.T) {
	f, data, _ := finished(t)
	change := func(text string) (hash string) {
		t.Helper()
		if err := os.WriteFile(data, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := f.NoteInputs(); err != nil {
			t.Fatal(err)
		}
		var inputs map[string]HashedFile
		if err := readJSON(f.Path(inputsName), "inputs", &inputs); err != nil {
			t.Fatal(err)
		}
		return inputs[data].SHA256
	}
	if hash := change("{}\n"); hash == hashOf([]byte("{}\n")) {
		t.Error("with a checkpoint the changed data is the run's")
	}
	if err := os.RemoveAll(f.Path(checkpointsName)); err != nil {
		t.Fatal(err)
	}
	if hash := change("[]\n"); hash != hashOf([]byte("[]\n")) {
		t.Error("without a checkpoint the changed data is not the run's")
	}
}

// TestDamagedReceipt: a receipt whose numbers contradict each other is refused.
func TestDamagedReceipt(t *testing.T) {
	f, data, r := finished(t)
	for _, damaged := range []HashedFile{{Lines: 60, Block: -1}, {Lines: 60, Block: 1, Blocks: []string{"0"}},
		{Lines: -1}, {Lines: 1, Block: 1, Blocks: []string{"0", "1"}}} {
		r.Inputs[data] = damaged
		if err := f.replaceJSON(receiptName, r); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadReceipt(f.Dir); err == nil || !strings.Contains(err.Error(), data+": found ") {
			t.Errorf("%+v: %v", damaged, err)
		}
	}
}
