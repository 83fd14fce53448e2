package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

var goOn = regexp.MustCompile(`^posttrain: interrupted at step (\d+) of (\d+), saved: continue with posttrain (.*)$`)

// TestInterruptedRunEndsLikeAWholeOne: Ctrl-C finishes and saves the step and exits with 130; the command that its
// message names, typed into a shell, ends in the same model, metrics and best checkpoint as a run that was let alone.
func TestInterruptedRunEndsLikeAWholeOne(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"mappo", []string{"--data", "pairs.jsonl", "--set", "train.eval_every=3", "--set",
			"train.checkpoint_every=5", "--set", "train.log_every=2", "--set", "train.schedule=cosine"}},
		{"sft", []string{"--data", "demos.jsonl", "--set", "train.eval_every=3", "--set", "train.micro_batch_size=2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, e := range backendtest.Engines(t) {
				t.Run(e.Name, func(t *testing.T) {
					work(t, "qwen2-newer")
					write(t, "demos.jsonl", messageLines(12))
					args := tiny(c.name, 7, append(c.args, "--backend", e.Name)...)
					must(t, append(args, "--out", "whole")...)
					interruptRepeatedly(t, append(args, "--out", "it's broken"), "step 2/7")
					sameRun(t, "whole", "it's broken")
				})
			}
		})
	}
}

// TestInterruptedKTO: its mismatched answers and their reference log-probs are the whole run's.
func TestInterruptedKTO(t *testing.T) {
	work(t, "qwen2-newer")
	args := tiny("mappo", 4, "--data", "pairs.jsonl", "--loss", "kto", "--prior", "none")
	must(t, append(args, "--out", "whole")...)
	interruptRepeatedly(t, args, "step 2/4")
	sameRun(t, "whole", "out")
}

// interruptRepeatedly runs a command that is interrupted at a text, then the command that its message names, which is
// interrupted too, and so on; the fourth is let alone.
func interruptRepeatedly(t *testing.T, args []string, until string) {
	t.Helper()
	for stops := 0; ; stops++ {
		o := cliUntil(t, until, args...)
		if o.code == 0 {
			if stops == 0 {
				t.Fatalf("%q never stood on standard error:\n%s", until, o.err)
			}
			return
		}
		m := goOn.FindStringSubmatch(o.last())
		if o.code != exitInterrupted || m == nil {
			t.Fatalf("exit code %d, stop %d:\n%s", o.code, stops, o.err)
		}
		args, until = words(t, m[3]), "continuing after step "+m[1]
		if stops == 2 {
			until = ""
		}
	}
}

// TestInterruptedReferencePass: what was measured is kept, and the message says how to continue.
func TestInterruptedReferencePass(t *testing.T) {
	work(t, "qwen3-newer")
	o := cliUntil(t, "pair 4/12", tinyMappo(2)...)
	_, again, found := strings.Cut(o.last(), "interrupted while log-probs were measured, before the first step: "+
		"continue with posttrain ")
	if o.code != exitInterrupted || !found || exists("out/reference.safetensors") ||
		!exists("out/reference-part.safetensors") {
		t.Fatalf("exit code %d: %s", o.code, o.err)
	}
	must(t, words(t, again)...)
	if exists("out/reference-part.safetensors") {
		t.Error("out/reference-part.safetensors is still there")
	}
	must(t, tinyMappo(2, "--out", "whole")...)
	sameRun(t, "whole", "out")
}

// TestReferenceComesFromTheCache: a resumed run measures no log-prob of the reference again.
func TestReferenceComesFromTheCache(t *testing.T) {
	work(t, "qwen2-newer")
	first := cliUntil(t, "step 1/4", tiny("mappo", 4, "--data", "pairs.jsonl")...)
	if first.code != exitInterrupted || strings.Contains(first.err, "taken from") {
		t.Fatalf("exit code %d: %s", first.code, first.err)
	}
	names := []string{"out/reference.safetensors", "out/reference-eval.safetensors"}
	before := stamps(t, names)
	o := must(t, "mappo", "--resume", "out")
	for _, name := range names {
		if !strings.Contains(o.err, "taken from "+name+"\n") {
			t.Errorf("nothing says that %s was used:\n%s", name, o.err)
		}
	}
	if strings.Contains(o.err, "pair ") {
		t.Errorf("log-probs were measured again:\n%s", o.err)
	}
	if after := stamps(t, names); before != after {
		t.Errorf("the cache was written again: %s, then %s", before, after)
	}
	screen := &watched{} // no bar of pairs stays at 0 %
	if code := execute(t.Context(), streams{in: strings.NewReader(""), out: &watched{}, err: screen, terminal: true},
		[]string{"mappo", "--resume", "out"}); code != 0 || strings.Contains(screen.String(), "  0% |") {
		t.Errorf("exit code %d: %q", code, screen)
	}
}

