package federated

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/rollout/local"
)

// tinyCIRL is a quick run of testkit.CIModel on its 24 items, which are written into dir.
func tinyCIRL(t *testing.T, dir, method string, sets ...string) Simulation {
	t.Helper()
	items := filepath.Join(dir, "items.json")
	expect.OK(t, data.WriteAll(items, ci.Synthesize(24, 5)))
	limit := "rounds=2"
	if protocol.Asynchronous(method) {
		limit = "updates=2"
	}
	s := load(t, append([]string{"method=" + method, "workload=ci-rl", limit, "agents=2", "clock.times=1,2.5",
		"seed=3", "ci_rl.model=" + testkit.CIModel(), "ci_rl.data.train=" + items, "ci_rl.data.scenarios=0",
		"ci_rl.data.prompt=compact", "ci_rl.data.max_prompt_tokens=256", "ci_rl.grpo.prompts_per_step=2",
		"ci_rl.grpo.group_size=4", "ci_rl.sampling.max_new_tokens=32", "checkpoint_every=1"}, sets...)...)
	s.Dir.Out = filepath.Join(dir, method)
	return s
}

// TestSimulateCIRL: agents move the model by what rewards say; a run that is interrupted and resumed ends with the same
// bits; what it leaves is a model folder with other weights than it began with.
func TestSimulateCIRL(t *testing.T) {
	dir := t.TempDir()
	whole := tinyCIRL(t, dir, protocol.AFedPG, "ci_rl.split=dirichlet")
	result := expect.Must(Run(t.Context(), whole, nil))(t)
	if !strings.Contains(result.Summary, "afedpg on ci-rl/") ||
		!strings.Contains(result.Summary, "Policy: "+filepath.Join(whole.Dir.Out, run.ModelName)) {
		t.Errorf("summary:\n%s", result.Summary)
	}
	records, err := (&run.Folder{Dir: whole.Dir.Out}).ReadMetrics()
	if err != nil || records[0].Values["eval_count"] != 1 || math.Abs(records[0].Values["eval_reward"]) > 1 ||
		!strings.Contains(result.Summary, "\nValidation on agents' own items: complete ") {
		t.Errorf("%v, %v, summary:\n%s", err, records[0].Values, result.Summary)
	}
	after := hashOf(t, filepath.Join(whole.Dir.Out, run.ModelName))
	if after == hashOf(t, whole.CIRL.Model) {
		t.Error("the weights have not moved")
	}

	broken := whole
	broken.Dir.Out = filepath.Join(dir, "broken")
	ctx, stop := context.WithCancel(t.Context())
	if _, err := Run(ctx, broken, &stopper{run.Listen(nil), 1, stop}); err == nil {
		t.Fatal("the run was not interrupted")
	}
	broken.Dir = recipe.RunDir{Resume: broken.Dir.Out}
	expect.Must(Run(t.Context(), broken, nil))(t)
	if hashOf(t, filepath.Join(broken.Dir.Resume, run.ModelName)) != after {
		t.Error("the interrupted run has other weights")
	}
}

// hashOf is the hash of a model folder's weights.
func hashOf(t *testing.T, dir string) string {
	t.Helper()
	m, _, err := local.Load(dir)
	expect.OK(t, err)
	defer m.Release()
	return expect.Must(m.Hash())(t)
}

// TestOneAgentIsCIRL: with AdamW at the server and one agent, the run gives the model that posttrain ci-rl gives, bit
// for bit.
func TestOneAgentIsCIRL(t *testing.T) {
	dir := t.TempDir()
	s := tinyCIRL(t, dir, protocol.FedPG, "agents=1", "clock.times=1", "rule=adamw", "lr=1e-3", "adamw.warmup_steps=1",
		"ci_rl.data.test_fraction=0")
	expect.Must(Run(t.Context(), s, nil))(t)
	overrides := testkit.Overrides(t, "model="+testkit.CIModel(), "seed=3", "data.train="+filepath.Join(dir,
		"items.json"), "data.prompt=compact", "data.validation_fraction=0.04", "data.test_fraction=0", "grpo.prompts_per_step=2",
		"grpo.group_size=4", "grpo.kl=none", "sampling.max_new_tokens=32", "data.max_prompt_tokens=256",
		"train.max_steps=2", "train.learning_rate=1e-3", "train.warmup_steps=1", "validation.every=0",
		"data.scenarios=0")
	o := expect.Must(rl.CISpec.Load(config.Input{Overrides: overrides}))(t)
	o.Dir.Out = filepath.Join(dir, "ci-rl")
	expect.Must(rl.RunCI(t.Context(), *o, nil))(t)
	last := filepath.Join(o.Dir.Out, "checkpoints", "step-00000002", "model")
	if hashOf(t, last) != hashOf(t, filepath.Join(s.Dir.Out, run.ModelName)) {
		t.Error("the weights differ from those of ci-rl after step 2")
	}
}

