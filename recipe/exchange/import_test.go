package exchange

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/gguf"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// fixtures are folders of model/testdata that scripts/oracle/gguf_models.py wrote as GGUF files with gguf-py.
var fixtures = []string{"llama-newer", "llama-older", "qwen2-older", "qwen3-newer", "mistral-older", "gemma2-older", "gemma3-newer",
	"phi3-older", "phi3-newer", "mixtral-older", "qwen3moe-newer"}

func folderOf(name string) string { return filepath.Join("..", "..", "model", "testdata", name) }

func fileOf(name string) string { return filepath.Join("testdata", name+".gguf") }

func load(t testing.TB, dir string) (*model.Model, *tokenizer.Tokenizer) {
	t.Helper()
	m, tok, err := local.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Release)
	return m, tok
}

func imported(t testing.TB, file, dtype string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "imported")
	if _, err := Import(t.Context(), ImportOptions{File: file, Out: out, DType: dtype}, nil); err != nil {
		t.Fatal(err)
	}
	card, err := os.ReadFile(filepath.Join(out, recipe.CardName))
	if base := filepath.Base(file); err != nil || !strings.Contains(string(card), "base_model: \""+base+"\"") ||
		!strings.Contains(string(card), ", from "+base) || strings.Contains(string(card), filepath.Dir(out)) {
		t.Errorf("card %s, %v", card, err)
	}
	return out
}

// TestImport: the weights are the folder's, rounded to the file's types, and config and tokenizer say the same.
func TestImport(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			want, wantTokens := load(t, folderOf(name))
			got, gotTokens := load(t, imported(t, fileOf(name), "auto"))
			sameConfig(t, got.Config, asLlamaCpp(want.Config))
			if eos, _ := wantTokens.EOS(); got.Config.EOS[0] != int(eos) {
				t.Errorf("texts end with %v, want %d first", got.Config.EOS, eos)
			}
			sameEnds(t, got.Config, want.Config) // of which the file has a key for one
			r := model.NewReader(max(got.Largest(), want.Largest()))
			for i, p := range want.Params {
				x, err := r.Read(p)
				x = slices.Clone(x)
				y, err2 := r.Read(got.Params[i])
				if err := errors.Join(err, err2); err != nil {
					t.Fatal(err)
				}
				for j := range x {
					if lift(want.Config, p) != 0 {
						x[j] = x[j] + 1 - 1
					}
					if len(p.Shape) > 1 && !strings.HasSuffix(placeOf(want.Config, p.Name).name, "ffn_gate_inp.weight") {
						x[j] = float.FromFloat16(float.Float16(x[j]))
					}
					if x[j] != y[j] {
						t.Fatalf("%s: number %d is %g, want %g", p.Name, j, y[j], x[j])
					}
				}
			}
			if !firstSpace[name] {
				sameTokens(t, gotTokens, wantTokens)
			}
		})
	}
}

// asLlamaCpp is a config with what llama.cpp takes in a model whatever the folder says.
func asLlamaCpp(c *model.Config) *model.Config {
	d := *c
	if gemma(c) {
		d.QueryScale = float64(c.HeadDim)
	}
	if d.Experts > 0 {
		d.NormExperts = true
		d.WindowLayers = nil
	}
	return &d
}

// sameEnds compares the tokens that end a text.
func sameEnds(t *testing.T, got, want *model.Config) {
	t.Helper()
	if !slices.Equal(slices.Sorted(slices.Values(got.EOS)), slices.Sorted(slices.Values(want.EOS))) {
		t.Errorf("texts end with %v, want %v", got.EOS, want.EOS)
	}
}

// sameConfig compares all that the decoder reads, but for the ids: the file has the tokenizer's ids.
func sameConfig(t *testing.T, got, want *model.Config) {
	t.Helper()
	var texts [2]string
	for i, c := range []*model.Config{got, want} {
		plain := *c
		plain.Raw, plain.Generation, plain.BOS, plain.Pad, plain.EOS = nil, nil, nil, nil, nil
		plain.InitRange = 0
		text, err := plain.JSON("")
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] {
		t.Errorf("config %s\nwant %s", texts[0], texts[1])
	}
}

