// Package testkit is a tiny complete world for tests: a seeded two-layer model, groups of random tokens, processes to
// kill, and comparisons of the run folders that they leave.
package testkit

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// Vocab is the number of tokens of the tiny models.
const Vocab = 64

// Config is a two-layer model of one of model.Types with grouped queries.
func Config(t testing.TB, modelType string) *model.Config {
	t.Helper()
	json := `{"model_type": "` + modelType + `", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "hidden_act": "silu",
		"max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
		"sliding_window": 6, "use_sliding_window": false, "sliding_window_pattern": 2,
		"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
		"initializer_range": 0.3, "eos_token_id": 1,
		"torch_dtype": "float32"}`
	if modelType == "gemma" {
		json = strings.Replace(json, "silu", "gelu", 1)
	}
	return expect.Must(model.ParseConfig([]byte(json), nil))(t)
}

// Llama is a two-layer model whose head is not tied to its embeddings. It needs no test, for processes of [Main].
func Llama() (*model.Config, error) {
	return model.ParseConfig([]byte(`{"model_type": "llama", "vocab_size": 64, "hidden_size": 16,
		"intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
		"hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
		"tie_word_embeddings": false,
		"initializer_range": 0.3, "eos_token_id": 1, "torch_dtype": "float32"}`), nil)
}

// Model is a model of a type with seeded weights.
func Model(t testing.TB, modelType string) *model.Model { return model.Init(Config(t, modelType), 7) }

// Hash is the hash of a model's weights.
func Hash(t testing.TB, m *model.Model) string {
	t.Helper()
	return expect.Must(m.Hash())(t)
}

// Groups are n random prompts with random answers. All have 1 to 12 tokens.
func Groups(seed uint64, n, answers int) []batch.Group {
	r := rand.New(rand.NewPCG(seed, 1))
	ids := func() []int32 {
		s := make([]int32, 1+r.IntN(12))
		for i := range s {
			s[i] = r.Int32N(Vocab)
		}
		return s
	}
	groups := make([]batch.Group, n)
	for i := range groups {
		groups[i].Prompt = ids()
		for range answers {
			groups[i].Answers = append(groups[i].Answers, ids())
		}
	}
	return groups
}
