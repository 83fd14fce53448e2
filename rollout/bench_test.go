package rollout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/model"
)

// presets are the models of package bench.
var presets = []struct{ name, config string }{
	{"5.4M", `{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8,
		"num_key_value_heads": 4, "head_dim": 32, "intermediate_size": 688, "vocab_size": 4096`},
	{"56M", `{"model_type": "llama", "hidden_size": 640, "num_hidden_layers": 10, "num_attention_heads": 10,
		"num_key_value_heads": 5, "head_dim": 64, "intermediate_size": 1728, "vocab_size": 16384`},
}

func preset(b *testing.B, text string) *model.Model {
	c, err := model.ParseConfig([]byte(text+`, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
		"max_position_embeddings": 32768, "tie_word_embeddings": true,
		"initializer_range": 0.02, "eos_token_id": 0, "torch_dtype": "float32"}`), nil)
	if err != nil {
		b.Fatal(err)
	}
	return model.Init(c, 1)
}

// prompts are n requests of random prompts, samples of each.
func prompts(n, samples, length, maxNew, vocab int) (out []Request) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		x := Request{Sampling: Sampling{MaxNew: maxNew, Temperature: 1}, Seed: uint64(i), StopTokens: []int32{}}
		for range length {
			x.Prompt = append(x.Prompt, r.Int32N(int32(vocab)))
		}
		out = append(out, x.Samples(samples)...)
	}
	return out
}

// measure reports the new tokens a second, prefill included. The first call, which compiles, does not count.
func measure(b *testing.B, m *model.Model, o Options, rs []Request) {
	rate(b, setup{backendtest.ONNX(b), implementations[1]}.of(b, m, o), rs)
}

func rate(b *testing.B, s Sampler, rs []Request) {
	sample(b, s, rs...)
	runtime.GC()
	tokens := 0
	for b.Loop() {
		cs, err := s.Sample(context.Background(), rs)
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range cs {
			tokens += len(c.Tokens)
		}
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkBatch: prompts of 64 tokens, 64 new ones.
func BenchmarkBatch(b *testing.B) {
	for _, p := range presets {
		m := preset(b, p.config)
		for _, n := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("%s/%d", p.name, n), func(b *testing.B) {
				measure(b, m, Options{}, prompts(n, 1, 64, 64, m.Config.VocabSize))
			})
		}
	}
}

// BenchmarkGroups: 8 prompts with 16 samples each, 64 new tokens.
func BenchmarkGroups(b *testing.B) {
	m := preset(b, presets[0].config)
	for _, length := range []int{64, 256} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			measure(b, m, Options{}, prompts(8, 16, length, 64, m.Config.VocabSize))
		})
	}
}

// BenchmarkCutOff: what top-k, top-p and min-p cost.
func BenchmarkCutOff(b *testing.B) {
	m := preset(b, presets[0].config)
	for name, spoil := range map[string]func(r *Request){
		"none": func(*Request) {}, "top-k 50": func(r *Request) { r.TopK = 50 },
		"top-p 0.9": func(r *Request) { r.TopP = 0.9 }, "min-p 0.1": func(r *Request) { r.MinP = 0.1 },
	} {
		b.Run(name, func(b *testing.B) {
			rs := prompts(128, 1, 64, 64, m.Config.VocabSize)
			for i := range rs {
				spoil(&rs[i])
			}
			measure(b, m, Options{}, rs)
		})
	}
}