// TestMethodsOnCIRL: every method makes its rounds or updates on testkit.CIModel, moves it, and leaves a model
// folder. A method that waits for a trust region may refuse a step, which counts.
func TestMethodsOnCIRL(t *testing.T) {
	start := hashOf(t, testkit.CIModel())
	for method, sets := range map[string][]string{
		protocol.FedNPGADMM: {"ci_rl.memory_gb=1"}, protocol.FedNPG: {"cg.iters=2", "ci_rl.memory_gb=1"},
		protocol.FedPG: {"rule=normalized"}, protocol.Vanilla: nil, protocol.A3C: nil, protocol.FedPPO: {"local.epochs=1"},
		protocol.FedAvg: {"local.epochs=1"},
	} {
		limit := "rounds=1"
		if protocol.Asynchronous(method) {
			limit = "updates=2"
		}
		s := tinyCIRL(t, t.TempDir(), method, append(sets, limit, "ci_rl.validation.every=0",
			"ci_rl.grpo.prompts_per_step=1")...)
		result, err := Run(t.Context(), s, nil)
		if err != nil {
			t.Errorf("%s: %v", method, err)
			continue
		}
		moved := hashOf(t, filepath.Join(s.Dir.Out, run.ModelName)) != start
		if side := result.Sides[0]; !moved && side.Refused == 0 || side.Up == 0 || side.Samples == 0 {
			t.Errorf("%s: the model has moved: %v; %+v", method, moved, side)
		}
	}
}

// TestFaultsOfCIRL: each has one line.
func TestFaultsOfCIRL(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want string
	}{
		{[]string{"ci_rl.model=m"}, `ci_rl.model "m": it is about the workload ci-rl, and workload is control`},
		{[]string{"workload=ci-rl", "control.steps=9"}, "control.steps 9: it is about the workload control"},
		{[]string{"workload=ci-rl", "ci_rl.validation.every=0", "ci_rl.validation.temperature=1"},
			"ci_rl.validation.temperature 1: ci_rl.validation.every 0 asks for no validation; remove it"},
		{[]string{"workload=ci-rl", "ci_rl.dirichlet_alpha=1"}, "split equal does not use it"},
		{[]string{"workload=ci-rl", "ci_rl.sampling.temperature=0"}, "ci_rl.sampling.temperature 0: all completions"},
		{[]string{"workload=ci-rl", "ci_rl.memory_gb=1"}, "afedpg makes no natural gradients, only fednpg and"},
		{[]string{"workload=ci-rl", "ci_rl.grpo.updates_per_rollout=2"}, "unknown key"},
		{[]string{"workload=ci-rl", "method=fedavg", "local.entropy=1"}, "workload ci-rl has no such term"},
		{[]string{"rule=adamw", "alpha=0.1"}, "alpha 0.1: rule adamw does not use it; remove it"},
		{[]string{"rule=normalized", "adamw.beta1=0.1"}, "adamw.beta1 0.1: rule normalized does not use it; remove it"},
		{[]string{"method=fedavg", "rule=adamw"}, "fedavg does not use it"},
		{[]string{"workload=ci-rl", "method=fednpg-admm", "cg.iters=3"}, "cg.iters 3: workload ci-rl solves"},
		{[]string{"workload=ci-rl", "method=fedavg", "ci_rl.grpo.clip_low=0.1"}, "local training has local.clip; remove it"},
		{[]string{"method=fedppo", "control.entropy=0.01"}, "control.entropy 0.01: fedppo has local.entropy; remove it"},
		{[]string{"method=fedppo", "control.norm=trajectories"}, "control.norm trajectories: fedppo takes means over"},
		{[]string{"method=fedpg", "quorum=0.9"}, "quorum 0.9: rounds wait for all with deadline 0s"},
		{[]string{"method=fednpg", "step=fixed", "delta=0.1"}, "delta 0.1: step fixed has the length of eta; remove it"},
	} {
		_, err := Spec.Load(config.Input{Overrides: testkit.Overrides(t, c.sets...)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.sets, err, c.want)
		}
	}
	s := tinyCIRL(t, t.TempDir(), protocol.AFedPG, "agents=40", "clock.times=")
	if _, err := Run(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "items for 40 agents") {
		t.Errorf("more agents than items: %v", err)
	}
}

