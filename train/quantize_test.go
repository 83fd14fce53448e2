package train

import (
	"math"
	"testing"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// quantized is a model with an adapter whose frozen matrices are held in few bits.
func quantized(m *model.Model) *model.Model {
	c := *m.Config
	l := *c.LoRA
	l.Quantization = model.NF4
	c.LoRA = &l
	return &model.Model{Config: &c, Params: m.Params}
}

// dequantized is a model with an adapter whose frozen matrices are a quantization's, in float32.
func dequantized(m *model.Model) *model.Model {
	out, few := &model.Model{Config: m.Config}, quantized(m).Config
	for _, p := range m.Params {
		q := *p
		if few.IsQuantized(p.Name, p.Shape) {
			q.Data = model.Quantize(p.Data).Dequantize(len(p.Data))
		}
		out.Params = append(out.Params, &q)
	}
	return out
}

// TestQuantizedBase: a quantised base gives the loss and the adapter's gradients of its dequantised weights in float32,
// on go to the bit, since it computes both alike.
func TestQuantizedBase(t *testing.T) {
	groups := testkit.Groups(3, 4, 2)
	method, p := mappo(), batch.Pack(groups, batch.Layout{Pad: 4})
	step := func(t *testing.T, m *model.Model, e *backend.Engine, checkpoint bool) (loss float64, weights [][]float32) {
		l := expect.Must(NewLearner(e, m, model.GraphOptions{Checkpoint: checkpoint}))(t)
		defer l.Close()
		linear := AdamW{Options: adamw.Options{Epsilon: 1}} // the change is about the gradient
		for range 2 {
			var err error
			loss, _, err = l.Accumulate(p, method, method.Inputs(pairsOf(groups), p), 0.25)
			expect.OK(t, err)
			expect.Must(l.Update(linear, 0.1))(t)
		}
		weights = expect.Must(l.ReadWeights())(t)
		return loss, weights
	}
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for _, name := range []string{"qwen2", "mixtral"} { // whose routers stay whole
			if name == "mixtral" && !backendtest.AllVariants(t, e) {
				continue
			}
			m := withLoRA(testkit.Model(t, name))
			loss, got := step(t, quantized(m), e, name == "qwen2")
			same, want := step(t, dequantized(m), e, name == "qwen2")
			if math.Abs(loss-same) > 1e-5 || e.Name == "go" && loss != same {
				t.Errorf("%s: loss %v, want %v", name, loss, same)
			}
			for i := range want {
				for k, x := range want[i] {
					if y := got[i][k]; math.Abs(float64(x-y)) > 1e-5 || e.Name == "go" && x != y {
						t.Fatalf("%s: %s has %v at %d, want %v", name, m.Trained()[i].Name, y, k, x)
					}
				}
			}
		}
	})
}

// TestFrozenBytes: the footprint counts what the frozen buffers hold.
func TestFrozenBytes(t *testing.T) {
	e := backendtest.Go(t)
	for quantization, most := range map[string]float64{"": 4, model.NF4: 0.7} {
		m := withLoRA(model.Init(wideConfig(t), 1))
		if quantization != "" {
			m = quantized(m)
		}
		l, held := learner(t, e, m), 0
		for _, b := range l.frozen {
			shape := expect.Must(b.Shape())(t)
			held += int(shape.Memory())
		}
		if f := l.Footprint(AdamW{}); f.FrozenBytes != held || float64(held) > most*float64(f.Frozen) {
			t.Errorf("%q: %s: the buffers hold %d bytes", quantization, f, held)
		}
	}
}

// wideConfig has few weights outside its linear layers.
func wideConfig(t *testing.T) *model.Config {
	t.Helper()
	c := expect.Must(model.ParseConfig([]byte(`{"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2,
		"num_attention_heads": 2, "intermediate_size": 384, "vocab_size": 64, "rms_norm_eps": 1e-5,
		"hidden_act": "silu", "max_position_embeddings": 64, "tie_word_embeddings": true, "eos_token_id": 2}`), nil))(t)
	return c
}
