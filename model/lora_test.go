package model

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// adapted gives a model an adapter that changes its outputs.
func adapted(t testing.TB, m *Model, patterns ...string) *Model {
	t.Helper()
	modules := expect.Must(m.Config.AdapterModules(patterns))(t)
	out := m.Adapt(LoRA{Rank: 3, Alpha: 5, RSLoRA: len(patterns) == 0, Modules: modules}, 1)
	r := rand.New(rand.NewPCG(5, 6))
	for _, p := range out.Trained() {
		for i := range p.Data {
			p.Data[i] = float32(0.2 * r.NormFloat64())
		}
	}
	return out
}

// Prefill and steps of adapted models of every kind equal the graph of training, on all engines.
func TestAdaptedDecoding(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for name, plain := range variedModels(t) {
			if name != "llama" && e.Name != "go" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				m := adapted(t, plain)
				for _, samples := range []int{1, 2} { // 3 and 6 rows: products of both forms
					c := texts(samples)
					c.shared = samples > 1
					want := c.wholeLogits(t, e, m)
					c.check(t, m, c.decode(t, e, m), want, 1e-4)
					if base := c.wholeLogits(t, e, plain); worst(base[0][0], want[0][0]) < 1e-2 {
						t.Error("the adapter changes nothing")
					}
				}
			})
		}
	})
}

// mergedOf is what SaveMerged writes in float32.
func mergedOf(t *testing.T, m *Model) *Model {
	t.Helper()
	dir := t.TempDir()
	expect.OK(t, m.SaveMerged(t.Context(), dir, "float32"))
	return must(Load(dir))
}

// TestMergeLeavesOtherWeights as they are.
func TestMergeLeavesOtherWeights(t *testing.T) {
	m := adapted(t, sharpModel(t, "llama"), "v_proj")
	for i, p := range mergedOf(t, m).Params {
		if slices.Equal(p.Data, m.Params[i].Data) == strings.HasSuffix(p.Name, "v_proj.weight") {
			t.Errorf("%s: want those of v_proj changed, and no others", p.Name)
		}
	}
}

// A merged model has the log-probs of base and adapter, and the adapter's gradients follow from the merged weights' by
// the chain rule: dA = s·Bᵀ·dW and dB = s·dW·Aᵀ.
func TestAdapterGradients(t *testing.T) {
	e, exact := backendtest.Go(t), GraphOptions{DType: dtypes.Float64}
	for name, plain := range variedModels(t) {
		t.Run(name, func(t *testing.T) {
			m, p := adapted(t, plain, "*_proj"), repeatedTokens(true)
			merged := mergedOf(t, m)
			want := gradientsOf(t, e, merged, p, exact, 1)[0]
			for _, o := range []GraphOptions{exact, {DType: dtypes.Float64, Checkpoint: true, HeadChunk: 3}} {
				got := gradientsOf(t, e, m, p, o, 1)[0]
				near(t, "log-probs", worst(got.logps, want.logps), 1e-5)
				for i, param := range m.Trained() {
					near(t, param.Name, relative(got.grads[m.Config.Frozen()+i], chainRule(m, param, want.grads)), 1e-4)
				}
			}
		})
	}
}

// chainRule gives the gradient of A or B by the merged weight's.
func chainRule(m *Model, p *Param, merged [][]float32) []float32 {
	module, isA := strings.CutSuffix(p.Name, loraA)
	module = strings.TrimSuffix(module, loraB)
	other, end := []float32(nil), loraA
	if isA {
		end = loraB
	}
	var grad []float32
	var shape []int
	for i, q := range m.Params {
		switch q.Name {
		case module + end:
			other = q.Data
		case module + ".weight":
			grad, shape = merged[i], q.Shape
		}
	}
	rank, out := m.Config.LoRA.Rank, make([]float32, p.Size())
	for o := range shape[0] {
		for i := range shape[1] {
			for r := range rank {
				g := float32(m.Config.LoRA.Scale()) * grad[o*shape[1]+i]
				if isA {
					out[r*shape[1]+i] += g * other[o*rank+r]
				} else {
					out[o*rank+r] += g * other[r*shape[1]+i]
				}
			}
		}
	}
	return out
}

