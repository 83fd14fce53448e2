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
	l := &Log{Path: "run"}
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
			"completions/clipped_ratio", "frac_reward_zero_std", "logps/chosen", "logps/rejected",
			"rewards/format/mean", "learning_rate"} {
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
			"completions/clipped_ratio": {0.05, 0.02, 0.02}, "frac_reward_zero_std": {0.1, 0.5, 0.05},
			"rewards/format/mean": {0.6, 0.98, 0.1}},
		map[string][]float64{"eval_reward": {0.2, 0.3, 0.4, 0.5, 0.55, 0.6}}
}

// TestSymptoms: each planted symptom is found, alone, with its numbers.
func TestSymptoms(t *testing.T) {
	for _, c := range []struct {
		symptom, says, evidence string
		rl                      bool
		batches                 map[string][3]float64
		held                    map[string][]float64
	}{
		{symptom: "squeezing", says: "log p(chosen) fell by 30.0%",
			evidence: "eval_logps/chosen: -100 at step 0, -130 at step 100 (held-out examples)",
			held:     map[string][]float64{"eval_logps/chosen": {-100, -105, -110, -120, -125, -130}}},
		{symptom: "divergence", says: "the loss rose from 0.69 to 5e+07",
			evidence: "eval_loss: 0.69 at step 0, 5e+07 at step 100 (held-out examples)",
			batches:  map[string][3]float64{"loss": {0.69, 5e7, 1}},
			held: map[string][]float64{"eval_loss": {0.69, 4, 1e3, 1e5, 1e7, 5e7},
				"eval_logps/chosen": {-100, -1e3, -1e4, -1e5, -1e6, -1e7}, "eval_logps/rejected": {-100, -1e3, -1e4, -1e5, -1e6, -2e7}}},
		{symptom: "no rate", says: "the learning rate is 0 in all 100 records", evidence: "learning_rate: 0 at step 1, 0 at step 100",
			batches: map[string][3]float64{"learning_rate": {0, 0, 0}}},
		{symptom: "overfitting", says: "the held-out loss was best at step 40 and is 20.0% worse at the end",
			evidence: "eval_loss: 0.6 at step 40, 0.72 at step 100 (the best and the last)",
			held:     map[string][]float64{"eval_loss": {0.69, 0.65, 0.6, 0.62, 0.67, 0.72}}},
		{symptom: "entropy collapse", rl: true, says: "of the entropy at the beginning ",
			evidence: "(means of the values up to there)",
			batches:  map[string][3]float64{"entropy": {0.8, 0.02, 0.01}}},
		{symptom: "entropy blow-up", rl: true, says: "times that of the beginning: answers become noise",
			evidence: "(means of the values up to there)", batches: map[string][3]float64{"entropy": {0.8, 3, 0.1}}},
		{symptom: "broken format", rl: true, says: "% of the answers keep the format, after ",
			evidence: "rewards/format/mean: ", batches: map[string][3]float64{"rewards/format/mean": {0.98, 0.3, 0.1}}},
		{symptom: "length hacking", rl: true, says: "answers became 1.2 times as long, and 8",
			evidence: "completions/clipped_ratio: ", batches: map[string][3]float64{"completions/mean_length": {200, 250, 5},
				"completions/clipped_ratio": {0.1, 0.9, 0.02}}},
		{symptom: "length hacking", rl: true, says: "and the reward did not rise",
			evidence: "eval_reward: 0.2 at step 0, 0.2 at step 100 (held-out examples)",
			batches:  map[string][3]float64{"completions/mean_length": {200, 600, 20}},
			held:     map[string][]float64{"eval_reward": {0.2, 0.2, 0.2, 0.2, 0.2, 0.2}}},
		{symptom: "length hacking", rl: true, says: "% of them reach the limit",
			evidence: "completions/clipped_ratio: ", batches: map[string][3]float64{"completions/mean_length": {200, 600, 20},
				"completions/clipped_ratio": {0.02, 0.5, 0.02}}},
		{symptom: "KL blow-up", rl: true, says: "nats a token away from the one before training", evidence: "kl: ",
			batches: map[string][3]float64{"kl": {0, 3, 0.01}}},
		{symptom: "dead groups", rl: true, says: "of the groups of the second half all answers have the same reward",
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
			if len(r.Findings) != 1 || r.Findings[0].Symptom != c.symptom || r.Findings[0].Advice == "" ||
				!strings.Contains(r.Findings[0].Says, c.says) ||
				!strings.Contains(strings.Join(r.Lines(), "\n"), c.evidence) {
				t.Errorf("%s, seed %d: %s", c.symptom, seed, strings.Join(r.Lines(), "\n"))
			}
			if err := r.Err(); err == nil || err.Error() != "run: found "+c.symptom {
				t.Errorf("%v", err)
			}
		}
	}
}

