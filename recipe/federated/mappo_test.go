package federated

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/preference"
)

// writePairs writes 12 scored pairs of three annotators, who have 6, 4 and 2.
func writePairs(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	for i := range 12 {
		who := "abc"[min(i/6+i/10, 2):][:1]
		fmt.Fprintf(&text, `{"prompt":"Q%d?","chosen":"yes %d, of course","rejected":"no","chosen_score":0.9,`+
			`"rejected_score":0.%d,"annotator":"%s"}`+"\n", i, i, i%5, who)
	}
	path := filepath.Join(dir, "pairs.jsonl")
	expect.Write(t, path, text.String())
	return path
}

// tinyMaPPO is a quick run of testkit.CIModel on 12 pairs.
func tinyMaPPO(t *testing.T, dir, method string, sets ...string) Simulation {
	t.Helper()
	limit := "rounds=3"
	if protocol.Asynchronous(method) {
		limit = "updates=4"
	}
	s := load(t, append([]string{"method=" + method, "workload=mappo", limit, "agents=2", "clock.times=1,2.5", "seed=3",
		"mappo.model=" + testkit.CIModel(), "mappo.data.train=" + writePairs(t, dir),
		"mappo.train.batch_size=3", "checkpoint_every=1"}, sets...)...)
	s.Dir.Out = filepath.Join(dir, method)
	return s
}

// TestOneAgentIsMaPPO: with AdamW at the server and one agent, the run gives the model that posttrain mappo gives, bit
// for bit, over more than an epoch, whose last batch is smaller.
func TestOneAgentIsMaPPO(t *testing.T) {
	for _, sets := range [][]string{nil, {"loss.type=ipo", "loss.prior=none", "loss.beta=0.2"}, {"loss.type=simpo"},
		{"lora.rank=2"}} {
		dir, federated := t.TempDir(), []string{"agents=1", "clock.times=1", "rule=adamw", "lr=1e-3", "rounds=6",
			"adamw.warmup_steps=2"}
		for _, set := range sets {
			federated = append(federated, "mappo."+set)
		}
		s := tinyMaPPO(t, dir, protocol.FedPG, federated...)
		expect.Must(Run(t.Context(), s, nil))(t)
		overrides := testkit.Overrides(t, append([]string{"model=" + testkit.CIModel(), "seed=3",
			"data.train=" + filepath.Join(dir, "pairs.jsonl"), "data.eval_fraction=0.2", "data.max_tokens=512",
			"train.batch_size=3", "train.max_steps=6", "train.learning_rate=1e-3", "train.warmup_steps=2", "train.schedule=constant"}, sets...)...)
		o := expect.Must(preference.Spec.Load(config.Input{Overrides: overrides}))(t)
		o.Dir.Out = filepath.Join(dir, "mappo")
		expect.Must(preference.Run(t.Context(), *o, nil))(t)
		name := run.ModelName
		if o.Adapting.On() {
			name = run.AdapterName
		}
		want := weightsOf(t, filepath.Join(o.Dir.Out, "checkpoints", "step-00000006", name))
		if weightsOf(t, filepath.Join(s.Dir.Out, name)) != want {
			t.Errorf("%v: the weights differ from those of mappo after step 6", sets)
		}
		card, err := os.ReadFile(filepath.Join(s.Dir.Out, name, recipe.CardName))
		if err != nil || !strings.Contains(string(card), "base_model: \"ci-model\"") ||
			!strings.Contains(string(card), "workload: mappo") {
			t.Errorf("%v: card %s, %v", sets, card, err)
		}
	}
}

// weightsOf are the bytes of a folder's weights.
func weightsOf(t *testing.T, dir string) string {
	t.Helper()
	for _, name := range []string{"model.safetensors", "adapter_model.safetensors"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return string(text)
		}
	}
	t.Fatalf("%s has no weights", dir)
	return ""
}