// A new adapter leaves every bit of the logits as it was; its A is drawn as peft draws it.
func TestNewAdapterChangesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		plain := sharpModel(t, "qwen2")
		modules, _ := plain.Config.AdapterModules(nil)
		m := plain.Adapt(LoRA{Rank: 2, Alpha: 4, Modules: modules}, 3)
		p := repeatedTokens(false)
		if a, b := logitsOf(t, e, plain, p), logitsOf(t, e, m, p); !slices.EqualFunc(a, b, slices.Equal) {
			t.Error("the logits differ")
		}
		for _, param := range m.Trained() {
			top, limit := 0.0, 1/math.Sqrt(float64(param.Shape[1]))
			for _, x := range param.Data {
				top = math.Max(top, math.Abs(float64(x)))
			}
			if strings.HasSuffix(param.Name, loraA) && !(top > limit*3/4 && top <= limit) ||
				strings.HasSuffix(param.Name, loraB) && top != 0 {
				t.Errorf("%s: largest element %v, want about %v in A and 0 in B", param.Name, top, limit)
			}
		}
	})
}

// peftOracle is a folder of testdata/lora (scripts/oracle/lora.py).
type peftOracle struct {
	Model string `json:"model"`
	Rows  []struct {
		IDs    []int32     `json:"ids"`
		Logits [][]float32 `json:"logits"`
	} `json:"rows"`
}

// rowLogits computes the logits of a text.
func rowLogits(t testing.TB, e *backend.Engine, m *Model, ids []int32) [][]float32 {
	p := pack([]group{{ids[:1], [][]int32{append(ids[1:len(ids):len(ids)], 0)}}}, false, 0)
	return logitsOf(t, e, m, p)
}

// Adapters that peft wrote give peft's logits, also after we have written them.
func TestParityWithPeft(t *testing.T) {
	dirs, err := filepath.Glob("testdata/lora/*")
	if err != nil || len(dirs) != 2 {
		t.Fatal(dirs, err)
	}
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for _, dir := range dirs {
			var o peftOracle
			expect.Decode(t, filepath.Join(dir, "oracle.json"), &o)
			base := load(t, filepath.Join("testdata", o.Model))
			m := expect.Must(base.LoadAdapter(dir))(t)
			written := filepath.Join(t.TempDir(), "adapter")
			expect.OK(t, (Writer{}).SaveAdapter(m, written, ""))
			again := expect.Must(base.LoadAdapter(written))(t)
			merged := mergedOf(t, m)
			models := []*Model{m, again, merged}
			if e.Name != "go" {
				models, o.Rows = models[:1], o.Rows[:1]
			}
			for _, row := range o.Rows {
				for _, m := range models {
					got := rowLogits(t, e, m, row.IDs)
					near(t, dir, worst(slices.Concat(got...), slices.Concat(row.Logits...)), 1e-4)
				}
			}
		}
	})
}

// TestAdapterOfATextPart: the adapter of a model that also sees has the names of the whole model, by which peft finds its
// layers; it is read with these, with the names before transformers 4.52, and with the names of the text part alone.
func TestAdapterOfATextPart(t *testing.T) {
	base := load(t, "testdata/gemma3-older")
	m, dir := adapted(t, base, "q_proj", "mlp.*"), t.TempDir()
	expect.OK(t, (Writer{}).SaveAdapter(m, dir, ""))
	text, err := os.ReadFile(filepath.Join(dir, adapterConfigFile))
	const want = `"target_modules": ".*language_model.*\\.(q_proj|gate_proj|up_proj|down_proj)"`
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v, %s: want %s", err, text, want)
	}
	file := expect.Bytes(t, filepath.Join(dir, adapterFile))
	for i, prefix := range []string{"model.language_model.", "language_model.model.", "model."} {
		var tensors []Tensor
		for _, p := range m.Trained() {
			name := "base_model.model." + prefix + strings.TrimPrefix(p.Name, "model.")
			tensors = append(tensors, Tensor{Name: name, Shape: p.Shape, Floats: p.Data})
			if i == 0 && !strings.Contains(string(file), `"`+name+`"`) {
				t.Errorf("%s is not in the file", name)
			}
		}
		expect.OK(t, (Writer{}).write(filepath.Join(dir, adapterFile), tensors, "F32", nil))
		again, err := base.LoadAdapter(dir)
		if err != nil {
			t.Fatal(prefix, err)
		}
		for k, p := range m.Trained() {
			if !slices.Equal(again.Trained()[k].Data, p.Data) {
				t.Errorf("%s: %s is read with other numbers", prefix, p.Name)
			}
		}
	}
}

