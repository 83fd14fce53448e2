package link

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// failing is a disk that fails at one of its calls, in one of three ways.
type failing struct {
	*run.Folder
	at, calls int
	how       string
}

var errKilled = errors.New("killed")

// fail reports how the call fails; "": it does not.
func (d *failing) fail() string {
	d.calls++
	if d.calls == d.at {
		return d.how
	}
	return ""
}

func (d *failing) do(half, whole func() error) error {
	how := d.fail()
	switch how {
	case "half":
		return errors.Join(half(), errKilled)
	case "before":
		return errKilled
	}
	err := whole()
	if how == "after" {
		err = errors.Join(err, errKilled)
	}
	return err
}

func (d *failing) WriteFile(name string, data []byte) error {
	dir, base := filepath.Split(d.Path(name))
	return d.do(func() error { return os.WriteFile(filepath.Join(dir, "."+base+"123"), data[:len(data)/2], 0o666) },
		func() error { return d.Folder.WriteFile(name, data) })
}

func (d *failing) Append(name string, text []byte) error {
	return d.do(func() error { return d.Folder.Append(name, text[:len(text)*2/3]) },
		func() error { return d.Folder.Append(name, text) })
}

func (d *failing) WriteCheckpoint(step int, write func(dir string) error) (c run.Checkpoint, err error) {
	half := d.Path("checkpoints", fmt.Sprintf(".new-step-%08d", step))
	return c, d.do(func() error { return errors.Join(os.MkdirAll(half, 0o777), write(half)) }, func() error {
		_, err := d.Folder.WriteCheckpoint(step, write)
		return err
	})
}

// TestEveryFailure: whichever write, append or snapshot fails, before, in the middle or after it, the run continues to
// the bits of an undisturbed one. No update that an agent knows as accepted is lost or counts twice.
func TestEveryFailure(t *testing.T) {
	const last = 7
	whole := newDriver(t, 3)
	count := &failing{}
	server := expect.Must(whole.work(last, func(f *run.Folder) disk { count.Folder = f; return count }))(t)
	want := stateOf(t, server)
	for at := 1; at <= count.calls; at++ {
		for _, how := range []string{"before", "half", "after"} {
			w := newDriver(t, 3)
			_, err := w.work(last, func(f *run.Folder) disk { return &failing{Folder: f, at: at, how: how} })
			if !errors.Is(err, errKilled) {
				t.Fatalf("call %d: error %v", at, err)
			}
			server, err := w.work(last, plain)
			if err != nil {
				t.Fatalf("call %d, %s: %v", at, how, err)
			}
			if !bytes.Equal(stateOf(t, server), want) {
				t.Errorf("call %d, %s: other bits", at, how)
			}
			w.check(replay(t, w.dir), last)
		}
	}
}

// check compares a replay with what the agents know.
func (w *driver) check(r replayed, version int) {
	w.t.Helper()
	if !r.same() || r.Version != version || r.Accepted != version {
		w.t.Errorf("replay: %+v", r)
	}
	if n := len(w.acknowledged); n < version-1 || n > version { // the last one may not have been acknowledged
		w.t.Errorf("the agents know of %d accepted updates, want %d", n, version)
	}
	for update, n := range w.acknowledged {
		if n != 1 {
			w.t.Errorf("update %v counts %d times", update, n)
		}
	}
	for _, name := range []string{updatesName, "checkpoints"} {
		entries := expect.Must(os.ReadDir(filepath.Join(w.dir, name)))(w.t)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				w.t.Errorf("left behind: %s/%s", name, e.Name())
			}
		}
	}
}

// TestFailureIsFinal: after an error nothing more is written or applied.
func TestFailureIsFinal(t *testing.T) {
	w := newDriver(t, 0)
	folder := expect.Must(run.Open(w.dir))(t)
	defer folder.Close()
	d := &failing{Folder: folder, at: 4, how: "before"}
	server := newFake()
	k, err := openJournal(folder, d, server, w.options)
	for range 2 {
		if err == nil {
			_, _, err = k.Do(Join, 0)
		}
	}
	expect.OK(t, err)
	for range 3 {
		if _, _, err := send(k, gradient(0, 0)); !errors.Is(err, errKilled) {
			t.Errorf("error %v", err)
		}
	}
	if err := k.Snapshot(); !errors.Is(err, errKilled) {
		t.Errorf("error %v", err)
	}
	if server.Version() != 0 || d.calls != 4 {
		t.Errorf("version %d, %d calls", server.Version(), d.calls)
	}
}

