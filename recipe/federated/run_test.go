package federated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
)

// load reads a simulation from keys and values.
func load(t *testing.T, sets ...string) Simulation {
	t.Helper()
	s := expect.Must(Spec.Load(config.Input{Overrides: testkit.Overrides(t, sets...)}))(t)
	return *s
}

// tiny is a small simulation of a method on cartpole, in a new folder.
func tiny(t *testing.T, method string, sets ...string) Simulation {
	t.Helper()
	limit := "rounds=5"
	if protocol.Asynchronous(method) {
		limit = "updates=12"
	}
	s := load(t, append([]string{"method=" + method, limit, "agents=3", "control.steps=40", "control.hidden=[4]",
		"control.critic.epochs=1", "clock.times=1,2,3", "compare=none", "checkpoint_every=3"}, sets...)...)
	s.Dir.Out = filepath.Join(t.TempDir(), "run")
	return s
}

// stopper is a reporter whose bars stop the run at a step.
type stopper struct {
	run.Reporter
	at   int
	stop func()
}

func (s *stopper) Progress(unit string, start, total int) run.Bar {
	if s.at == 0 {
		s.stop()
	}
	return &stopperBar{s.Reporter.Progress(unit, start, total), s}
}

type stopperBar struct {
	run.Bar
	s *stopper
}

func (b *stopperBar) Step(done int, values map[string]float64) {
	if b.Bar.Step(done, values); done >= b.s.at {
		b.s.stop()
	}
}

// contentsOf are the contents of a run's files that must not depend on when it was interrupted.
func contentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"metrics.jsonl", "model/" + policyName, "config.yaml", "summary.json"} {
		b := expect.Bytes(t, filepath.Join(dir, name))
		out[name] = string(b)
	}
	last, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*", stateName))
	if err != nil || len(last) == 0 {
		t.Fatalf("%v, %v", last, err)
	}
	b := expect.Read(t, last[len(last)-1])
	out[stateName] = b
	return out
}

// The same seed gives the same bits, and so does a run that is interrupted at any step and resumed; another seed gives
// others.
func TestResumed(t *testing.T) {
	for _, method := range protocol.Methods() {
		whole := tiny(t, method)
		expect.Must(Run(t.Context(), whole, nil))(t)
		want := contentsOf(t, whole.Dir.Out)
		stops := []int{3}
		if method == protocol.AFedPG || method == protocol.FedNPGADMM {
			stops = []int{0, 3}
		}
		for _, at := range stops {
			s := tiny(t, method)
			ctx, stop := context.WithCancel(t.Context())
			_, err := Run(ctx, s, &stopper{run.Listen(nil), at, stop})
			if stopped := new(recipe.Stopped); !errors.As(err, &stopped) || stopped.Dir != s.Dir.Out {
				t.Fatalf("%s: interrupted at %d: %v", method, at, err)
			}
			s.Dir = recipe.RunDir{Resume: s.Dir.Out}
			expect.Must(Run(t.Context(), s, nil))(t)
			for name, text := range contentsOf(t, s.Dir.Resume) {
				if text != want[name] {
					t.Errorf("%s, interrupted at %d: another %s", method, at, name)
				}
			}
		}
	}
	other := tiny(t, protocol.AFedPG, "seed=1")
	expect.Must(Run(t.Context(), other, nil))(t)
	first := tiny(t, protocol.AFedPG)
	expect.Must(Run(t.Context(), first, nil))(t)
	if contentsOf(t, first.Dir.Out)["metrics.jsonl"] == contentsOf(t, other.Dir.Out)["metrics.jsonl"] {
		t.Error("another seed gives the same run")
	}
}

// A checkpoint that is lost or damaged is replaced by the one before it, with the same end.
func TestDamagedCheckpoint(t *testing.T) {
	s := tiny(t, protocol.FedNPGADMM, "checkpoint_every=1", "checkpoint_keep=3")
	expect.Must(Run(t.Context(), s, nil))(t)
	want := contentsOf(t, s.Dir.Out)
	last := filepath.Join(s.Dir.Out, "checkpoints", "step-00000005", stateName)
	expect.OK(t, os.Truncate(last, 100))
	s.Dir = recipe.RunDir{Resume: s.Dir.Out}
	expect.Must(Run(t.Context(), s, nil))(t)
	for name, text := range contentsOf(t, s.Dir.Resume) {
		if text != want[name] {
			t.Errorf("another %s", name)
		}
	}
}