func stamps(t *testing.T, names []string) string {
	t.Helper()
	var all []string
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.ModTime().String())
	}
	return strings.Join(all, " ")
}

// TestTakenAwayFolder: a run whose folder is deleted or renamed says so and fails; a renamed one continues under its
// new name.
func TestTakenAwayFolder(t *testing.T) {
	work(t, "qwen2-newer")
	for name, take := range map[string]func() error{
		"deleted": func() error { // at once, since the run writes into it at the same time
			return errors.Join(os.Rename("out", "away"), removeAll("away"))
		},
		"renamed": func() error { return os.Rename("out", "moved") },
	} {
		err := &watched{until: "step 2/4", act: func() {
			if err := take(); err != nil {
				t.Error(err)
			}
		}}
		args := tinyMappo(4, "--set", "train.checkpoint_every=1")
		code := execute(t.Context(), streams{in: strings.NewReader(""), out: io.Discard, err: err}, args)
		checkRefusal(t, outcome{code: code, err: err.String()}, faultCase{code: 1,
			says: []string{"run folder out was deleted, renamed or replaced while the run worked in it"}})
		if exists("out") {
			t.Errorf("%s: there is a folder out", name)
		}
	}
	must(t, "mappo", "--resume", "moved")
	must(t, tinyMappo(4, "--out", "whole")...)
	sameRun(t, "whole", "moved")
}

// removeAll tries again while a run still adds files.
func removeAll(dir string) (err error) {
	for range 1000 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
	}
	return err
}

// TestResumeWithOtherCheckpointMinutes: the key changes no result, so that a run continues with another value, and one
// of before the key with any.
func TestResumeWithOtherCheckpointMinutes(t *testing.T) {
	work(t, "qwen2-newer")
	args := tinyMappo(4)
	must(t, append(args, "--out", "whole")...)
	if o := cliUntil(t, "step 2/4", args...); o.code != exitInterrupted {
		t.Fatalf("exit code %d: %s", o.code, o.err)
	}
	config := read(t, "out/config.yaml")
	const line = "  checkpoint_minutes: 2.0\n"
	if !strings.Contains(config, line) {
		t.Fatalf("no %q in\n%s", line, config)
	}
	write(t, "out/config.yaml", strings.Replace(config, line, "", 1))
	must(t, "mappo", "--resume", "out", "--set", "train.checkpoint_minutes=0.5")
	sameRun(t, "whole", "out")
}

// TestResumeOfAFinishedRun prints its summary again and changes nothing.
func TestResumeOfAFinishedRun(t *testing.T) {
	work(t, "qwen2-newer")
	first := must(t, tinyMappo(3)...)
	if err := os.CopyFS("copy", os.DirFS("out")); err != nil {
		t.Fatal(err)
	}
	if again := must(t, "mappo", "--resume", "out"); again.out != first.out {
		t.Errorf("summary %q, then %q", first.out, again.out)
	}
	sameRun(t, "copy", "out")
}

// TestResumeSaysWhatChanged: a run continues with another base model and another version of the program, and says so.
func TestResumeSaysWhatChanged(t *testing.T) {
	work(t, "qwen2-newer")
	must(t, tinyMappo(2)...)
	manifest := strings.TrimSuffix(strings.TrimSpace(read(t, "out/manifest.json")), "}")
	write(t, "out/manifest.json", manifest+`, "version": "v0.0.1"}`)
	path := filepath.Join("model", "config.json")
	write(t, path, read(t, path)+"\n")
	o := must(t, "mappo", "--resume", "out", "--quiet")
	for _, want := range []string{"warning: since the run was started: model/config.json: its SHA-256 begins with ",
		"warning: since the run was started: the program's version is "} {
		if !strings.Contains(o.err, want) || strings.Count(o.err, "\n") != 2 {
			t.Errorf("standard error %q, want %q", o.err, want)
		}
	}
}