// cut is a finished run's journal.
func cut(t *testing.T, every int) (*driver, []byte) {
	w := newDriver(t, every)
	expect.Must(w.work(5, plain))(t)
	text := expect.Bytes(t, filepath.Join(w.dir, JournalName))
	return w, text
}

// TestCutAnywhere: a journal that ends after any of its bytes is read up to its last whole line. A line says how many
// updates that costs. One without a whole line is refused.
func TestCutAnywhere(t *testing.T) {
	w, text := cut(t, 0)
	first := bytes.IndexByte(text, '\n')
	for n := range len(text) + 1 {
		if n%37 > 1 && n > 0 && text[n-1] != '\n' && n < len(text)-2 {
			continue
		}
		expect.Write(t, filepath.Join(w.dir, JournalName), text[:n])
		lines := bytes.Count(text[:n], []byte("\n"))
		for _, path := range expect.Must(filepath.Glob(filepath.Join(w.dir, updatesName, "*"+lostEnd)))(t) {
			expect.OK(t, os.Rename(path, strings.TrimSuffix(path, lostEnd)+updateEnd))
		}
		w.warnings, w.agents, w.acknowledged, w.turn = nil, []int{-1, -1, -1}, map[[2]int]int{}, 0
		server, err := w.work(0, plain)
		if n <= first {
			expect.Error(t, err, JournalName+" has no lines, but there are 5 updates such as")
			continue
		}
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if want := max(0, lines-4); server.Version() != want {
			t.Errorf("%d bytes: version %d, want %d", n, server.Version(), want)
		}
		half := n > 0 && text[n-1] != '\n'
		says := fmt.Sprintf("%s:%d: half", JournalName, lines+1)
		if said := strings.Join(w.warnings, " "); half != strings.Contains(said, says) {
			t.Errorf("%d bytes: warnings %q", n, said)
		}
		says = fmt.Sprintf("%s ends in event %d: %d in ", JournalName, lines-1, 5-server.Version())
		if said := strings.Join(w.warnings, " "); (server.Version() < 5) != strings.Contains(said, says) {
			t.Errorf("%d bytes: warnings %q, want %q", n, said, says)
		}
	}
}

// TestDoubledAnywhere: a piece of a journal that comes twice is an error that names a line, or half a last line.
func TestDoubledAnywhere(t *testing.T) {
	_, text := cut(t, 0)
	whole := expect.Must(readText(text))(t)
	for end := 1; end <= len(text); end++ {
		for _, n := range []int{1, 2, 8, 64, 200, end} {
			r, err := readText(slices.Concat(text[:end], text[max(0, end-n):]))
			switch {
			case err == nil && (r.torn || end == len(text)) && r.line <= whole.line && r.last <= whole.last:
			case err == nil || !strings.HasPrefix(err.Error(), JournalName+":"):
				t.Errorf("%d bytes before byte %d twice: error %v, %d lines", n, end, err, r.line)
			}
		}
	}
}

// readText reads a journal from memory.
func readText(text []byte) (*reader, error) {
	r := &reader{path: JournalName, event: func(Event) error { return nil }}
	return r, r.read(bytes.NewReader(text))
}

