package rollout

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/posttrain/posttrain/backend/backendtest"
	"github.com/posttrain/posttrain/model"
)

// BenchmarkRecompute answers 64 prompts of 90 tokens with 80 each, by a model of 1.0 million parameters.
func BenchmarkRecompute(b *testing.B) {
	c, err := model.ParseConfig([]byte(`{"model_type": "llama", "vocab_size": 2048, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
		"rope_theta": 10000.0, "tie_word_embeddings": true, "eos_token_id": 1}`), nil)
	if err != nil {
		b.Fatal(err)
	}
	s := sampler(b, backendtest.ONNX(b), model.Init(c, 1))
	r := rand.New(rand.NewPCG(1, 2))
	rs := make([]Request, 64)
	for i := range rs {
		rs[i] = Request{MaxNew: 80, Temperature: 1, Seed: uint64(i), Stop: []int32{}}
		for range 90 {
			rs[i].Prompt = append(rs[i].Prompt, r.Int32N(2048))
		}
	}
	for b.Loop() {
		if _, err := s.Sample(context.Background(), rs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*64*80)/b.Elapsed().Seconds(), "tokens/s")
}
