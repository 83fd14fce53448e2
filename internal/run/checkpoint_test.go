package run

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

func save(t *testing.T, f *Folder, steps ...int) {
	t.Helper()
	for _, step := range steps {
		expect.Must(f.WriteCheckpoint(step, writeContent(step)))(t)
	}
}

func steps(t *testing.T, f *Folder) []int {
	t.Helper()
	all := expect.Must(f.All())(t)
	var out []int
	for _, c := range all {
		out = append(out, c.Step)
	}
	return out
}

func TestCheckpointRoundTrip(t *testing.T) {
	f := newFolder(t)
	c, err := f.WriteCheckpoint(10, writeContent(10))
	if err != nil || filepath.Base(c.Dir) != "step-00000010" {
		t.Fatalf("%+v, %v", c, err)
	}
	save(t, f, 20)
	f = reopen(t, f)
	latest, warnings, err := f.Latest()
	if err != nil || latest.Step != 20 || warnings != nil {
		t.Fatalf("%+v, %v, %v", latest, warnings, err)
	}
	for _, c := range []Checkpoint{latest, {Step: 10, Dir: f.Path(checkpointsName, "step-00000010")}} {
		if err := f.ReadCheckpoint(c, checkContent(c.Step)); err != nil {
			t.Error(err)
		}
	}
	wantError(t, f.ReadCheckpoint(latest, func(string) error { return errors.New("shape [2], want [3]") }), latest.Dir,
		"shape [2]")
}

func TestNoCheckpoint(t *testing.T) {
	_, warnings, err := newFolder(t).Latest()
	if !errors.Is(err, ErrNoCheckpoint) || warnings != nil {
		t.Errorf("%v, %v", warnings, err)
	}
}

// TestDamagedCheckpoint: whatever happened to the newest, the one before is taken and the file at fault named.
func TestDamagedCheckpoint(t *testing.T) {
	damage := map[string]struct {
		file string
		do   func(path string) error
	}{
		"bit flipped": {"moments.bin", func(p string) error {
			b, _ := os.ReadFile(p)
			b[len(b)/2] ^= 1
			return os.WriteFile(p, b, 0o666)
		}},
		"cut short":          {"weights.bin", func(p string) error { return os.Truncate(p, 100) }},
		"file gone":          {"nested/state.bin", os.Remove},
		"manifest gone":      {manifestName, os.Remove},
		"manifest cut short": {manifestName, func(p string) error { return os.Truncate(p, 30) }},
		"of another step": {manifestName, func(p string) error {
			b, _ := os.ReadFile(strings.Replace(p, "step-00000020", "step-00000010", 1))
			return os.WriteFile(p, b, 0o666)
		}},
		"manifest leads out": {manifestName, func(p string) error {
			return os.WriteFile(p, []byte(`{"step":20,"files":[{"name":"../../config.yaml"}]}`), 0o666)
		}},
	}
	for name, d := range damage {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			save(t, f, 10, 20)
			path := f.Path(checkpointsName, "step-00000020", d.file)
			expect.OK(t, d.do(path))
			latest, warnings, err := f.Latest()
			if err != nil || latest.Step != 10 || len(warnings) != 1 {
				t.Fatalf("%+v, %q, %v", latest, warnings, err)
			}
			wantError(t, errors.New(string(warnings[0])), "step 20", path)
			wantError(t, f.ReadCheckpoint(Checkpoint{Step: 20, Dir: f.Path(checkpointsName, stepName(20))},
				checkContent(20)), path)

			save(t, f, 20) // the run gets there again
			if latest, warnings, err = f.Latest(); err != nil || latest.Step != 20 || warnings != nil {
				t.Fatalf("after saving again: %+v, %q, %v", latest, warnings, err)
			}
		})
	}
}

func TestAllCheckpointsDamaged(t *testing.T) {
	f := newFolder(t)
	save(t, f, 10)
	expect.OK(t, os.Remove(f.Path(checkpointsName, "step-00000010", "weights.bin")))
	_, _, err := f.Latest()
	if !errors.Is(err, ErrNoCheckpoint) {
		t.Error(err)
	}
	wantError(t, err, "weights.bin")
}