var texts = []string{
	"", " ", "The clerk sent the report, and then thanked them.", "42 + 10?\n\tIt's 52.", "là 🙂", "  two  blanks ",
	"Der Zug nach München", "今日は晴れです。", "a\r\n\r\nb", "1234567 they'll",
}

func sameTokens(t *testing.T, got, want *tokenizer.Tokenizer) {
	t.Helper()
	all := slices.Clone(texts)
	turns := []tokenizer.Message{{Role: "user", Content: "Where is it?"}, {Role: "assistant", Content: "On the board."}}
	a, err := got.Render(turns, tokenizer.RenderOptions{})
	b, err2 := want.Render(turns, tokenizer.RenderOptions{})
	if err := errors.Join(err, err2); err != nil || a != b {
		t.Errorf("%v: renders %q, want %q", err, a, b)
	}
	for _, text := range append(all, b) {
		for _, special := range []bool{false, true} {
			x, err := got.Encode(text, special)
			y, err2 := want.Encode(text, special)
			if err := errors.Join(err, err2); err != nil || !slices.Equal(x, y) {
				t.Errorf("%q: %v: tokens %v, want %v", text, err, x, y)
			}
			if x, y := got.Decode(y, special), want.Decode(y, special); x != y {
				t.Errorf("%q decodes to %q, want %q", text, x, y)
			}
		}
	}
}

type changes = func(meta []gguf.Entry, tensors []gguf.Source) ([]gguf.Entry, []gguf.Source)