// TestNaNKeepsTheLastGoodCheckpoint: the rate explodes in the second step. Checkpoint 1 holds good weights; checkpoint
// 2 holds those that gave the NaN, and is not recommended.
func TestNaNKeepsTheLastGoodCheckpoint(t *testing.T) {
	work(t, "llama-newer")
	o := cli(t, tinyMappo(6, "--set", "train.learning_rate=1e30", "--set", "train.warmup_steps=1", "--set",
		"train.checkpoint_every=1")...)
	checkRefusal(t, o, faultCase{code: 1, says: []string{"step 3: the ", " is NaN in the batch of rows pairs.jsonl:",
		"the last good checkpoint is out/checkpoints/step-00000001"}})
	must(t, "model", "info", "out/checkpoints/step-00000001/model")
	again := must(t, tinyMappo(2, "--model", "out/checkpoints/step-00000001/model", "--out", "again")...)
	if !strings.Contains(again.out, "2 steps") {
		t.Errorf("summary %q", again.out)
	}
	if exists("out/model") || exists("out/summary.txt") {
		t.Error("a failed run has a model or a summary")
	}
	rows := regexp.MustCompile(`rows pairs\.jsonl:\d+(, \d+){3}: lower`)
	if !rows.MatchString(o.last()) {
		t.Errorf("%q does not name the four rows of the batch", o.last())
	}
}

// TestNoModelOfInfinity: the only step of a run makes weights of infinity, which are not saved. A rate of 1e6 breaks the
// model, and the run says so where its loss is a number no more.
func TestNoModelOfInfinity(t *testing.T) {
	for rate, says := range map[string][]string{
		"1e39": {"checkpoint not saved: out/checkpoints/step-00000001: tensor ", "not finite"},
		"1e6":  {"step ", " is NaN in the batch of rows pairs.jsonl:", "lower train.learning_rate"},
	} {
		work(t, "qwen2-newer")
		steps := map[string]int{"1e39": 1, "1e6": 30}[rate]
		checkRefusal(t, cli(t, tinyMappo(steps, "--set", "train.learning_rate="+rate, "--set", "train.warmup_steps=0")...),
			faultCase{code: 1, says: says})
		if exists("out/model") || exists("out/best.json") {
			t.Errorf("rate %s: a failed run has a model", rate)
		}
	}
}

// TestDamagedCheckpointIsPassedOver: a resumed run warns, continues from the one before, and ends like a whole one.
func TestDamagedCheckpointIsPassedOver(t *testing.T) {
	work(t, "qwen2-newer")
	args := tinyMappo(6, "--set", "train.checkpoint_every=2")
	must(t, append(args, "--out", "whole")...)
	if o := cliUntil(t, "step 4/6", args...); o.code != exitInterrupted {
		t.Fatalf("exit code %d: %s", o.code, o.err)
	}
	path := filepath.Join("out", "checkpoints", "step-00000004", "model", "model.safetensors")
	write(t, path, read(t, path)[:1000])
	o := must(t, "mappo", "--resume", "out", "--quiet")
	if want := "warning: checkpoint of step 4 skipped: " + path; !strings.HasPrefix(o.err, want) ||
		strings.Count(o.err, "\n") != 1 {
		t.Errorf("standard error %q, want a line %q…", o.err, want)
	}
	sameRun(t, "whole", "out")
}

// TestResumeWithoutAnyGoodCheckpoint: that run is lost, and the message says why.
func TestResumeWithoutAnyGoodCheckpoint(t *testing.T) {
	work(t, "qwen2-newer")
	must(t, tinyMappo(1)...)
	path := "out/checkpoints/step-00000001/first_moments.safetensors"
	write(t, path, "")
	checkRefusal(t, cli(t, "mappo", "--resume", "out"), faultCase{code: 1, says: []string{"out/checkpoints",
		"no usable checkpoint", path}})
}

