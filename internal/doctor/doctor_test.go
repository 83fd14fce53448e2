package doctor

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// planted are 100 steps, each value a line from one number to another with noise, and an evaluation every 20.
func planted(seed uint64, batches map[string][3]float64, held map[string][]float64) *Log {
	rng := rand.New(rand.NewPCG(seed, 0))
	l := &Log{Path: "run", Kind: "posttrain"}
	for step := range 101 {
		if step%20 == 0 {
			values := map[string]float64{}
			for name, all := range held {
				values[name] = all[step/20]
			}
			l.Records = append(l.Records, run.Record{Step: step, Values: values})
		}
		if step == 0 {
			continue
		}
		values := map[string]float64{}
		for _, name := range []string{"loss", "entropy", "reward", "kl", "completions/mean_length",
			"completions/clipped_ratio", "frac_reward_zero_std", "logps/chosen", "logps/rejected"} {
			if v, ok := batches[name]; ok { // in this order, so that a seed gives the same noise
				values[name] = v[0] + (v[1]-v[0])*float64(step)/100 + v[2]*rng.NormFloat64()
			}
		}
		l.Records = append(l.Records, run.Record{Step: step, Values: values})
	}
	return l
}

// Healthy runs: of preference training, and of reinforcement learning.
func preference() (map[string][3]float64, map[string][]float64) {
	return map[string][3]float64{"loss": {0.69, 0.55, 0.05}, "logps/chosen": {-100, -98, 15},
			"logps/rejected": {-110, -140, 15}},
		map[string][]float64{"eval_loss": {0.69, 0.66, 0.63, 0.62, 0.61, 0.615}, "eval_logps/chosen": {-100, -99, -99, -98,
			-100, -101}, "eval_logps/rejected": {-110, -115, -120, -125, -130, -140}}
}

func reinforcement() (map[string][3]float64, map[string][]float64) {
	return map[string][3]float64{"loss": {0, 0, 0.02}, "entropy": {0.8, 0.4, 0.05}, "reward": {0.2, 0.6, 0.08},
			"kl": {0.001, 0.08, 0.01}, "completions/mean_length": {200, 230, 20},
			"completions/clipped_ratio": {0.05, 0.02, 0.02}, "frac_reward_zero_std": {0.1, 0.5, 0.05}},
		map[string][]float64{"eval_reward": {0.2, 0.3, 0.4, 0.5, 0.55, 0.6}}
}

// TestRules: each planted illness is found, alone, with its numbers.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		rule, says, evidence string
		rl                   bool
		batches              map[string][3]float64
		held                 map[string][]float64
	}{
		{rule: "squeezing", says: "log p(chosen) fell by 30.0%",
			evidence: "eval_logps/chosen: -100 at step 0, -130 at step 100 (held-out examples)",
			held:     map[string][]float64{"eval_logps/chosen": {-100, -105, -110, -120, -125, -130}}},
		{rule: "overfitting", says: "the held-out loss was best at step 40 and is 20.0% worse at the end",
			evidence: "eval_loss: 0.6 at step 40, 0.72 at step 100 (the best and the last)",
			held:     map[string][]float64{"eval_loss": {0.69, 0.65, 0.6, 0.62, 0.67, 0.72}}},
		{rule: "entropy collapse", rl: true, says: "of the entropy at the beginning ",
			evidence: "(means of the values up to there)",
			batches:  map[string][3]float64{"entropy": {0.8, 0.02, 0.01}}},
		{rule: "length hacking", rl: true, says: "and the reward did not rise",
			evidence: "eval_reward: 0.2 at step 0, 0.2 at step 100 (held-out examples)",
			batches:  map[string][3]float64{"completions/mean_length": {200, 600, 20}},
			held:     map[string][]float64{"eval_reward": {0.2, 0.2, 0.2, 0.2, 0.2, 0.2}}},
		{rule: "length hacking", rl: true, says: "% of them reach the limit", evidence: "completions/clipped_ratio: ",
			batches: map[string][3]float64{"completions/mean_length": {200, 600, 20},
				"completions/clipped_ratio": {0.02, 0.5, 0.02}}},
		{rule: "KL blow-up", rl: true, says: "nats a token away from the one before training", evidence: "kl: ",
			batches: map[string][3]float64{"kl": {0, 3, 0.01}}},
		{rule: "dead groups", rl: true, says: "of the groups of the second half all answers have the same reward",
			evidence: "mean 0.8", batches: map[string][3]float64{"frac_reward_zero_std": {0.5, 1, 0.01}}},
	} {
		for seed := range uint64(5) {
			batches, held := preference()
			if c.rl {
				batches, held = reinforcement()
			}
			for name, v := range c.batches {
				batches[name] = v
			}
			for name, v := range c.held {
				held[name] = v
			}
			r := Examine(planted(seed, batches, held))
			if len(r.Findings) != 1 || r.Findings[0].Rule != c.rule || r.Findings[0].Advice == "" ||
				!strings.Contains(r.Findings[0].Says, c.says) ||
				!strings.Contains(strings.Join(r.Lines(), "\n"), c.evidence) {
				t.Errorf("%s, seed %d: %s", c.rule, seed, strings.Join(r.Lines(), "\n"))
			}
			if err := r.Err(); err == nil || err.Error() != "run: found "+c.rule {
				t.Errorf("%v", err)
			}
		}
	}
}

