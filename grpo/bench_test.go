package grpo

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// small is the 5.4M preset of internal/speed.
const small = `{"model_type": "llama", "hidden_size": 256,
	"num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
	"head_dim": 32, "intermediate_size": 688, "vocab_size": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
		"hidden_act": "silu",
	"max_position_embeddings": 32768, "tie_word_embeddings": true,
	 "initializer_range": 0.02, "eos_token_id": 0, "torch_dtype": "float32"}`

// benchmarkGroups are n prompts of random tokens with answers of one length.
func benchmarkGroups(n, prompt, answers, length int) []Group {
	r := rand.New(rand.NewPCG(1, 1))
	ids := func(n int) []int32 {
		s := make([]int32, n)
		for i := range s {
			s[i] = r.Int32N(4096)
		}
		return s
	}
	groups := make([]Group, n)
	for i := range groups {
		groups[i].Prompt = ids(prompt)
		rewards := make([]float64, answers)
		for a := range answers {
			groups[i].Answers, rewards[a] = append(groups[i].Answers, ids(length)), r.Float64()
		}
		groups[i].Advantages, _ = Advantages(rewards, Sample)
	}
	return groups
}

// BenchmarkTraining is the training half of a step: the reference's log-probs, then one update; 8 prompts with 16
// answers of 64 tokens, KL on. Prompts shared or repeated; POSTTRAIN_ROWS adds forms with rows of other lengths.
//
//	go test ./grpo -run '^$' -bench Training/onnx -benchtime 3x
func BenchmarkTraining(b *testing.B) {
	rows := []int{0}
	if n, err := strconv.Atoi(os.Getenv("POSTTRAIN_ROWS")); err == nil {
		rows = append(rows, n)
	}
	for _, e := range backendtest.Engines(b) {
		for _, prompt := range []int{64, 256} {
			b.Run(fmt.Sprintf("%s/prompt=%d/apart", e.Name, prompt), func(b *testing.B) {
				benchmarkTraining(b, e, prompt, 0, true)
			})
			for _, row := range rows {
				b.Run(fmt.Sprintf("%s/prompt=%d/shared,row=%d", e.Name, prompt, row), func(b *testing.B) {
					benchmarkTraining(b, e, prompt, row, false)
				})
			}
		}
	}
}

func benchmarkTraining(b *testing.B, e *backend.Engine, prompt, row int, apart bool) {
	step := trainingStep(b, e, 8, prompt, row, apart)
	step()
	for b.Loop() {
		step()
	}
}

// BenchmarkBesideOthers is that step with one prompt, beside a busy process for each processor, in rounds with steps
// alone: a fair share is "times" 2. XLA's programs are the same as in runs if XLA_FLAGS is set, to nothing.
//
//	XLA_FLAGS= POSTTRAIN_NEEDS=onnx,xla go test ./grpo -run '^$' -bench BesideOthers -benchtime 5x
func BenchmarkBesideOthers(b *testing.B) {
	for _, e := range backendtest.Engines(b) {
		b.Run(e.Name, func(b *testing.B) {
			step := trainingStep(b, e, 1, 64, 0, false)
			took := func() float64 {
				begin := time.Now()
				step()
				return time.Since(begin).Seconds()
			}
			step()
			var alone, beside []float64
			for b.Loop() {
				alone = append(alone, took())
				rest := keepBusy(b)
				beside = append(beside, took())
				rest()
			}
			slices.Sort(alone)
			slices.Sort(beside)
			middle := len(alone) / 2
			b.ReportMetric(alone[middle], "s-alone")
			b.ReportMetric(beside[middle], "s-beside")
			b.ReportMetric(beside[middle]/alone[middle], "times")
		})
	}
}

// keepBusy starts processes that compute without end, until rest.
func keepBusy(b *testing.B) (rest func()) {
	var all []*exec.Cmd
	for range runtime.NumCPU() {
		c := exec.Command("sh", "-c", "while :; do :; done")
		expect.OK(b, c.Start())
		all = append(all, c)
	}
	return func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait() // it was killed
		}
	}
}

func trainingStep(b *testing.B, e *backend.Engine, prompts, prompt, row int, apart bool) (step func()) {
	c := expect.Must(model.ParseConfig([]byte(small), nil))(b)
	o := DefaultOptions()
	o.Prompts, o.Updates = prompts, 1
	t := trainer(b, e, model.Init(c, 1), o)
	t.Tokens, t.Apart, t.row = 0, apart, row
	groups := benchmarkGroups(o.Prompts, prompt, o.GroupSize, 64)
	return func() {
		logps := expect.Must(t.Measure(groups, nil))(b)
		for i := range groups {
			groups[i].Reference = logps[i]
		}
		expect.Must(t.Update(groups, train.AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8,
			MaxNorm: 1}}, 1e-6, train.NewMetrics()))(b)
	}
}