// edit writes a fixture again with other keys and tensors.
func edit(t *testing.T, name string, change changes) string {
	t.Helper()
	f, err := gguf.Open(fileOf(name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var tensors []gguf.Source
	for _, one := range f.Tensors {
		x := make([]float32, one.Size())
		if err := f.Read(&one, x); err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, gguf.Source{Name: one.Name, Shape: one.Shape, Type: one.Type,
			Read: func() ([]float32, error) { return x, nil }})
	}
	path := filepath.Join(t.TempDir(), "edited.gguf")
	meta, tensors := change(f.Meta, tensors)
	if err := gguf.Write(path, meta, tensors, func(int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return path
}

// with gives a key a value; nil takes it away.
func with(key string, value any) changes {
	return func(meta []gguf.Entry, tensors []gguf.Source) ([]gguf.Entry, []gguf.Source) {
		meta = slices.DeleteFunc(meta, func(e gguf.Entry) bool { return e.Key == key })
		if value != nil {
			meta = append(meta, gguf.Entry{Key: key, Value: value})
		}
		return meta, tensors
	}
}

func TestImportRefuses(t *testing.T) {
	tensors := func(f func([]gguf.Source) []gguf.Source) changes {
		return func(meta []gguf.Entry, t []gguf.Source) ([]gguf.Entry, []gguf.Source) { return meta, f(t) }
	}
	fill := func(n int, x float32) func() ([]float32, error) {
		return func() ([]float32, error) { return slices.Repeat([]float32{x}, n), nil }
	}
	for _, c := range []struct {
		change changes
		want   string
	}{
		{with("general.architecture", "gemma"), `general.architecture: found "gemma", want gemma2, gemma3, llama, phi3, qwen2, `},
		{with("general.architecture", nil), `general.architecture: found "", want gemma2`},
		{with("qwen2.block_count", nil), "qwen2.block_count: found nothing, want a whole number"},
		{with("qwen2.block_count", "2"), "qwen2.block_count: found 2, want a whole number"},
		{with("qwen2.block_count", uint32(3)), "tensor blk.2.attn_norm.weight is missing (qwen2, 3 layers)"},
		{with("qwen2.block_count", uint32(1)), `tensor "blk.1.`},
		{with("qwen2.attention.head_count", uint32(0)), "num_attention_heads: found 0, want 1 to 4096"},
		{with("qwen2.feed_forward_length", uint32(7)), ", want [7 "},
		{with("qwen2.rope.dimension_count", uint32(4)), "partial rotation is not supported"},
		{with("qwen2.rope.scaling.type", "yarn"), `qwen2.rope.scaling.type: found "yarn", want none, linear or longrope`},
		{with("qwen2.expert_count", uint32(8)), "qwen2.expert_count: found 8, which a qwen2 does not have"},
		{with("tokenizer.ggml.model", "bert"), `tokenizer.ggml.model: found "bert", want gpt2 or llama`},
		{with("tokenizer.ggml.pre", "dbrx"), `tokenizer.ggml.pre: found "dbrx", want gpt-2, `},
		{with("tokenizer.ggml.tokens", nil), "tokenizer.ggml.tokens: found nothing, want a list of texts"},
		{with("tokenizer.ggml.token_type", []int32{1}), "found 1 types, want one for each of 304 tokens"},
		{with("tokenizer.ggml.tokens", slices.Repeat([]string{"a"}, 304)),
			`found "a" as token 0 and 1, want each once`},
		{with("tokenizer.ggml.tokens", slices.Repeat([]string{"\xff"}, 304)), `found "\xff" as token 0, want UTF-8`},
		{with("tokenizer.ggml.merges", []string{"a nowhere"}), `model.merges[0]: "nowhere" is not in model.vocab`},
		{with("tokenizer.ggml.eos_token_id", uint32(9999)), "eos_token_id: found 9999, want an id below vocab_size"},
		{with("general.architecture", slices.Repeat([]uint8{255}, 1<<20)),
			"general.architecture: found a list of 1048576 values, want a text"},
		{with("tokenizer.ggml.model", "llama"), "tokenizer.ggml.scores: found 0 scores, want one for each of 304"},
		{tensors(func(t []gguf.Source) []gguf.Source {
			return append(t, gguf.Source{Name: "extra", Shape: []int{1}, Read: fill(1, 0)})
		}), `tensor "extra": a qwen2 model with these keys has no such tensor`},
		{tensors(func(t []gguf.Source) []gguf.Source {
			n := len(t) - 1
			t[n].Type, t[n].Read = gguf.F32, fill((&gguf.Tensor{Shape: t[n].Shape}).Size(), 1e38)
			return t
		}), "is not finite in float16"},
		{tensors(func(t []gguf.Source) []gguf.Source {
			return append(t, gguf.Source{Name: ropeFactors, Shape: []int{3}, Read: fill(3, 2)})
		}), "rope_freqs.weight: found 3 factors, want "},
		{tensors(func(t []gguf.Source) []gguf.Source {
			return slices.DeleteFunc(t, func(s gguf.Source) bool { return strings.HasSuffix(s.Name, ".bias") })
		}), "found blk.0.attn_q.bias false and blk.0.attn_output.bias false, want true and false in a qwen2"},
		{func(meta []gguf.Entry, t []gguf.Source) ([]gguf.Entry, []gguf.Source) {
			for i := range meta {
				meta[i].Key = strings.Replace(meta[i].Key, "qwen2.", "llama.", 1)
			}
			meta, _ = with("general.architecture", "llama")(meta, nil)
			return meta, t
		}, "found blk.0.attn_q.bias true and blk.0.attn_output.bias false"},
	} {
		path, out := edit(t, "qwen2-older", c.change), filepath.Join(t.TempDir(), "out")
		_, err := Import(t.Context(), ImportOptions{File: path, Out: out, DType: "float16"}, nil)
		if err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, c.want)
		}
		if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", c.want, left, err)
		}
	}
}