// TestRewardFollowsLength: reward and length have the same noise.
func TestRewardFollowsLength(t *testing.T) {
	batches, _ := reinforcement()
	l, rng := planted(1, batches, nil), rand.New(rand.NewPCG(2, 0))
	for _, r := range l.Records[1:] {
		x := rng.NormFloat64()
		r.Values["completions/mean_length"] = 200 + 4*float64(r.Step) + 20*x
		r.Values["reward"] = 0.2 + 0.004*float64(r.Step) + 0.02*x
	}
	r := Examine(l)
	if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Says, "the reward follows the length") {
		t.Error(strings.Join(r.Lines(), "\n"))
	}
}

// TestKLPeak: one step leaves the model before training, and the next comes back.
func TestKLPeak(t *testing.T) {
	batches, held := reinforcement()
	l := planted(1, batches, held)
	for _, r := range l.Records {
		if r.Step == 50 && len(r.Values) > 1 {
			r.Values["kl"] = 40
		}
	}
	r := Examine(l)
	if len(r.Findings) != 1 || r.Findings[0].Evidence[0].ToStep != 50 || r.Findings[0].Evidence[0].To != 40 ||
		!strings.Contains(r.Findings[0].Says, "jumped to 40 nats a token; its median is 0.0") {
		t.Error(strings.Join(r.Lines(), "\n"))
	}
}

// TestHealthy: clean runs raise no alarm, whatever their noise.
func TestHealthy(t *testing.T) {
	for seed := range uint64(50) {
		for _, make := range []func() (map[string][3]float64, map[string][]float64){preference, reinforcement} {
			batches, held := make()
			r := Examine(planted(seed, batches, held))
			if len(r.Findings) > 0 || r.Err() != nil || r.Steps != 100 {
				t.Errorf("seed %d: %s", seed, strings.Join(r.Lines(), "\n"))
			}
		}
	}
}

// TestTooShort: a run of a few steps says what it has too little about.
func TestTooShort(t *testing.T) {
	r := Examine(&Log{Records: []run.Record{{Step: 1, Values: map[string]float64{"entropy": math.NaN(), "kl": 9}}}})
	if len(r.Findings) > 0 || len(r.Looked) != 0 || len(r.Unmeasured) != len(rules) {
		t.Errorf("%+v", r)
	}
}

