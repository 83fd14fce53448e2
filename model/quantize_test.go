package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// in gives a model with an adapter the quantization of its frozen matrices.
func in(quantization string, m *Model) *Model {
	c, l := *m.Config, *m.Config.LoRA
	l.Quantization, c.LoRA = quantization, &l
	return &Model{Config: &c, Params: m.Params}
}

// dequantized has the weights of the quantised matrices in float32.
func dequantized(m *Model) *Model {
	out := in("", m)
	out.Params = slices.Clone(m.Params)
	for i, p := range m.Base().Params {
		if m.Config.IsQuantized(p.Name, p.Shape) {
			copied := *p
			copied.Data = Quantize(p.Data).Dequantize(len(p.Data))
			out.Params[i] = &copied
		}
	}
	return out
}

// hexBytes are bytes in JSON, written in hexadecimal.
type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

func (h hexBytes) floats() []float32 {
	out := make([]float32, len(h)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(h[4*i:]))
	}
	return out
}

// storedMatrix is what bitsandbytes makes of a matrix.
type storedMatrix struct {
	Codes, Scales, SHA256, Weights hexBytes
	Shape                          []int
}

// quantizeOracle is a file of testdata/quantized (scripts/oracle/quantize.py).
type quantizeOracle struct {
	peftOracle
	Tensors map[string]storedMatrix
	Edge    storedMatrix
}

func readQuantizeOracle(t testing.TB) (o quantizeOracle) {
	t.Helper()
	expect.Decode(t, filepath.Join("testdata", "quantized", "nf4.json"), &o)
	return o
}

// TestBitsandbytesCodes: codes, scales and dequantised weights are bitsandbytes', bit for bit.
func TestBitsandbytesCodes(t *testing.T) {
	o, seen := readQuantizeOracle(t), 0
	check := func(p *Param, want storedMatrix) {
		t.Helper()
		q := Quantize(p.Data)
		if !bytes.HasPrefix(q.Codes, want.Codes) || len(q.Codes) > len(want.Codes)+nf4Block/2 {
			t.Errorf("%s: the codes differ", p.Name)
		}
		if scales := want.Scales.floats(); !slices.Equal(q.Scales, scales) {
			t.Errorf("%s: the scales differ", p.Name)
		}
		sum := sha256.New()
		binary.Write(sum, binary.LittleEndian, q.Dequantize(len(p.Data)))
		if !bytes.Equal(sum.Sum(nil), want.SHA256) {
			t.Errorf("%s: the dequantised weights differ", p.Name)
		}
		seen++
	}
	check(&Param{Name: "edge", Shape: o.Edge.Shape, Data: o.Edge.Weights.floats()}, o.Edge)
	for _, p := range load(t, filepath.Join("testdata", o.Model)).Params {
		if want, ok := o.Tensors[p.Name]; ok {
			check(p, want)
		}
	}
	if seen != 15 {
		t.Errorf("%d matrices compared: want 15", seen)
	}
}

// TestQuantizedIsFinite: weights of any finite size become finite ones, no further from them than a sixth of the largest
// of their block, the widest step of the codes in float64.
func TestQuantizedIsFinite(t *testing.T) {
	for _, most := range []float32{0, 1e-37, 1, 1e38, math.MaxFloat32} {
		x := make([]float32, 100)
		for i := range x {
			x[i] = most * (float32(i-50) / 50)
		}
		for i, y := range Quantize(x).Dequantize(len(x)) {
			if d := math.Abs(float64(y) - float64(x[i])); !(d <= float64(most)/6) {
				t.Errorf("largest %v: %v becomes %v", most, x[i], y)
			}
		}
	}
}

// TestParityWithBitsandbytes: a model on a quantised base has the logits of transformers with bitsandbytes.
func TestParityWithBitsandbytes(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		o := readQuantizeOracle(t)
		plain := load(t, filepath.Join("testdata", o.Model))
		modules, _ := plain.Config.AdapterModules(nil)
		m := plain.Adapt(LoRA{Rank: 1, Alpha: 1, Modules: modules}, 1)
		got := slices.Concat(rowLogits(t, e, in(NF4, m), o.Rows[0].IDs)...)
		near(t, NF4, worst(got, slices.Concat(o.Rows[0].Logits...)), 1e-3)
		if worst(got, slices.Concat(rowLogits(t, e, m, o.Rows[0].IDs)...)) < 3e-3 {
			t.Error("the quantisation changes nothing")
		}
	})
}

// TestQuantizedDecoding: prefill and steps of a model on a quantised base equal the graph of training.
func TestQuantizedDecoding(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for _, name := range []string{"qwen2", "mixtral"} { // whose routers stay whole
			if name == "mixtral" && e.Name == "xla" {
				continue
			}
			m := in(NF4, adapted(t, variedModels(t)[name]))
			for _, samples := range []int{1, 2} { // 3 and 6 rows: products of both forms
				if samples > 1 && e.Name == "xla" {
					continue
				}
				c := texts(samples)
				want := c.wholeLogits(t, e, m)
				c.check(t, m, c.decode(t, e, m), want, 1e-4)
				if whole := c.wholeLogits(t, e, dequantized(m)); worst(whole[0][0], want[0][0]) > 1e-4 {
					t.Error("the logits are not those of the dequantised weights")
				}
			}
		}
	})
}

// TestSevenBillion computes what the frozen weights of well-known models take.
func TestSevenBillion(t *testing.T) {
	const llama2 = `{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
		"intermediate_size": 11008, "vocab_size": 32000, "rms_norm_eps": 1e-5, "hidden_act": "silu",
		"max_position_embeddings": 4096, "tie_word_embeddings": false, "eos_token_id": 2}`
	const qwen = `{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
		"num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "rms_norm_eps": 1e-6,
		"hidden_act": "silu", "max_position_embeddings": 32768, "tie_word_embeddings": false, "eos_token_id": 2}`
	for _, k := range []struct {
		name, config string
		parameters   int
		want         map[string]float64 // GB
	}{
		{"Llama-2-7B", llama2, 6_738_415_616, map[string]float64{"": 13.477, NF4: 4.168}},
		{"Qwen2.5-7B", qwen, 7_615_616_512, map[string]float64{"": 15.232, NF4: 5.852}},
	} {
		c := expect.Must(ParseConfig([]byte(k.config), nil))(t)
		if n := c.ParamCount(); n != k.parameters {
			t.Errorf("%s: %d parameters, want %d", k.name, n, k.parameters)
		}
		for quantization, want := range k.want {
			c.LoRA = &LoRA{Rank: 16, Quantization: quantization}
			if gb := float64(c.FrozenBytes(dtypes.BFloat16)) / 1e9; math.Abs(gb-want) > 6e-4 {
				t.Errorf("%s in %q: %.3f GB, want %.3f", k.name, quantization, gb, want)
			}
		}
	}
}