// TestInterruptedReplacement: the process died after the old checkpoint stepped aside, or after the new one came.
func TestInterruptedReplacement(t *testing.T) {
	f := newFolder(t)
	save(t, f, 10)
	final := f.Path(checkpointsName, stepName(10))
	aside := f.Path(checkpointsName, replacedStart+stepName(10))
	expect.OK(t, os.Rename(final, aside))
	f = reopen(t, f)
	if latest, _, err := f.Latest(); err != nil || latest.Step != 10 {
		t.Fatalf("%+v, %v", latest, err)
	}
	expect.Write(t, filepath.Join(aside, "old"), "")
	f = reopen(t, f)
	if latest, _, err := f.Latest(); err != nil || latest.Step != 10 {
		t.Fatalf("%+v, %v", latest, err)
	}
	if _, err := os.Stat(aside); err == nil {
		t.Error("the replaced checkpoint is still there")
	}
}

func TestOtherNamesAreNoCheckpoints(t *testing.T) {
	f := newFolder(t)
	save(t, f, 5)
	for _, name := range []string{"step-6", "step-00000007.bak", "notes"} {
		expect.OK(t, os.Mkdir(f.Path(checkpointsName, name), 0o777))
	}
	expect.Write(t, f.Path(checkpointsName, "step-00000008"), "a file")
	if got := steps(t, f); !reflect.DeepEqual(got, []int{5}) {
		t.Errorf("%v, want [5]", got)
	}
}

// A checkpoint is not there before its records are on the disk.
func TestCheckpointFlushesTheRecords(t *testing.T) {
	f := newFolder(t)
	expect.OK(t, f.Log(Record{Step: 1}))
	path := f.Path(metricsName)
	if err := errors.Join(os.Remove(path), os.Symlink(path, path)); err != nil { // what cannot be flushed any more
		t.Fatal(err)
	}
	_, err := f.WriteCheckpoint(1, func(string) error { return nil })
	wantError(t, err, "checkpoint not saved", metricsName+" cannot be flushed")
	if got := steps(t, f); len(got) != 0 {
		t.Errorf("checkpoints %v, want none", got)
	}
}

func TestPrune(t *testing.T) {
	cases := []struct {
		keep int
		best int
		want []int
	}{
		{keep: 2, want: []int{40, 50}},
		{keep: 9, want: []int{10, 20, 30, 40, 50}},
		{keep: 0, want: []int{50}},
		{keep: 1, best: 20, want: []int{20, 50}},
		{keep: 2, best: 50, want: []int{40, 50}},
	}
	for _, c := range cases {
		f := newFolder(t)
		for _, step := range []int{10, 20, 30, 40, 50} {
			expect.OK(t, os.MkdirAll(f.Path(checkpointsName, stepName(step)), 0o777))
		}
		if c.best > 0 {
			expect.OK(t, f.MarkBest(c.best, "eval_loss", 0.5))
		}
		expect.OK(t, f.Prune(c.keep))
		if got := steps(t, f); !reflect.DeepEqual(got, c.want) {
			t.Errorf("keep %d, best %d: %v, want %v", c.keep, c.best, got, c.want)
		}
	}
}

func TestBest(t *testing.T) {
	f := newFolder(t)
	if b, err := f.Best(); b != nil || err != nil {
		t.Errorf("%v, %v", b, err)
	}
	save(t, f, 10, 20)
	expect.OK(t, f.MarkBest(20, "eval_rewards/accuracies", 0.75))
	want := &Best{Step: 20, Metric: "eval_rewards/accuracies", Value: 0.75, Checkpoint: "checkpoints/step-00000020"}
	if b, err := f.Best(); err != nil || !reflect.DeepEqual(b, want) {
		t.Errorf("%+v, %v, want %+v", b, err, want)
	}
	wantError(t, f.MarkBest(30, "eval_loss", 1), "step-00000030")
	wantError(t, f.MarkBest(20, "eval_loss", math.NaN()), "eval_loss is NaN")

	// Resumed from step 10, whose state says that step 10 was the best; then from one before any evaluation.
	expect.OK(t, f.RestoreBest(&Best{Step: 10, Metric: "eval_rewards/accuracies", Value: 0.5}))
	if b, _ := f.Best(); b == nil || b.Step != 10 {
		t.Errorf("%+v, want step 10", b)
	}
	expect.OK(t, f.RestoreBest(nil))
	if b, err := f.Best(); b != nil || err != nil {
		t.Errorf("%+v, %v, want none", b, err)
	}
	if err := f.RestoreBest(&Best{Step: 99, Metric: "eval_loss", Value: 1}); err != nil {
		t.Errorf("a best checkpoint that is gone: %v", err)
	}
}