// TestSimulateMaPPO: every method that works without samples of the policy moves the model; agents validate on pairs of
// their own.
func TestSimulateMaPPO(t *testing.T) {
	start := hashOf(t, testkit.CIModel())
	for _, method := range pairMethods {
		sets := []string{"mappo.validation.every=1"}
		s := tinyMaPPO(t, t.TempDir(), method, sets...)
		result, err := Run(t.Context(), s, nil)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		if hashOf(t, filepath.Join(s.Dir.Out, run.ModelName)) == start {
			t.Errorf("%s: the weights have not moved", method)
		}
		if !strings.Contains(result.Summary, "Validation on agents' own items: accuracy ") {
			t.Errorf("%s: summary\n%s", method, result.Summary)
		}
	}
}

// TestPairOwners: pairs go to their owners by a column, by shares or in turn, and what is held out follows them.
func TestPairOwners(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want string // pairs of each agent to train on
	}{
		{[]string{"agents=3", "clock.times=1,1,1", "mappo.split=column"}, "6 4 2"},
		{[]string{"mappo.split=column"}, "6 6"},
		{[]string{"mappo.split=equal", "mappo.split_column="}, "6 6"},
	} {
		sets := append([]string{"mappo.data.eval_fraction=0", "mappo.split_column=annotator"}, c.sets...)
		s := tinyMaPPO(t, t.TempDir(), protocol.AFedPG, sets...)
		expect.OK(t, s.openWorld())
		expect.OK(t, s.world.deal())
		var sizes []string
		for _, own := range s.world.owned {
			sizes = append(sizes, fmt.Sprint(len(own)))
		}
		if got := strings.Join(sizes, " "); got != c.want {
			t.Errorf("%v: %s pairs, want %s", c.sets, got, c.want)
		}
		s.Close()
	}
}

// TestPairsLeftOut: a run says how many pairs it has, and how many are too long.
func TestPairsLeftOut(t *testing.T) {
	s, said := tinyMaPPO(t, t.TempDir(), protocol.AFedPG, "mappo.data.max_completion_tokens=10"), &testkit.Recorder{}
	s.heard = said
	defer s.Close()
	_, err := s.NewWorkload(0)
	if text := strings.Join(said.Said, "\n"); err != nil || !strings.Contains(text, " 10 kept, 2 dropped as too long, ") {
		t.Errorf("%v; said %q", err, text)
	}
}

// TestOwnPairs: an agent with a file has its pairs, of which it holds a share out; the server's file need not be there.
func TestOwnPairs(t *testing.T) {
	dir := t.TempDir()
	s := tinyMaPPO(t, dir, protocol.AFedPG)
	s.MaPPO.Data.TrainFiles = config.Names{"elsewhere.jsonl"}
	w := &working{data: filepath.Join(dir, "pairs.jsonl")}
	defer w.close()
	if _, _, err := w.build(1, string(agentSpec.Resolve(&s.Options))); err != nil {
		t.Fatal(err)
	}
	if kept, held := len(w.world.owned[0]), len(w.world.heldBy[0]); kept != 10 || held != 2 {
		t.Errorf("%d pairs and %d held out, want 10 and 2 of 12", kept, held)
	}
	if _, _, err := s.NewServer(); err != nil {
		t.Errorf("a server without the pairs: %v", err)
	}
}