// TestWatch: a run that trains hears of each symptom once, when its numbers show it, and after a resumption, too.
func TestWatch(t *testing.T) {
	f, err := run.Create(filepath.Join(t.TempDir(), "run"), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var said []string
	at := 0
	Watch(f, func(line string) { said = append(said, fmt.Sprint(at, " ", line)) })
	for at = 1; at <= 40; at++ {
		if at == 30 {
			if _, err := f.CutMetrics(25); err != nil {
				t.Fatal(err)
			}
		}
		kl := 0.01
		if at > 20 {
			kl = 2
		}
		if err := f.Log(run.Record{Step: at, Values: map[string]float64{"kl": kl, "entropy": 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "21 KL blow-up: the distance to the model before training jumped") ||
		!strings.Contains(said[0], "; what may help: a lower train.learning_rate") {
		t.Error(said)
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
	if len(r.Findings) > 0 || len(r.Looked) != 0 || len(r.Unmeasured) != len(symptoms) {
		t.Errorf("%+v", r)
	}
}

// TestNotANumber: planted, it is found with its step and the last value before it. A few gradients that scaled float16
// skips are no finding, nor is another metric without a value.
func TestNotANumber(t *testing.T) {
	for _, c := range []struct {
		metric         string
		from, to       int
		says, evidence string
	}{
		{"loss", 42, 60, "loss is NaN or infinite at step 42, and in 19 of 60 records",
			"loss: 69 at step 1, 29 at step 41 (the last value before)"},
		{"loss", 42, 42, "loss is NaN or infinite at step 42, and in 1 of 60 records", "29 at step 41"},
		{"loss", 1, 60, "loss is NaN or infinite at step 1, and in 60 of 60", ""},
		{gradient, 50, 60, "grad_norm is NaN or infinite at step 50, and in 11 of 60", "21 at step 49"},
		{gradient, 1, 3, "", ""}, // skipped steps
		{gradient, 1, 4, "grad_norm is NaN or infinite at step 1, and in 4 of 60", ""},
		{"reward", 1, 60, "", ""},
	} {
		l := &Log{}
		for step := 1; step <= 60; step++ {
			values := map[string]float64{"loss": 70 - float64(step), gradient: 70 - float64(step), "reward": 1}
			if step >= c.from && step <= c.to {
				values[c.metric] = []float64{math.NaN(), math.Inf(1)}[step%2]
			}
			l.Records = append(l.Records, run.Record{Step: step, Values: values})
		}
		r := Examine(l)
		text := strings.Join(r.Lines(), "\n")
		if c.says == "" {
			if len(r.Findings) > 0 || r.Looked[0] != "not a number" {
				t.Errorf("%s: %s", c.metric, text)
			}
			continue
		}
		if len(r.Findings) != 1 || r.Findings[0].Symptom != "not a number" || !strings.Contains(text, c.says) ||
			!strings.Contains(text, c.evidence) || !strings.Contains(text, "a lower train.learning_rate") {
			t.Errorf("%s: %s", c.metric, text)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	}
}

// TestLook: a folder's metrics, or the file; half a last line is passed over.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	_, err := Look(dir)
	expect.Error(t, err, dir+": there is no log of a run in it: want a run folder, or its metrics.jsonl")
	_, err = Look(filepath.Join(dir, "none"))
	expect.Error(t, err, "none cannot be read: no such file or directory")
	log := filepath.Join(dir, "metrics.jsonl")
	for text, want := range map[string]string{`{"step":1,"loss":2}` + "\n{\n": log + ":2: not a line of metrics",
		`{"step":1,"loss":2}` + "\n" + `{"step":7,"loss":1}` + "\n" + `{"st`: ""} {
		expect.Write(t, log, text)
		for _, path := range []string{dir, log} {
			if r, err := Look(path); want != "" {
				expect.Error(t, err, want)
			} else if err != nil || r.Steps != 7 || r.Log != log {
				t.Errorf("%+v, %v", r, err)
			}
		}
	}
}

// TestRunWithoutEnd: a run that no process works on, and that has no end, is found, with the command that continues it.
func TestRunWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"config.yaml": "command: grpo\nmodel: m\n", "lock": "1\n",
		"manifest.json": `{"inputs":{}}`, "metrics.jsonl": `{"step":3,"loss":0.5}` + "\n"} {
		expect.Write(t, filepath.Join(dir, name), text)
	}
	r, err := Look(dir)
	if err != nil || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Advice, "posttrain grpo --resume "+dir) {
		t.Errorf("%v, %+v", err, r)
	}
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err == nil {
		err = run.Lock(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if r, err := Look(dir); err != nil || len(r.Findings) != 0 {
		t.Errorf("a run that goes on: %v, %+v", err, r)
	}
}