// TestBestWeights: the best weights have a folder of their own, from which no run resumes. It stays while best.json or a
// checkpoint that is kept names it.
func TestBestWeights(t *testing.T) {
	f := newFolder(t)
	at := func(step, best int) func(string) error {
		return func(dir string) error {
			return State{Step: step, Best: &Best{Step: best, Metric: "eval_loss", Value: 1 / float64(step)}}.Write(dir)
		}
	}
	for step, best := range map[int]int{10: 10, 20: 10, 30: 30} {
		expect.Must(f.WriteCheckpoint(step, at(step, best)))(t)
	}
	for _, step := range []int{5, 10, 25, 30} {
		expect.OK(t, f.WriteBest(step, unhashed(writeContent(step))))
	}
	expect.OK(t, f.MarkBest(30, "eval_loss", 0.5))
	expect.OK(t, f.Prune(2))
	var names []string
	entries, _ := os.ReadDir(f.Path(checkpointsName))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := "[best-00000010 best-00000030 step-00000020 step-00000030]"; fmt.Sprint(names) != want {
		t.Errorf("%v, want %s", names, want)
	}
	best, err := f.Best()
	if err != nil || best.Checkpoint != "checkpoints/best-00000030" {
		t.Fatalf("%+v, %v", best, err)
	}
	if err := f.ReadBest(best, checkContent(30)); err != nil {
		t.Error(err)
	}
	// Resumed from step 20, when step 10 was the best.
	expect.OK(t, f.RestoreBest(&Best{Step: 10, Metric: "eval_loss", Value: 0.1}))
	path := f.Path(checkpointsName, "best-00000010", "weights.bin")
	expect.OK(t, os.Truncate(path, 100))
	if best, err = f.Best(); err != nil || best.Step != 10 {
		t.Fatalf("%+v, %v", best, err)
	}
	wantError(t, f.ReadBest(best, checkContent(10)), path)
}

// TestDigestOfTheWriter: a file whose SHA-256 its writer knows is not read again, so that a wrong one is stored.
func TestDigestOfTheWriter(t *testing.T) {
	f := newFolder(t)
	_, err := f.WriteHashedCheckpoint(1, func(dir string, wrote Wrote) error {
		path := filepath.Join(dir, "weights.bin")
		wrote(path, 3, make([]byte, 32))
		return os.WriteFile(path, []byte("abc"), 0o666)
	})
	expect.OK(t, err)
	_, warnings, _ := f.Latest()
	wantError(t, errors.New(string(warnings[0])), "weights.bin is damaged: its SHA-256 begins with ba7816bf, "+
		"want 00000000")
}

func TestStateRoundTrip(t *testing.T) {
	pcg := rand.NewPCG(1, 2)
	pcg.Uint64()
	rng := expect.Must(pcg.MarshalBinary())(t)
	want := State{Step: 10, Epoch: 2, Position: 37, Seed: math.MaxUint64, RNG: rng,
		ConfigHash: HashConfig([]byte("beta: 0.1\n")),
		Best:       &Best{Step: 5, Metric: "eval_loss", Value: 0.1},
		Metrics:    Values{"num_tokens": 1 << 53, "third": 1. / 3, "worst": math.Inf(1)}}
	dir := t.TempDir()
	expect.OK(t, want.Write(dir))
	got, err := ReadState(dir)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	again := rand.NewPCG(0, 0)
	if err := again.UnmarshalBinary(got.RNG); err != nil || again.Uint64() != pcg.Uint64() {
		t.Errorf("the random stream does not go on: %v", err)
	}
	expect.Write(t, filepath.Join(dir, stateName), `{"step":"ten"}`)
	_, err = ReadState(dir)
	wantError(t, err, stateName)
	_, err = ReadState(t.TempDir())
	wantError(t, err, stateName, "no such file")
}