// TestFlippedBytes: a changed byte is an error that names its line, except where it makes half a last line.
func TestFlippedBytes(t *testing.T) {
	_, text := cut(t, 0)
	for i := range 6 * len(text) {
		damaged, how := bytes.Clone(text), []byte{1, 4, 0x20, 0x80, text[i/6] ^ '\n', text[i/6]}[i%6]
		i /= 6
		if damaged[i] ^= how; how == 0 {
			continue
		}
		line := 1 + bytes.Count(text[:i], []byte("\n"))
		r, err := readText(damaged)
		// a zero in what is the last line then may be left by a power cut
		if i == len(text)-1 || damaged[i] == 0 && !bytes.Contains(damaged[i:len(text)-1], []byte("\n")) {
			if err != nil || !r.torn {
				t.Errorf("last byte: torn %v, error %v", r.torn, err)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%s:%d: ", JournalName, line)) {
			t.Errorf("byte %d of line %d: error %v", i, line, err)
		}
	}
	zeros := append(bytes.Clone(text[:len(text)-40]), make([]byte, 40)...)
	if r, err := readText(append(zeros, '\n')); err != nil || !r.torn {
		t.Errorf("zeros at the end: %v", err)
	}
}

// TestMissingLines: lines that were removed or that come twice are an error that names the place.
func TestMissingLines(t *testing.T) {
	_, text := cut(t, 0)
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines = lines[:len(lines)-1]
	for i := range lines {
		without, twice := bytes.Join(lines[:i], nil), bytes.Join(lines[:i+1], nil)
		for what, text := range map[string][]byte{"removed": append(without, bytes.Join(lines[i+1:], nil)...),
			"twice": append(twice, bytes.Join(lines[i:], nil)...)} {
			_, err := readText(text)
			if what == "removed" && i == len(lines)-1 {
				continue
			}
			if err == nil || !strings.HasPrefix(err.Error(), JournalName+":") || strings.Contains(err.Error(), "\n") {
				t.Errorf("line %d %s: error %v", i+1, what, err)
			}
		}
	}
}

// TestDamagedSnapshot: it is skipped with a warning, and the journal gives the same bits.
func TestDamagedSnapshot(t *testing.T) {
	w, _ := cut(t, 2)
	before := expect.Must(w.work(5, plain))(t)
	dirs, err := filepath.Glob(filepath.Join(w.dir, "checkpoints", "*", stateName))
	if err != nil || len(dirs) != 2 {
		t.Fatal(dirs, err)
	}
	for _, path := range dirs {
		flip(t, path)
		w.warnings = nil
		after, err := w.work(5, plain)
		if err != nil || !bytes.Equal(stateOf(t, before), stateOf(t, after)) {
			t.Errorf("%s: error %v, or other bits", path, err)
		}
	}
	if len(w.warnings) != 2 || !strings.Contains(w.warnings[0], "state.bin is damaged") {
		t.Errorf("warnings %q", w.warnings)
	}
	if r := replay(t, w.dir); r.same() || len(r.Found) != 3 || r.Found[2] != "" {
		t.Errorf("%+v", r)
	}
}

func flip(t *testing.T, path string) {
	t.Helper()
	b := expect.Bytes(t, path)
	b[len(b)/2] ^= 1
	expect.Write(t, path, b)
}

// TestRefusedFolders: each is one line that names the file and both values.
func TestRefusedFolders(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, w *driver)
		says string
	}{
		"another run": {func(_ *testing.T, w *driver) { w.options.Format.Run = "r2" },
			"journal.jsonl:1: the journal is of run r1 with 3 parameters of type float32, want run r2 with 3 of type"},
		"another model": {func(_ *testing.T, w *driver) { w.options.Format.D = 4 },
			"journal.jsonl:1: the journal is of run r1 with 3 parameters of type float32, want run r1 with 4"},
		"another type": {func(_ *testing.T, w *driver) { w.options.Format.Type = Float64 },
			"of type float32, want"},
		"no type": {func(_ *testing.T, w *driver) { w.options.Format.Type = "half" },
			`"half": want float32 or float64`},
		"another protocol": {func(t *testing.T, w *driver) {
			line := firstLine(format, protocol.Version+1)
			expect.Write(t, filepath.Join(w.dir, JournalName), line)
		}, "journal.jsonl:1: found protocol version 2, want 1"},
		"damaged update": {func(t *testing.T, w *driver) { flip(t, anUpdate(t, w)) }, ".bin is damaged: its SHA-256"},
		"missing update": {func(t *testing.T, w *driver) {
			expect.OK(t, os.Remove(anUpdate(t, w)))
		}, ".bin cannot be read: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := cut(t, 0)
			c.do(t, w)
			_, err := w.work(9, plain)
			expect.Error(t, err, c.says)
		})
	}
}