// TestOwnItems: an agent with a file has its items, all of them; another workload has no use for one.
func TestOwnItems(t *testing.T) {
	dir := t.TempDir()
	s, own := tinyCIRL(t, dir, protocol.AFedPG), filepath.Join(dir, "own.json")
	expect.OK(t, data.WriteAll(own, ci.Synthesize(5, 9)))
	w := &working{data: own}
	defer w.close()
	if _, _, err := w.build(1, string(agentSpec.Resolve(&s.Options))); err != nil {
		t.Fatal(err)
	}
	if n, held := len(w.world.owned[0]), len(w.world.heldBy[0]); n != 4 || held != 1 || len(w.world.owned) != 1 {
		t.Errorf("%d tasks and %d held out, want 4 and 1 of the 5 of the file", n, held)
	}
	plain := load(t)
	if _, _, err := (&working{data: own}).build(0, string(agentSpec.Resolve(&plain.Options))); err == nil ||
		!strings.Contains(err.Error(), "workload control has no data") {
		t.Errorf("a file for another workload: %v", err)
	}
}

// TestLeftOut: a run says how many items it has, and how many of their prompts are too long.
func TestLeftOut(t *testing.T) {
	dir := t.TempDir()
	open := func(sets ...string) (*items, string) {
		s, said := tinyCIRL(t, dir, protocol.AFedPG, sets...), &testkit.Recorder{}
		s.heard = said
		defer s.Close()
		expect.Must(s.NewWorkload(0))(t)
		return s.world.source.(*items), strings.Join(said.Said, "\n")
	}
	all, said := open()
	if !strings.Contains(said, " items to train on, ") || strings.Contains(said, "left out") {
		t.Errorf("said %q", said)
	}
	longest := 0
	for _, q := range slices.Concat(all.tasks, all.held) {
		longest = max(longest, len(q.Tokens))
	}
	fewer, said := open(fmt.Sprint("ci_rl.data.max_prompt_tokens=", longest-1))
	n := len(all.tasks) + len(all.held)
	want := fmt.Sprintf(": %d of %d prompts left out: ", n-len(fewer.tasks)-len(fewer.held), n)
	if !strings.Contains(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}

// TestExplainSaysWhatRuns: agents of ci-rl solve without conjugate gradient, and without GAE there is no critic.
func TestExplainSaysWhatRuns(t *testing.T) {
	s := tinyCIRL(t, t.TempDir(), protocol.FedNPGADMM)
	if text := s.Explain(); !strings.Contains(text, "solved by an equation for each completion; 1 step a round\n") ||
		strings.Contains(text, "conjugate") {
		t.Errorf("%s", text)
	}
	for returns, has := range map[string]bool{"gae": true, "causal": false} {
		s := load(t, "control.returns="+returns)
		if text := s.Explain(); strings.Contains(text, "a critic of its own") != has {
			t.Errorf("%s: %s", returns, text)
		}
	}
}

// TestAdapters: agents train A and B, and the result is an adapter. The run says once which engine auto took.
func TestAdapters(t *testing.T) {
	s := tinyCIRL(t, t.TempDir(), protocol.FedAvg, "rounds=1", "ci_rl.lora.rank=2", "local.epochs=1")
	said := &testkit.Recorder{}
	expect.Must(Run(t.Context(), s, said))(t)
	of := func(line string) bool { return strings.HasPrefix(line, "engine ") && strings.Contains(line, ": ") }
	if i := slices.IndexFunc(said.Said, of); i < 0 || slices.ContainsFunc(said.Said[i+1:], of) {
		t.Errorf("want one line with the engine and the reason: %q", said.Said)
	}
	base, _, err := local.Load(s.CIRL.Model)
	expect.OK(t, err)
	defer base.Release()
	m := expect.Must(base.LoadAdapter(filepath.Join(s.Dir.Out, run.AdapterName)))(t)
	moved := 0.0
	for _, p := range m.Trained() {
		if strings.Contains(p.Name, "lora_B") { // 0 at the start
			for _, x := range p.Data {
				moved += float64(x * x)
			}
		}
	}
	if moved == 0 {
		t.Error("the adapter has not moved")
	}
}