func TestStateKeepsNaN(t *testing.T) {
	dir := t.TempDir()
	expect.OK(t, (State{Metrics: Values{"loss": math.NaN()}}).Write(dir))
	got, err := ReadState(dir)
	if err != nil || !math.IsNaN(got.Metrics["loss"]) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDiskFull writes to the device that is always full, as the system reports it.
func TestDiskFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		need.Lack(t, "linux", "no /dev/full")
	}
	f := newFolder(t)
	full := func(dir string) error {
		if err := os.Symlink("/dev/full", filepath.Join(dir, "weights.bin")); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "weights.bin"), []byte("w"), 0o666)
	}
	_, err := f.WriteCheckpoint(10, full)
	wantError(t, err, f.Path(checkpointsName, "step-00000010", "weights.bin"), "no space left on device",
		"no checkpoint yet")

	save(t, f, 10)
	_, err = f.WriteCheckpoint(20, full)
	wantError(t, err, f.Path(checkpointsName, "step-00000020", "weights.bin"), "no space left on device", stepName(10))
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v does not unwrap to ENOSPC", err)
	}
	_, err = f.WriteCheckpoint(10, full) // a failed replacement
	wantError(t, err, "no space left on device")
	checkLatest(t, f, 10, 10)
	if entries, _ := os.ReadDir(f.Path(checkpointsName)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestSaveErrorNamesTheFile: a file under a temporary name is called what it would have been called, and named once.
func TestSaveErrorNamesTheFile(t *testing.T) {
	f := newFolder(t)
	temporary := func(dir string) error {
		return &fs.PathError{Op: "open", Path: filepath.Join(dir, ".a.json123"), Err: syscall.ENOSPC}
	}
	for _, c := range []struct {
		name  string
		write func(dir string) error
		want  string
	}{
		{"bare", func(dir string) error {
			return &fs.PathError{Op: "open", Path: filepath.Join(dir, "a.json"), Err: syscall.ENOSPC}
		}, "model/a.json: no space left on device"},
		{"named", func(dir string) error {
			return fmt.Errorf("%s: %w", filepath.Join(dir, "b", "a.json"), syscall.ENOSPC)
		}, "model/b/a.json: no space left on device"},
		{"named and temporary", func(dir string) error {
			return fmt.Errorf("%s: %w", filepath.Join(dir, "a.json"), temporary(dir))
		}, "model/a.json: no space left on device"},
		{"no file", func(string) error { return errors.New("tensor w: found NaN") }, "model: tensor w: found NaN"},
	} {
		err := f.WriteResult(ModelName, c.write)
		want := "model not saved: " + f.Path() + "/" + c.want + " (there is no checkpoint yet)"
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", c.name, err, want)
		}
	}
}

// TestWriteResultReplacesAtOnce: a model is whole or not there, and a failed one leaves the earlier.
func TestWriteResultReplacesAtOnce(t *testing.T) {
	f := newFolder(t)
	write := func(text string, err error) func(string) error {
		return func(dir string) error {
			expect.Write(t, filepath.Join(dir, "config.json"), text)
			return err
		}
	}
	if err := f.WriteResult(ModelName, write("half", errors.New("full"))); err == nil {
		t.Fatal("no error")
	}
	if _, err := os.Stat(f.Path(ModelName)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a half-written model is there (%v)", err)
	}
	for _, text := range []string{"first", "second"} {
		expect.OK(t, f.WriteResult(ModelName, write(text, nil)))
	}
	if err := f.WriteResult(ModelName, write("half", errors.New("full"))); err == nil {
		t.Fatal("no error")
	}
	if got := expect.Read(t, filepath.Join(f.Path(ModelName), "config.json")); got != "second" {
		t.Errorf("model holds %q, want the second", got)
	}
	// A process that died between the two renames of a replacement.
	expect.OK(t, os.Rename(f.Path(ModelName), f.Path(replacedStart+ModelName)))
	f = reopen(t, f)
	if got := expect.Read(t, filepath.Join(f.Path(ModelName), "config.json")); got != "second" {
		t.Errorf("model holds %q after the reopening, want the second", got)
	}
}