// TestPayload: the bytes of every agent in metrics.jsonl are as the formulas say, at every version.
func TestPayload(t *testing.T) {
	for _, method := range protocol.Methods() {
		for _, kind := range []string{"float32", "float64"} {
			sets := []string{"wire=" + kind}
			if method == protocol.FedNPGADMM && kind == "float32" {
				sets = append(sets, "line_search=on")
			}
			if method == protocol.FedNPG {
				sets = append(sets, "line_search=off", "cg.iters=3") // fewer than it takes to converge
			}
			s := tiny(t, method, sets...)
			expect.Must(Run(t.Context(), s, nil))(t)
			records, err := run.ReadMetrics(filepath.Join(s.Dir.Out, "metrics.jsonl"))
			if err != nil || len(records) == 0 {
				t.Fatal(err)
			}
			if records[len(records)-1].Values["refused"] > 0 {
				t.Fatalf("%s: rounds or updates were refused: want other sizes for this test", method)
			}
			checkPayload(t, &s, records)
		}
	}
}

func parameters(t *testing.T, s *Simulation) int {
	t.Helper()
	task := expect.Must(s.task())(t)
	return len(task.Start())
}

// checkPayload compares each record with the formula of the method. A record is made when a version is complete, and
// before the tasks for the next one are sent, so an asynchronous agent has been sent as much as it has sent, and its
// task.
func checkPayload(t *testing.T, s *Simulation, records []run.Record) {
	t.Helper()
	per := federated.OneVector(parameters(t, s))
	switch s.Method {
	case protocol.FedNPGADMM:
		per = federated.FedNPGADMM(parameters(t, s), 1, *s.LineSearch == "on")
	case protocol.FedNPG:
		per = federated.FedNPGProducts(parameters(t, s), 3)
	}
	bytes := per.Bytes(s.Width())
	for _, r := range records {
		sent := int64(0)
		for i := range s.Agents {
			up := int64(r.Values[fmt.Sprintf("bytes_up/%d", i)])
			down := int64(r.Values[fmt.Sprintf("bytes_down/%d", i)])
			open := int64(0) // the task that it works on
			if protocol.Asynchronous(s.Method) {
				open = down - up
				if open != 0 && open != bytes.Down || up%bytes.Up != 0 {
					t.Fatalf("%s %s, version %d, agent %d: %d up, %d down: want multiples of %d, at most one more down",
						s.Method, s.Wire, r.Step, i, up, down, bytes.Up)
				}
			} else if up != int64(r.Step)*bytes.Up || down != int64(r.Step)*bytes.Down {
				t.Fatalf("%s %s, round %d, agent %d: %d up, %d down: want %d and %d a round", s.Method, s.Wire,
					r.Step, i,
					up, down, bytes.Up, bytes.Down)
			}
			sent += up
		}
		if protocol.Asynchronous(s.Method) && sent != int64(r.Step)*bytes.Up {
			t.Fatalf("%s, version %d: %d bytes up, want %d an update", s.Method, r.Step, sent, bytes.Up)
		}
	}
}