func anUpdate(t *testing.T, w *driver) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(w.dir, updatesName, "*"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	return paths[0]
}

// TestShortJournal: a journal that ends before the snapshot has lost lines.
func TestShortJournal(t *testing.T) {
	w, text := cut(t, 2)
	lines := bytes.SplitAfter(text, []byte("\n"))
	expect.Write(t, filepath.Join(w.dir, JournalName), bytes.Join(lines[:3], nil))
	_, err := w.work(9, plain)
	expect.Error(t, err, "ends in event 2, but the newest snapshot is of event 7")
}

// TestObserved: a continued run observes the events after the snapshot again, and knows who has left.
func TestObserved(t *testing.T) {
	w, _ := cut(t, 4)
	var events []int
	version := -1
	w.options.OnRestore = func(v int) error { version = v; return nil }
	w.options.Observe = func(e Event, r protocol.Receipt) error {
		events = append(events, e.N)
		return nil
	}
	expect.Must(w.work(0, plain))(t)
	if version != 4 || fmt.Sprint(events) != "[8]" {
		t.Errorf("restored at version %d, events %v", version, events)
	}
	folder := expect.Must(run.Open(w.dir))(t)
	defer folder.Close()
	expect.Must(OpenJournal(folder, newFake(), w.options))(t)
}

// TestRefusedUpdatesAreRepeated: refusals belong to the server's state, and a duplicate has no second file.
func TestRefusedUpdatesAreRepeated(t *testing.T) {
	w := newDriver(t, 0)
	folder := expect.Must(run.Open(w.dir))(t)
	defer folder.Close()
	server := newFake()
	k := expect.Must(OpenJournal(folder, server, w.options))(t)
	short := gradient(0, 0)
	short.Vectors[0] = short.Vectors[0][:2]
	for _, u := range []protocol.Update{short, gradient(0, 0), gradient(0, 0)} {
		if _, _, err := send(k, u); err != nil {
			t.Fatal(err)
		}
	}
	long := gradient(0, 0)
	long.Vectors[0] = make([]float64, 4)
	if _, _, err := send(k, long); !errors.Is(err, ErrLength) {
		t.Errorf("too long: %v", err)
	}
	expect.OK(t, k.Snapshot())
	r := replay(t, w.dir)
	if !r.same() || r.Accepted != 1 || r.Refused["length"] != 1 || r.Refused["duplicate"] != 1 {
		t.Errorf("%+v", r)
	}
	if entries, _ := os.ReadDir(filepath.Join(w.dir, updatesName)); len(entries) != 2 {
		t.Errorf("%d files of updates, want 2", len(entries))
	}
}

// FuzzJournal gives any lines, with their right checksums or without, to the reader.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"line":"run","run":"r1","protocol":1,"type":"float32","d":3}`+"\n"+`{"line":"join","n":1,"agent":0}`+
		"\n"+`{"line":"result","n":1,"version":0}`+"\n"), true)
	f.Add([]byte(`{"line":"update","n":1,"agent":-1,"file":"00"}`+"\n\x00\x00\n"), false)
	f.Fuzz(func(t *testing.T, text []byte, sealed bool) {
		if sealed {
			var all []byte
			for line := range bytes.Lines(text) {
				line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("}"))
				all = append(all, sealLine(bytes.Clone(line))...)
			}
			text = all
		}
		r, err := readText(text)
		if err != nil && (strings.ContainsAny(err.Error(), "\n\r") ||
			!strings.HasPrefix(err.Error(), JournalName+":")) {
			t.Errorf("error %q", err)
		}
		if r.good > int64(len(text)) || err == nil && !r.torn && r.good != int64(len(text)) {
			t.Errorf("%d of %d bytes, torn %v", r.good, len(text), r.torn)
		}
	})
}