// TestFaultsOfMaPPO: each has one line.
func TestFaultsOfMaPPO(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want string
	}{
		{[]string{"mappo.loss.beta=1"}, "mappo.loss.beta 1: it is about the workload mappo, and workload is control"},
		{[]string{"workload=mappo", "ci_rl.split=equal"}, `ci_rl.split "equal": it is about the workload ci-rl`},
		{[]string{"workload=mappo", "method=fednpg-admm"}, "method fednpg-admm: it needs samples of the policy"},
		{[]string{"workload=mappo", "method=fedppo"}, "method fedppo: it needs samples of the policy"},
		{[]string{"workload=mappo", "method=fedavg", "local.clip=0.1"},
			"local.clip 0.1: workload mappo has no such term"},
		{[]string{"workload=mappo", "mappo.loss.type=kto"}, "mappo.loss.type kto: it is of single answers"},
		{[]string{"workload=mappo", "mappo.loss.type=dop"}, `mappo.loss.type "dop": want dpo`},
		{[]string{"workload=mappo", "mappo.loss.prior=none", "mappo.data.reward_transform=rank"},
			"mappo.data.reward_transform rank: mappo.loss.prior none uses no rewards"},
		{[]string{"workload=mappo", "mappo.split=column"}, "mappo.split_column is missing"},
		{[]string{"workload=mappo", "mappo.split_column=x"}, `mappo.split_column "x": split equal does not use it`},
		{[]string{"workload=mappo", "mappo.dirichlet_alpha=1"}, "split equal does not use it"},
		{[]string{"workload=mappo", "mappo.train.micro_batch_size=9"}, "want at most mappo.train.batch_size, 8"},
		{[]string{"workload=mappo", "mappo.data.eval=x.jsonl"}, "unknown key"},
	} {
		_, err := Spec.Load(config.Input{Overrides: testkit.Overrides(t, c.sets...)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.sets, err, c.want)
		}
	}
	for _, c := range []struct {
		sets []string
		want string
	}{
		{[]string{"mappo.split=column", "mappo.split_column=domain"}, "no value in domain: want one in every row"},
		{[]string{"mappo.split=column", "mappo.split_column=annotator", "agents=4", "clock.times=1,1,1,1"},
			"3 classes for 4 agents"},
		{[]string{"agents=11", "clock.times="}, "items for 11 agents"},
		{[]string{"mappo.adapter=missing"}, "missing"},
		{[]string{"mappo.lora.rank=2", "mappo.lora.targets=nothing"}, "lora.targets "},
	} {
		s := tinyMaPPO(t, t.TempDir(), protocol.AFedPG, c.sets...)
		if _, err := Run(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.sets, err, c.want)
		}
	}
}

// Where nothing is held out there is no validation: the config in force loads again.
func TestMaPPOHoldsNothingOut(t *testing.T) {
	none := []config.Override{{Flag: "--set", Key: "mappo.data.eval_fraction", Value: "0"}}
	const text, every = "command: federated simulate\nworkload: mappo\n", "mappo: {validation: {every: 10}}\n"
	for _, given := range []string{text, text + every} {
		s, err := Spec.Parse("f.yaml", []byte(given), config.Input{Overrides: none})
		if err != nil || s.MaPPO.Validation.Every != 0 {
			t.Fatalf("%s: %v", given, err)
		}
		if s, err = Spec.Parse("f.yaml", Spec.Resolve(s), config.Input{}); err != nil || s.MaPPO.Data.EvalFraction != 0 {
			t.Errorf("again: %v", err)
		}
	}
}

// TestReferenceIsTheSame: owners whose model at the start has other weights have another reference, and so another
// identity, unless the loss has none.
func TestReferenceIsTheSame(t *testing.T) {
	other := filepath.Join(t.TempDir(), "model")
	expect.OK(t, os.CopyFS(other, os.DirFS(testkit.CIModel())))
	weights := filepath.Join(other, "model.safetensors")
	b := expect.Bytes(t, weights)
	b[len(b)-1] ^= 1
	expect.OK(t, os.Chmod(weights, 0o666))
	expect.Write(t, weights, b)
	for loss, same := range map[string]bool{"dpo": false, "simpo": true} {
		var bases []string
		for _, folder := range []string{testkit.CIModel(), other} {
			s := tinyMaPPO(t, t.TempDir(), protocol.FedPG, "mappo.loss.type="+loss, "mappo.model="+folder)
			_, id, err := s.NewServer()
			expect.OK(t, err)
			bases = append(bases, id.Base)
			s.Close()
		}
		if (bases[0] == bases[1]) != same {
			t.Errorf("%s: %q, want the same: %v", loss, bases, same)
		}
	}
}

// TestRivalOnLanguageModels: the method that a run is compared with has its defaults on the workload, not on cartpole.
func TestRivalOnLanguageModels(t *testing.T) {
	s := tinyMaPPO(t, t.TempDir(), protocol.AFedPG, "compare=fedpg")
	m := &simulating{Simulation: s}
	if o := m.other(100); *o.Rule != protocol.AdamW || *o.LR != 1e-4 || o.Clip != 0 || o.Samples != 100 {
		t.Errorf("rule %s, lr %g, clip %g, samples %d", *o.Rule, *o.LR, o.Clip, o.Samples)
	}
}