// TestKeysAreDecided: every key that gguf-py knows (scripts/oracle/gguf_keys.py) has a rule, and each rule says why.
func TestKeysAreDecided(t *testing.T) {
	var keys []string
	expect.Decode(t, filepath.Join("testdata", "gguf_keys.json"), &keys)
	if len(keys) < 200 {
		t.Fatalf("%d keys", len(keys))
	}
	for _, key := range append(keys, "{arch}.rope.scale_linear", "tokenizer.ggml.cls_token_id") {
		if _, ok := ruleOf(strings.TrimPrefix(key, "{arch}")); !ok {
			t.Errorf("%s has no rule", key)
		}
	}
	for _, rule := range keyRules {
		if (rule.why == "") != (rule.does == read) || (rule.only == nil) != (rule.does != only) {
			t.Errorf("%s: %d, %q, %v", rule.keys, rule.does, rule.why, rule.only)
		}
	}
}

// TestKeysThatChangeAModel: a value that an import cannot follow ends it with the key's name, and the one that says
// nothing does not.
func TestKeysThatChangeAModel(t *testing.T) {
	for _, c := range []struct {
		name, key   string
		bad, silent any
	}{
		{"qwen2-older", "qwen2.attention.causal", false, true},
		{"qwen2-older", "qwen2.attention.scale", float32(0.3), float32(0)},
		{"qwen2-older", "qwen2.logit_scale", float32(0.3), float32(1)},
		{"qwen2-older", "qwen2.residual_scale", float32(0.3), float32(1)},
		{"qwen2-older", "qwen2.embedding_scale", float32(12), float32(1)},
		{"qwen2-older", "qwen2.attention.max_alibi_bias", float32(8), float32(0)},
		{"qwen2-older", "qwen2.final_logit_softcapping", float32(30), float32(0)},
		{"qwen2-older", "qwen2.attn_logit_softcapping", float32(50), float32(0)},
		{"qwen2-older", "qwen2.rope.freq_base_swa", float32(77), nil},
		{"qwen2-older", "qwen2.rope.dimension_sections", []int32{16, 24, 24, 0}, []int32{0, 0, 0, 0}},
		{"qwen2-older", "qwen2.rope.scaling.attn_factor", float32(1.2), float32(1)},
		{"qwen2-older", "qwen2.pooling_type", uint32(3), uint32(0)},
		{"qwen2-older", "qwen2.attention.sliding_window_pattern", uint32(2), uint32(1)},
		{"qwen2-older", "qwen2.attention.layer_norm_rms_epsilon", nil, float32(1e-6)},
		{"qwen2-older", "qwen2.a_key_of_tomorrow", uint32(0), nil},
		{"qwen2-older", "general.type", "adapter", "model"},
		{"qwen2-older", "adapter.type", "lora", nil},
		{"qwen2-older", "tokenizer.ggml.pre", nil, "qwen2"},
		{"qwen2-older", "tokenizer.ggml.pre", "default", "qwen2"},
		{"qwen2-older", "tokenizer.ggml.add_sep_token", true, false},
		{"qwen2-older", "tokenizer.ggml.remove_extra_whitespaces", true, false},
		{"qwen2-older", "tokenizer.ggml.precompiled_charsmap", []int8{1}, nil},
		{"qwen3moe-newer", "qwen3moe.expert_weights_norm", false, true},
		{"qwen3moe-newer", "qwen3moe.expert_weights_scale", float32(2.5), float32(1)},
		{"qwen3moe-newer", "qwen3moe.expert_gating_func", uint32(2), uint32(1)},
		{"qwen3moe-newer", "qwen3moe.expert_shared_count", uint32(1), uint32(0)},
		{"gemma3-newer", "gemma3.attention.sliding_window_pattern", []bool{true}, nil},
		{"gemma3-newer", "gemma3.attn_logit_softcapping", float32(50), float32(0)},
		{"phi3-newer", "phi3.rope.scaling.factor", float32(2), float32(1)}, // beside factors of frequencies
	} {
		for value, refused := range map[*any]bool{&c.bad: true, &c.silent: false} {
			path := edit(t, c.name, with(c.key, *value))
			out := filepath.Join(t.TempDir(), "out")
			_, err := Import(t.Context(), ImportOptions{File: path, Out: out, DType: "float32"}, nil)
			if refused && (err == nil || !strings.HasPrefix(err.Error(), path+": "+c.key+": found ")) {
				t.Errorf("%s %v: %v, want an error that names the key", c.key, *value, err)
			}
			if !refused && err != nil {
				t.Errorf("%s %v: %v", c.key, *value, err)
			}
		}
	}
}