// TestNotANumber: planted in each kind of log, it is found with its step and the last value before it. A few gradients
// that scaled float16 skips are no finding, nor is another metric without a value.
func TestNotANumber(t *testing.T) {
	ours := func(line func(step int) string) (text string) {
		for step := 1; step <= 60; step++ {
			text += line(step) + "\n"
		}
		return text
	}
	at := func(value string, from, to int) func(int) string { // the loss in these steps
		return func(step int) string {
			loss := fmt.Sprint(70 - step)
			if step >= from && step <= to {
				loss = value
			}
			return fmt.Sprintf(`{"step":%d,"loss":%s,"grad_norm":2}`, step, loss)
		}
	}
	norm := func(from, to int) func(int) string {
		return func(step int) string {
			return strings.NewReplacer(`"loss"`, `"grad_norm"`, `"grad_norm"`, `"loss"`).
				Replace(at("null", from, to)(step))
		}
	}
	const trl = `{"log_history":[{"step":10,"loss":0.7,"grad_norm":1.5},{"step":20,"loss":0.0,"grad_norm":NaN},` +
		`{"step":30,"loss":0.0,"grad_norm":NaN}]}`
	for _, c := range []struct{ name, text, says, evidence string }{
		{"ours", ours(at("null", 42, 60)), "loss is NaN or infinite at step 42, and in 19 of 60 records",
			"loss: 69 at step 1, 29 at step 41 (the last value before)"},
		{"one step", ours(at("null", 42, 42)), "loss is NaN or infinite at step 42, and in 1 of 60 records",
			"29 at step 41"},
		{"from the start", ours(at("null", 1, 60)), "loss is NaN or infinite at step 1, and in 60 of 60", ""},
		{"the gradient", ours(norm(50, 60)), "grad_norm is NaN or infinite at step 50, and in 11 of 60",
			"21 at step 49"},
		{"skipped steps", ours(norm(1, 3)), "", ""},
		{"skipped too often", ours(norm(1, 4)), "grad_norm is NaN or infinite at step 1, and in 4 of 60", ""},
		{"another metric", ours(func(step int) string {
			return fmt.Sprintf(`{"step":%d,"loss":1,"reward":null}`, step)
		}), "", ""},
		{"TRL, which writes 0 for the loss", trl, "grad_norm is NaN or infinite at step 20, and in 2 of 3 records",
			"grad_norm: 1.5 at step 10, 1.5 at step 10"},
		{"verl", "step:1 - actor/pg_loss:0.5\nstep:2 - actor/pg_loss:nan\nstep:3 - actor/pg_loss:np.float64(inf)\n",
			"loss is NaN or infinite at step 2, and in 2 of 3 records", "loss: 0.5 at step 1"},
	} {
		l, err := parse([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		r := Examine(l)
		text := strings.Join(r.Lines(), "\n")
		if c.says == "" {
			if len(r.Findings) > 0 || r.Looked[0] != "not a number" {
				t.Errorf("%s: %s", c.name, text)
			}
			continue
		}
		if len(r.Findings) != 1 || r.Findings[0].Rule != "not a number" || !strings.Contains(text, c.says) ||
			!strings.Contains(text, c.evidence) || !strings.Contains(text, "a lower train.learning_rate") {
			t.Errorf("%s: %s", c.name, text)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(c.name, err)
		}
	}
}

const console = "(TaskRunner pid=7) \x1b[32mstep:3 - global_seqlen/mean:120.5 - actor/entropy:np.float64(0.52) - " +
	"critic/score/mean:-0.25 - response_length/mean:80 - actor/kl_loss:1e-3 - note:no number\x1b[0m\n" +
	"loading shards\nstep:4 - actor/entropy:0.5\n"

// TestReadTheNewestState: training that went on after its end has newer checkpoints than the state in its folder.
func TestReadTheNewestState(t *testing.T) {
	state := func(step int) string {
		return fmt.Sprintf(`{"global_step":%d,"best_metric":NaN,"log_history":[{"step":%d,"loss":0.5}]}`, step, step)
	}
	for newest, want := range map[int]int{20: 20, 40: 60, 80: 80} {
		dir := t.TempDir()
		if newest != 20 {
			write(t, filepath.Join(dir, trls), state(60))
		}
		write(t, filepath.Join(dir, fmt.Sprintf("checkpoint-%d", newest), trls), state(newest))
		l, err := Read(dir)
		if err != nil || l.Records[0].Step != want {
			t.Errorf("checkpoint %d: %+v %v, want step %d", newest, l, err, want)
		}
	}
}

// TestRead reads every kind of log.
func TestRead(t *testing.T) {
	for _, c := range []struct{ file, text, kind, want string }{
		{"run/metrics.jsonl", `{"step":1,"epoch":0.5,"loss":null,"note":"loss is NaN"}` + "\n" +
			`{"step":2,"epoch":1,"loss":0.5}` + "\n" + `{"step":3,"ep`, "posttrain",
			"1 map[epoch:0.5 loss:NaN], 2 map[epoch:1 loss:0.5]"},
		{"trl/trainer_state.json", `{"log_history":[{"step":5,"loss":0.5,"epoch":1},{"step":5,"eval_loss":0.4}]}`, "TRL",
			"5 map[epoch:1 loss:0.5], 5 map[eval_loss:0.4]"},
		{"trl2/checkpoint-20/trainer_state.json", `{"log_history":[{"step":20,"loss":0.5}]}`, "TRL", "20 map[loss:0.5]"},
		{"trl3/trainer_state.json", "{\"log_history\":[{\"step\":5,\"loss\": NaN,\"grad_norm\":Infinity},\n" +
			`{"step":6,"loss":0.5,"note":"is: NaN","all":[1,-Infinity]}]}`, "TRL",
			"5 map[grad_norm:NaN loss:NaN], 6 map[loss:0.5]"},
		{"verl/two.jsonl", `{"step":3,"data":{"critic/kl":2,"actor/kl_loss":1,"x":NaN}}` + "\n", "verl", "3 map[kl:2]"},
		{"verl/out.jsonl", `{"step":3,"data":{"actor/entropy":0.5,"critic/score/mean":1}}` + "\n", "verl",
			"3 map[entropy:0.5 reward:1]"},
		{"verl/console.log", console, "verl", "3 map[completions/mean_length:80 entropy:0.52 global_seqlen/mean:120.5 " +
			"kl:0.001 reward:-0.25], 4 map[entropy:0.5]"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, c.file)
		write(t, path, c.text)
		write(t, filepath.Join(dir, "trl2/checkpoint-3/trainer_state.json"), "{}")
		if folder, _, is := strings.Cut(c.file, "/"); is && folder != "verl" {
			path = filepath.Join(dir, folder)
		}
		l, err := Read(path)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		var got []string
		for _, r := range l.Records {
			got = append(got, fmt.Sprintf("%d %v", r.Step, r.Values))
		}
		if l.Kind != c.kind || strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %s %q, want %s %q", c.file, l.Kind, got, c.kind, c.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestReadFaults(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ": it has no metrics: want a run folder of posttrain"},
		{"hello\n", ": it has no metrics: "},
		{`{"log_history":[]}`, ": it has no metrics: "},
		{`{"log_history":[{"loss":1}]}`, ": log_history[0]: step <nil>: want a whole number, 0 or more"},
		{`{"step":1,"loss":2}` + "\n{\n", ":2: not a JSON object: unexpected end of JSON input"},
		{`{"step":1.5}` + "\n", ":1: step 1.5: want a whole number, 0 or more"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		write(t, path, c.text)
		_, err := Read(path)
		expect.Error(t, err, path+c.want)
	}
	_, err := Read(filepath.Join(t.TempDir(), "none"))
	expect.Error(t, err, "none cannot be read: no such file or directory")
	dir := t.TempDir()
	_, err = Read(dir)
	expect.Error(t, err, dir+": there is no log of a run in it: want a run folder of posttrain, ")
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(console))
	f.Add([]byte(`{"step":1,"loss":2}` + "\n"))
	f.Add([]byte(strings.Repeat("step:1 - kl:inf - loss:1e308\n", 20)))
	f.Add([]byte(`{"log_history":[{"step":5,"loss":0.5,"epoch":1},{"step":5,"eval_loss":0.4}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parse(text)
		if err != nil {
			expect.Error(t, err, ":")
			return
		}
		if _, err := json.Marshal(Examine(l)); err != nil {
			t.Fatal(err)
		}
	})
}