// TestAdapterFaults holds that each damage of an adapter's folder, and each foreign adapter, is a clear error.
func TestAdapterFaults(t *testing.T) {
	plain := sharpModel(t, "llama")
	m := adapted(t, plain)
	m.Config.LoRA.Base = must(plain.Hash())
	config := func(from, to string) func(string) {
		return func(dir string) {
			path := filepath.Join(dir, adapterConfigFile)
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), from) {
				t.Fatal(err, string(text))
			}
			os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o666)
		}
	}
	tensors := func(change func([]Tensor) []Tensor) func(string) {
		return func(dir string) {
			path := filepath.Join(dir, adapterFile)
			all, meta, err := ReadTensors(path)
			if err == nil {
				err = WriteTensors(path, change(all), meta)
			}
			expect.OK(t, err)
		}
	}
	other := sharpModel(t, "llama")
	other.Params[0].Data[0]++
	for name, k := range map[string]struct {
		base   *Model
		damage func(dir string)
		want   string
	}{
		"no adapter": {plain, func(dir string) { os.Remove(filepath.Join(dir, adapterConfigFile)) },
			"want an adapter's folder"},
		"no tensors":    {plain, func(dir string) { os.Remove(filepath.Join(dir, adapterFile)) }, adapterFile},
		"other rank":    {plain, config(`"r": 3`, `"r": 4`), "want [4 "},
		"huge rank":     {plain, config(`"r": 3`, `"r": 70000`), "r: found 70000, want 1 to 65536"},
		"dora":          {plain, config(`"use_dora": false`, `"use_dora": true`), "use_dora: found true"},
		"rank pattern":  {plain, config(`"rank_pattern": {}`, `"rank_pattern": {"a": 2}`), "rank_pattern: found"},
		"not lora":      {plain, config(`LORA`, `IA3`), `peft_type: found "IA3", want LORA`},
		"biases":        {plain, config(`"none"`, `"all"`), "bias: found all, want none"},
		"pissa":         {plain, config(`"init_lora_weights": true`, `"init_lora_weights": "pissa"`), "pissa"},
		"other weights": {other, func(string) {}, "the adapter was trained on other weights than the model's"},
		"other shape":   {sharpModel(t, "llama", "intermediate_size", 20), func(string) {}, ""},
		"half an adapter": {plain, tensors(func(all []Tensor) []Tensor { return all[1:] }),
			"is missing: want A and B of a module in all"},
		"another tensor": {plain, tensors(func(all []Tensor) []Tensor {
			all[0].Name = "base_model.model.lm_head.lora_A.weight"
			return all
		}), "tensor base_model.model.lm_head.lora_A.weight: want adapters of linear layers"},
		"not finite": {plain, tensors(func(all []Tensor) []Tensor {
			all[0].Floats[1] = float32(math.NaN())
			return all
		}), "want finite weights"},
		"empty": {plain, tensors(func([]Tensor) []Tensor { return nil }), "there is no adapter in it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			expect.OK(t, (Writer{}).SaveAdapter(m, dir, ""))
			k.damage(dir)
			_, err := k.base.LoadAdapter(dir)
			expect.Error(t, err, k.want, dir)
		})
	}
	dir := t.TempDir()
	expect.OK(t, (Writer{}).SaveAdapter(m, dir, "bfloat16"))
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "holds an adapter, not a model") {
		t.Error(err)
	}
}

// TestAdapterModules holds which modules patterns mean.
func TestAdapterModules(t *testing.T) {
	const attention = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj"
	c := tiny(t, "qwen2").Config
	for _, k := range []struct{ patterns, want string }{
		{"", attention + " mlp.gate_proj mlp.up_proj mlp.down_proj"},
		{"v_proj q_proj", "self_attn.q_proj self_attn.v_proj"},
		{"mlp.*", "mlp.gate_proj mlp.up_proj mlp.down_proj"},
		{"self_attn.?_proj down_*", attention + " mlp.down_proj"},
	} {
		got, err := c.AdapterModules(strings.Fields(k.patterns))
		if err != nil || strings.Join(got, " ") != k.want {
			t.Errorf("%q: %v %v, want %s", k.patterns, got, err, k.want)
		}
	}
	for _, bad := range []string{"q_porj", "lm_head", "[", "input_layernorm"} {
		_, err := c.AdapterModules([]string{"q_proj", bad})
		const want = "want some of self_attn.q_proj, self_attn.k_proj"
		if err == nil || bad != "[" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