// TestLinearScaling: a factor without a type stretches positions, as does the key's old spelling, and as llama.cpp
// has it.
func TestLinearScaling(t *testing.T) {
	for _, key := range []string{"qwen2.rope.scaling.factor", "qwen2.rope.scale_linear"} {
		m, _ := load(t, imported(t, edit(t, "qwen2-older", with(key, float32(4))), "float32"))
		if s := m.Config.RopeScaling; s == nil || s.Type != "linear" || s.Factor != 4 {
			t.Errorf("%s: scaling %+v, want linear by 4", key, s)
		}
	}
	f, err := gguf.Open(edit(t, "gemma2-older", with("gemma2.attention.sliding_window", nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if c, err := readConfig(f); err != nil || c.SlidingWindow != 4096 {
		t.Errorf("%v: a gemma2 without the key has no window of 4096", err)
	}
}

// TestImportRefusesBrokenBlocks: a block of q8_0 whose scale is NaN or infinite.
func TestImportRefusesBrokenBlocks(t *testing.T) {
	path := edit(t, "qwen2-older", func(meta []gguf.Entry, all []gguf.Source) ([]gguf.Entry, []gguf.Source) {
		i := slices.IndexFunc(all, func(s gguf.Source) bool { return s.Name == "blk.1.ffn_up.weight" })
		n := (&gguf.Tensor{Shape: all[i].Shape}).Size()
		all[i].Type, all[i].Read = gguf.Q80, func() ([]float32, error) { return slices.Repeat([]float32{63.5}, n), nil }
		return meta, all
	})
	whole := expect.Bytes(t, path)
	block := append([]byte{0x00, 0x38}, bytes.Repeat([]byte{127}, 32)...) // 0.5, and 32 times 127
	at := bytes.LastIndex(whole, block)
	for scale, found := range map[uint16]string{0x7e00: "NaN", 0x7c00: "+Inf", 0xfc00: "-Inf"} {
		binary.LittleEndian.PutUint16(whole[at:], scale)
		expect.Write(t, path, whole)
		out := filepath.Join(t.TempDir(), "out")
		_, err := Import(t.Context(), ImportOptions{File: path, Out: out, DType: "auto"}, nil)
		expect.Error(t, err, path+": tensor model.layers.1.mlp.up_proj.weight: found "+found+" at element ")
		if _, err := os.Stat(out); err == nil {
			t.Error("a folder is left")
		}
	}
}

// TestVocabulariesAreBounded: a few bytes of a file may ask for many merges, or for much text in JSON.
func TestVocabulariesAreBounded(t *testing.T) {
	binary := []string{} // all texts of 0 and 1: each is joined of two others in many ways
	for n := 1; n <= 15; n++ {
		for i := range 1 << n {
			binary = append(binary, fmt.Sprintf("%0*b", n, i))
		}
	}
	for want, c := range map[string]struct {
		kind           string
		tokens, merges []string
		types          []int32
		template       string
	}{
		"tokenizer.ggml.tokens: found 1048576 bytes in token 1, want at most 256": {kind: "llama",
			tokens: []string{"a", strings.Repeat("a", 1<<20)}},
		"tokenizer.ggml.scores: found more than 32 MiB":         {kind: "llama", tokens: binary},
		"tokenizer.ggml.merges: found more than 32 MiB":         {merges: slices.Repeat([]string{""}, maxTexts/perText)},
		"tokenizer.chat_template: found more than 32 MiB":       {template: strings.Repeat("\x01", maxTexts/8)},
		"token_type: found more than 131072 tokens that are no": {types: slices.Repeat([]int32{control}, 1<<17+1)},
	} {
		tokens, types := c.tokens, c.types
		for i := len(tokens); i < max(1, len(types)); i++ {
			tokens = append(tokens, fmt.Sprint(i))
		}
		if types == nil {
			types = slices.Repeat([]int32{normal}, len(tokens))
		}
		path := filepath.Join(t.TempDir(), "x.gguf")
		err := gguf.Write(path, []gguf.Entry{{Key: "tokenizer.ggml.model", Value: cmp.Or(c.kind, "gpt2")},
			{Key: "tokenizer.ggml.tokens", Value: tokens}, {Key: "tokenizer.ggml.token_type", Value: types},
			{Key: "tokenizer.ggml.scores", Value: make([]float32, len(tokens))},
			{Key: "tokenizer.ggml.merges", Value: c.merges}, {Key: "tokenizer.chat_template", Value: c.template},
			{Key: "tokenizer.ggml.pre", Value: "gpt-2"}, {Key: "tokenizer.ggml.add_bos_token", Value: false}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = readTokenizer(f)
		expect.Error(t, err, path, want)
		f.Close()
	}
}

func TestImportRefusesFolders(t *testing.T) {
	full := t.TempDir()
	expect.Write(t, filepath.Join(full, "x"), "")
	out := filepath.Join(t.TempDir(), "out")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		o    ImportOptions
		want string
	}{
		{t.Context(), ImportOptions{File: fileOf("qwen2-older"), Out: full, DType: "auto"}, "the folder is not empty"},
		{t.Context(), ImportOptions{File: "none.gguf", Out: out, DType: "auto"},
			"none.gguf: no such file or directory"},
		{t.Context(), ImportOptions{File: fileOf("qwen2-older"), Out: out, DType: "int8"},
			`dtype "int8": want auto, float32, bfloat16 or float16`},
		{ended, ImportOptions{File: fileOf("qwen2-older"), Out: out, DType: "auto"}, "interrupted: nothing was written"},
	} {
		if _, err := Import(c.ctx, c.o, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a folder is left")
	}
}

// TestFactors: Llama 3.1's factors, with their settings.
func TestFactors(t *testing.T) {
	c := &model.Config{HeadDim: 128, RopeTheta: 500000}
	got := llamaFactors(c, &model.RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4,
		OriginalMaxPositions: 8192})
	for i, want := range map[int]float32{0: 1, 20: 1, 40: 8, 63: 8} {
		if math.Abs(float64(got[i]-want)) > 1e-5 {
			t.Errorf("factor %d is %g, want %g", i, got[i], want)
		}
	}
}

// FuzzImport changes all that comes before the weights. An import is refused in one line that begins with the file's
// name, or its tokenizer is one that can be read or is refused so.
func FuzzImport(f *testing.F) {
	expect.LimitMemory(f)
	const weights = 1 << 17
	for _, name := range fixtures {
		b := expect.Bytes(f, fileOf(name))
		const last = "output_norm.weight" // and 24 bytes: one dimension, type and place
		f.Add(b[:bytes.LastIndex(b, []byte(last))+len(last)+24])
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		defer expect.Within(string(head[:min(len(head), 200)]))()
		file, err := gguf.Read(bytes.NewReader(append(head, make([]byte, weights)...)), int64(len(head)+weights))
		if err != nil {
			return
		}
		in, err := newImporter(ImportOptions{File: "x.gguf", DType: "auto"}, file)
		if err == nil {
			folder := fstest.MapFS{}
			for name, text := range in.vocab {
				folder[name] = &fstest.MapFile{Data: text}
			}
			_, err = tokenizer.LoadFS(folder, "x.gguf")
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "x.gguf") || strings.Contains(err.Error(), "\n")) {
			t.Fatalf("%q", err)
		}
	})
}