// TestLatestBefore: the checkpoint of the step that failed holds the weights that failed.
func TestLatestBefore(t *testing.T) {
	f := newFolder(t)
	save(t, f, 1, 2, 3)
	for before, want := range map[int]int{4: 3, 3: 2, 2: 1} {
		if c, _, err := f.LatestBefore(before); err != nil || c.Step != want {
			t.Errorf("before %d: step %d, %v, want %d", before, c.Step, err, want)
		}
	}
	if _, _, err := f.LatestBefore(1); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("%v, want none", err)
	}
}

// TestFileSizeLimit has the system refuse writes in a process of its own: to the metrics, to a checkpoint's file, to
// its manifest.
func TestFileSizeLimit(t *testing.T) {
	f := newFolder(t)
	f.Close()
	_, lines := startChild(t, "full", f.Dir)
	for _, want := range []string{metricsName, "step-00000002/moments.bin|step-00000002/weights.bin",
		"step-00000003/manifest.json"} {
		if !lines.Scan() {
			t.Fatal("the child ended")
		}
		line := lines.Text()
		a, b, _ := strings.Cut(want, "|")
		if !strings.Contains(line, a) && (b == "" || !strings.Contains(line, b)) ||
			!strings.Contains(line, "file too large") {
			t.Errorf("%q, want %q", line, want)
		}
	}
	if lines.Scan() {
		t.Errorf("and then %q", lines.Text())
	}
	f = reopen(t, f)
	if latest, warnings, err := f.Latest(); err != nil || latest.Step != 1 || warnings != nil {
		t.Errorf("%+v, %v, %v", latest, warnings, err)
	}
	records, err := f.ReadMetrics()
	if err != nil || len(records) != 1 {
		t.Errorf("%v, %v, want the first record alone", records, err)
	}
}

// TestKilled kills a process that writes checkpoints, at random moments. Whenever it dies, the newest checkpoint is
// whole and at least the last that the process reported, and no damaged one is ever met.
func TestKilled(t *testing.T) {
	f := newFolder(t)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	last := 0
	for range 20 {
		f.Close()
		reported := killAfter(t, f.Dir, time.Duration(rng.IntN(40_000))*time.Microsecond)
		f = reopen(t, f)
		last = checkLatest(t, f, max(last, reported), math.MaxInt)
		checkBest(t, f)
	}
	t.Logf("%d checkpoints in 20 killed processes", last)
}

// killAfter starts a process that writes checkpoints, kills it some time after its first, and returns the step of the
// last that it reported.
func killAfter(t *testing.T, dir string, delay time.Duration) int {
	t.Helper()
	cmd, lines := startChild(t, "checkpoints", dir)
	reported := 0
	for lines.Scan() {
		step, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatalf("child: %s", lines.Text())
		}
		if reported == 0 {
			time.AfterFunc(delay, func() { _ = cmd.Process.Kill() })
		}
		reported = step
	}
	kill(cmd)
	return reported
}

// checkBest verifies the content of the checkpoint that best.json names, if any.
func checkBest(t *testing.T, f *Folder) {
	t.Helper()
	best := expect.Must(f.Best())(t)
	if best == nil {
		return
	}
	c := Checkpoint{Step: best.Step, Dir: f.Path(best.Checkpoint)}
	expect.OK(t, f.ReadCheckpoint(c, checkContent(c.Step)))
}

// checkLatest verifies the newest checkpoint's content and returns its step.
func checkLatest(t *testing.T, f *Folder, least, most int) int {
	t.Helper()
	latest, warnings, err := f.Latest()
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%+v, %q, %v", latest, warnings, err)
	}
	if latest.Step < least || latest.Step > most {
		t.Fatalf("newest checkpoint is of step %d, want %d to %d", latest.Step, least, most)
	}
	expect.OK(t, f.ReadCheckpoint(latest, checkContent(latest.Step)))
	return latest.Step
}

// TestPruneLeavesLaterOnes: a run that went on from an older checkpoint, since later ones are damaged, keeps its own.
func TestPruneLeavesLaterOnes(t *testing.T) {
	f := newFolder(t)
	for _, step := range []int{10, 15, 20, 30} {
		expect.OK(t, os.MkdirAll(f.Path(checkpointsName, stepName(step)), 0o777))
	}
	expect.OK(t, f.PruneAt(1, 15))
	if got := steps(t, f); !reflect.DeepEqual(got, []int{15, 20, 30}) {
		t.Errorf("%v, want 15, and the later ones as they were", got)
	}
}