// TestResumeWithChangedData: the rows that the run was started with are part of the run, with a reference or without,
// and so are their scores.
func TestResumeWithChangedData(t *testing.T) {
	rows := pairLines(12, true)
	answer := strings.Replace(rows, "in box 4.", "in box 5.", 1)
	score := strings.Replace(rows, `"chosen_score":0.88`, `"chosen_score":0.87`, 1)
	for _, c := range []struct{ name, loss, rows string }{
		{"an answer", "dpo", answer}, {"an answer, no reference", "simpo", answer}, {"a score", "dpo", score},
	} {
		t.Run(c.name, func(t *testing.T) {
			work(t, "qwen2-newer")
			must(t, tinyMappo(1, "--loss", c.loss)...)
			write(t, "pairs.jsonl", c.rows)
			checkRefusal(t, cli(t, "mappo", "--resume", "out"), faultCase{code: 1, says: []string{"out", "data",
				"since the run was started", "start a new run with --out"}})
		})
	}
}

// TestResumeOfADamagedFolder: without a file or a folder of a run, with half of a file, or with another run's, it is
// continued, or ends in one line.
func TestResumeOfADamagedFolder(t *testing.T) {
	work(t, "qwen2-newer")
	args := tinyMappo(6, "--set", "train.checkpoint_every=2", "--set", "train.eval_every=2", "--set", "data.eval_fraction=0.3")
	if o := cliUntil(t, "step 4/6", args...); o.code != exitInterrupted {
		t.Fatalf("exit code %d: %s", o.code, o.err)
	}
	must(t, tinyMappo(4, "--set", "train.checkpoint_every=2", "--set", "train.eval_every=2", "--set", "data.eval_fraction=0.3",
		"--out", "other")...)
	for path, damage := range damages(t, "out", "other") {
		t.Run(path, func(t *testing.T) {
			if err := os.CopyFS("copy", os.DirFS("out")); err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll("copy")
			damage(t)
			o := cli(t, "mappo", "--resume", "copy", "--quiet")
			last := o.err[strings.LastIndex(strings.TrimSuffix(o.err, "\n"), "\n")+1:]
			if o.code != 0 && (!strings.HasPrefix(last, "posttrain: ") || strings.Contains(last, "internal error")) {
				t.Errorf("exit code %d: %s", o.code, o.err)
			}
		})
	}
}

// damages are what may happen to the files and folders of a run's copy.
func damages(t *testing.T, run, other string) map[string]func(t *testing.T) {
	all := map[string]func(t *testing.T){}
	err := filepath.WalkDir(run, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(run, path)
		if err != nil || name == "." || name == "lock" {
			return err
		}
		at := filepath.Join("copy", name)
		all["without "+name] = func(*testing.T) { os.RemoveAll(at) }
		if entry.IsDir() {
			return nil
		}
		text := read(t, path)
		all["half of "+name] = func(t *testing.T) { write(t, at, text[:len(text)/2]) }
		theirs, err := os.ReadFile(filepath.Join(other, name))
		if err == nil && strings.Contains(name, ".json") {
			all["another's "+name] = func(t *testing.T) { write(t, at, string(theirs)) }
		}
		return nil
	})
	if err != nil || len(all) < 30 {
		t.Fatalf("%d damages, %v", len(all), err)
	}
	return all
}

// TestResumeInUse: two processes never train into one folder.
func TestResumeInUse(t *testing.T) {
	work(t, "qwen2-newer")
	must(t, tinyMappo(1)...)
	f, err := run.Open("out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	checkRefusal(t, cli(t, "mappo", "--resume", "out"), faultCase{code: 1, says: []string{"out is in use by process",
		"wait for it to end"}})
}

// killOnce runs a command in a process of its own, and kills it when reached is closed.
func killOnce(t *testing.T, reached <-chan struct{}, args []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVar+"=nothing is refused")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-reached:
		_ = cmd.Process.Kill()
		<-ended
	case err := <-ended:
		t.Errorf("it ended by itself: %v", err)
	}
}

// killedAt runs a command that asks a server, kills it while its nth question is under way, and runs it again. It gives
// the questions in their order.
func killedAt(t *testing.T, n int, reply func(string) string, command func(url string) []string) (order []string) {
	t.Helper()
	if child == nil {
		need.Lack(t, "linux", "no processes of the test binary on this system")
	}
	var mu sync.Mutex
	reached, dead := make(chan struct{}), make(chan struct{})
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: reply, Watch: func(prompt string) {
		mu.Lock()
		order = append(order, prompt)
		asked := len(order)
		mu.Unlock()
		if asked == n {
			close(reached)
			<-dead
		}
	}})
	args := command(s.URL)
	killOnce(t, reached, args)
	close(dead)
	must(t, args...)
	return order
}