// TestCompare: a run with a comparison has both in its table, on equally many samples, and the virtual time that the
// formula says.
func TestCompare(t *testing.T) {
	s := tiny(t, protocol.AFedPG, "compare=fedpg", "updates=120", "control.steps=5")
	result := expect.Must(Run(t.Context(), s, nil))(t)
	a, b := result.Sides[0], result.Sides[1]
	if a.Samples != 600 || b.Samples != 600 || b.Time != 120 || a.Time < 64 || a.Time > 67 {
		t.Errorf("%+v, %+v", a, b)
	}
	for _, want := range []string{"afedpg on control/cartpole", "fedpg ", "1.8", "t_max/(N·t̄) is 1.83", "Policy: "} {
		if !strings.Contains(result.Summary, want) {
			t.Errorf("%q is not in\n%s", want, result.Summary)
		}
	}
	for _, name := range []string{"curves.png", "summary.txt", "summary.json", "compare.jsonl"} {
		if _, err := os.Stat(filepath.Join(result.Dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestSeeds: each seed's run equals that run alone, an interruption in the second run resumes with the same end, and
// the table has the mean of the seeds, and of the differences, with Student's interval (t is 12.706 for two).
func TestSeeds(t *testing.T) {
	sets := []string{"seeds=2", "seed=3", "compare=fedpg", "updates=30"}
	whole := tiny(t, protocol.AFedPG, sets...)
	result := expect.Must(Run(t.Context(), whole, nil))(t)
	single := tiny(t, protocol.AFedPG, "seed=4", "compare=fedpg", "updates=30")
	one := expect.Must(Run(t.Context(), single, nil))(t)
	want, got := contentsOf(t, single.Dir.Out), contentsOf(t, filepath.Join(whole.Dir.Out, "seed-4"))
	if want["metrics.jsonl"] != got["metrics.jsonl"] {
		t.Error("another run of seed 4")
	}
	stopped := tiny(t, protocol.AFedPG, sets...)
	ctx, stop := context.WithCancel(t.Context())
	s := &stopper{run.Listen(nil), math.MaxInt, stop}
	if _, err := Run(ctx, stopped, &seedStopper{s, 0}); !errors.Is(err, recipe.ErrInterrupted) ||
		!strings.Contains(err.Error(), "in run 2 of 2, ") {
		t.Errorf("interrupted: %v", err)
	}
	stopped.Dir = recipe.RunDir{Resume: stopped.Dir.Out}
	again := expect.Must(Run(t.Context(), stopped, nil))(t)
	if want := strings.ReplaceAll(result.Summary, result.Dir, again.Dir); again.Summary != want {
		t.Errorf("resumed:\n%s\nwant\n%s", again.Summary, want)
	}
	text := expect.Bytes(t, filepath.Join(result.Dir, "summary.json"))
	var file struct{ Methods []seeded }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Methods) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	a, b := file.Methods[0].Return, file.Methods[1].Return
	half := 12.7062047 * math.Abs(a.Each[0]-a.Each[1]) / 2
	if a.Each[1] != one.Sides[0].Return.Mean || math.Abs(*a.Mean-(a.Each[0]+a.Each[1])/2) > 1e-9 ||
		math.Abs(a.Half-half) > 1e-6*half {
		t.Errorf("%+v, want %v ± %v", a, one.Sides[0].Return, half)
	}
	difference := run.Interval(form(*a.Mean, "+"), []float64{a.Each[0] - b.Each[0], a.Each[1] - b.Each[1]})
	if want := "afedpg less fedpg, by seed: " + difference; !strings.Contains(result.Summary, want) {
		t.Errorf("%q is not in\n%s", want, result.Summary)
	}
}

// TestSeedsWithoutEpisodes: a seed in which no episode ended has no return; it is not 0.
func TestSeedsWithoutEpisodes(t *testing.T) {
	sides := []Side{{Return: Spread{Mean: 10, Count: 2}}, {}, {Return: Spread{Mean: 30, Count: 1}}}
	m := meanOf(sides, func(s Side) Spread { return s.Return })
	if want := "20.0 ± 127.1 (2 of 3 seeds: no episode ended in the others)"; m.text("", m.Mean, 3) != want {
		t.Errorf("%+v: %s", m, m.text("", m.Mean, 3))
	}
	short := tiny(t, protocol.AFedPG, "seeds=2", "compare=fedpg", "updates=4", "control.steps=4")
	result := expect.Must(Run(t.Context(), short, nil))(t)
	if n := strings.Count(result.Summary, "no episode ended\n"); n != 3 {
		t.Errorf("%d returns are missing, want two and their difference:\n%s", n, result.Summary)
	}
	text, err := os.ReadFile(filepath.Join(result.Dir, "summary.json"))
	if !strings.Contains(string(text), `"mean": null`) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestBandsOfUnlikeSeeds: a seed in which no step was made has no KL, and its bytes are not the others' KL.
func TestBandsOfUnlikeSeeds(t *testing.T) {
	var of []Side
	for _, values := range []map[string]float64{{"kl": 0.01}, {}} {
		values["return"], values["bytes_up/0"] = 1, 2e6
		of = append(of, Side{Method: protocol.FedNPG, records: []run.Record{{Values: values}}})
	}
	var s Simulation
	s.Agents = 1
	want := map[string]float64{"mean return": 1, "KL of the step": 0.01, "MB sent, up and down": 2}
	drawn := s.bands([][]Side{of})
	for _, p := range drawn {
		if y := p.Lines[0].Y; len(y) != 1 || y[0] != want[p.Label] {
			t.Errorf("%s: %v, want %v", p.Label, y, want[p.Label])
		}
	}
	if len(drawn) != 4 {
		t.Errorf("%d panels, want 4", len(drawn))
	}
}

// seedStopper interrupts the third bar, which the second seed's run has.
type seedStopper struct {
	*stopper
	bars int
}

func (s *seedStopper) Progress(unit string, start, total int) run.Bar {
	if s.bars++; s.bars == 3 {
		s.at = 5
	}
	return s.stopper.Progress(unit, start, total)
}

// TestComparedEntropy: the method that is compared has its own weight of the entropy, unless another one was chosen for
// both.
func TestComparedEntropy(t *testing.T) {
	compared := func(sets ...string) string {
		result := expect.Must(Run(t.Context(), tiny(t, protocol.AFedPG, append(sets, "compare=a3c")...), nil))(t)
		return expect.Read(t, filepath.Join(result.Dir, compareName))
	}
	if compared() == compared("control.entropy=1e-300") {
		t.Error("a3c is compared without its entropy")
	}
}

// Every method's options survive being written, and are explained; options of other methods are refused.
func TestOptions(t *testing.T) {
	for _, method := range protocol.Methods() {
		s := load(t, "method="+method)
		again, err := Spec.Parse("a.yaml", Spec.Resolve(&s), config.Input{})
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		if string(Spec.Resolve(again)) != string(Spec.Resolve(&s)) {
			t.Errorf("%s: %s", method, Spec.Resolve(again))
		}
		text := s.Explain()
		if !strings.HasPrefix(text, "objective: ") || !strings.Contains(text, "\ntraining: ends after ") ||
			strings.ContainsAny(text, "{<") || strings.Contains(text, "0x") || strings.Contains(text, "\n\n") {
			t.Errorf("%s: %s", method, text)
		}
	}
	for _, sets := range [][]string{{"schedule=global"}, {"method=fednpg-admm", "step=fixed"}, {"workload=quadratic"}} {
		s := load(t, sets...)
		if again, err := Spec.Parse("a.yaml", Spec.Resolve(&s), config.Input{}); err != nil ||
			string(Spec.Resolve(again)) != string(Spec.Resolve(&s)) {
			t.Errorf("%v: %v", sets, err)
		}
	}
}

// Times on the command line win over a ratio in the file, and not the other way round.
func TestClockOfTheCommandLine(t *testing.T) {
	parse := func(file, set string) (*Simulation, error) {
		return Spec.Parse("a.yaml", []byte("command: federated simulate\nagents: 3\nclock: "+file+"\n"),
			config.Input{Overrides: testkit.Overrides(t, set)})
	}
	if s, err := parse("{ratio: 3}", "clock.times=1,2,5"); err != nil || !slices.Equal(s.times(), []float64{1, 2, 5}) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parse("{}", "clock.ratio=9"); err != nil || !slices.Equal(s.times(), []float64{1, 3, 9}) {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := parse("{times: [1, 2, 5]}", "clock.ratio=9"); err == nil || !strings.Contains(err.Error(), "remove one") {
		t.Error(err)
	}
}

// TestMethodOfTheCommandLine: every released config runs with every method that its workload has; what its own method
// alone uses is named in one line. Keys that do not fit the file's own method, or that the command line gives, are faults.
func TestMethodOfTheCommandLine(t *testing.T) {
	for _, name := range []string{"federated", "federated-admm", "federated-ci-rl", "federated-mappo"} {
		_, text := configs.Read(name + ".yaml")
		for _, method := range protocol.Methods() {
			s, err := Spec.Parse(name, text, config.Input{Overrides: testkit.Overrides(t, "method="+method)})
			if name == "federated-mappo" && !slices.Contains(pairMethods, method) {
				if err == nil || strings.Contains(err.Error(), "does not use") {
					t.Errorf("%s, %s: %v", name, method, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, %s: %v", name, method, err)
				continue
			}
			own := method == protocol.FedNPGADMM
			if name != "federated-admm" {
				own = method == protocol.AFedPG || method == protocol.Vanilla // which have the same keys
			}
			if own != (s.ignored == nil) {
				t.Errorf("%s, %s: without effect: %v", name, method, s.ignored)
			}
			var said strings.Builder
			s.sayIgnored(run.NewReporter(&said, false, false))
			if lines := strings.Count(said.String(), "\n"); lines > 1 || own != (lines == 0) {
				t.Errorf("%s, %s: %s", name, method, &said)
			}
		}
	}
	for file, set := range map[string]string{"method: a3c\nalpha: 0.1": "method=a3c", "alpha: 0.1\nrho: 1": "seed=1",
		"rho: 1": "method=afedpg", "alpha: 0.1": "alpha=0.2 method=a3c"} {
		_, err := Spec.Parse("a.yaml", []byte("command: federated simulate\n"+file+"\n"),
			config.Input{Overrides: testkit.Overrides(t, strings.Fields(set)...)})
		if err == nil || !strings.Contains(err.Error(), "does not use it") {
			t.Errorf("%s, %s: %v", file, set, err)
		}
	}
}

// TestInterruptedAtOnce: Ctrl-C also ends a simulation that is making its agents, and leaves no folder.
func TestInterruptedAtOnce(t *testing.T) {
	s := tiny(t, protocol.AFedPG)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Run(ctx, s, nil); !errors.Is(err, recipe.ErrInterrupted) {
		t.Errorf("error %v, want an interruption", err)
	}
	if _, err := os.Stat(s.Dir.Out); err == nil {
		t.Error("a run folder was made")
	}
}

// TestInterruptedFirst: Ctrl-C before the first version does not wait for the agents' work, which takes an hour here.
func TestInterruptedFirst(t *testing.T) {
	for _, method := range []string{protocol.AFedPG, protocol.FedPG} {
		s := load(t, "method="+method, "workload=quadratic", "quadratic.size=3", "quadratic.pause=1h")
		s.Dir.Out = filepath.Join(t.TempDir(), "run")
		ctx, stop := context.WithCancel(t.Context())
		_, err := Run(ctx, s, &stopper{run.Listen(nil), 0, stop})
		if stopped := new(recipe.Stopped); !errors.As(err, &stopped) || stopped.Where != "before the first "+s.unit() {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestTheoremExplained: with the theorem's constants, step fixed has its length, and --explain its numbers.
func TestTheoremExplained(t *testing.T) {
	sets := []string{"method=fednpg-admm", "step=fixed", "theorem.g=2", "theorem.mu=0.5", "theorem.l=76", "theorem.gap=10",
		"theorem.epsilon=0.01"}
	s := load(t, sets...)
	for _, want := range []string{"θ ← θ + 5.208333333333334e-05·y", "= 5.20833e-05; along", "0.01 after 87771429 rounds",
		"along directions from samples: 1.226e+08 rounds, (10·(56G² + L)²·16G²"} {
		if text := s.Explain(); !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if s = load(t, append(sets, "eta=0.5")...); *s.Eta != 0.5 {
		t.Errorf("η %v", *s.Eta)
	}
	for set, want := range map[string]string{"step=trust": "want step fixed", "theorem.mu=5": "mu at most g²",
		"theorem.l=": "l above 0", "method=fedavg": "want step fixed"} {
		all := slices.DeleteFunc(append(slices.Clone(sets), set), func(s string) bool {
			return set == "method=fedavg" && (strings.HasPrefix(s, "step") || s == sets[0])
		})
		_, err := Spec.Load(config.Input{Overrides: testkit.Overrides(t, all...)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
}

// TestExplainNamesTheRule: AFedPG's title and its letter's departures describe the step that the server makes.
func TestExplainNamesTheRule(t *testing.T) {
	const adamw, own = "afedpg with AdamW at the server", "with momentum and lookahead at the server"
	for _, c := range []struct {
		sets         []string
		want, hidden string
	}{
		{[]string{"workload=ci-rl"}, adamw, own},
		{[]string{"workload=ci-rl", "rule=normalized"}, own, "AdamW at the server"},
		{nil, own, "rule: adamw (paper"},
		{[]string{"workload=ci-rl", "method=fedpg"}, "rule: adamw (paper: normalized)", titles[protocol.FedPG]},
	} {
		s := load(t, c.sets...)
		if text := s.Explain(); !strings.Contains(text, c.want) || strings.Contains(text, c.hidden) {
			t.Errorf("%v: %s\nwant %q and not %q", c.sets, text, c.want, c.hidden)
		}
	}
}
