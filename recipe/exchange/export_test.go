package exchange

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
)

// folders are the models of model/testdata, but for one that llama.cpp has no keys for.
var folders = []string{"llama-newer", "llama-older", "mistral-newer", "mistral-older", "qwen2-older", "qwen3-newer",
	"qwen3-older", "phi3-older", "phi3-newer", "mixtral-older", "mixtral-newer"}

// edits make of other folders what llama.cpp has keys for.
var edits = map[string][]string{
	"gemma2-older": {`"query_pre_attn_scalar": 10`, `"query_pre_attn_scalar": 12`},
	"gemma3-newer": {`"query_pre_attn_scalar": 14`, `"query_pre_attn_scalar": 12`, "\"full_attention\"\n",
		"\"sliding_attention\"\n", `sliding_window_pattern": 2`, `sliding_window_pattern": 6`},
	"qwen3moe-newer": {`"norm_topk_prob": false`, `"norm_topk_prob": true`, `"use_sliding_window": true`,
		`"use_sliding_window": false`},
}

// edited is a copy of a folder with another config.
func edited(t *testing.T, name string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(folderOf(name))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "config.json")
	expect.Write(t, path, strings.NewReplacer(edits[name]...).Replace(expect.Read(t, path)))
	return folder
}

// firstSpace are folders whose tokenizers put a space before the very beginning of a text alone.
var firstSpace = map[string]bool{"mistral-newer": true, "phi3-newer": true, "mixtral-newer": true}

// quick are options that prove little.
func quick(t *testing.T, folder, kind string) ExportOptions {
	return ExportOptions{Model: folder, GGUF: kind, Out: filepath.Join(t.TempDir(), "model.gguf"), Backend: "go"}
}

func export(t *testing.T, o ExportOptions) (said string, p Proof) {
	t.Helper()
	said, err := Export(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	expect.Decode(t, o.beside(proofEnding), &p)
	return said, p
}

// TestExportReturns: a file of float32 becomes the folder again, bit for bit, with its ends and its tokens.
func TestExportReturns(t *testing.T) {
	for _, name := range slices.Concat(folders, slices.Sorted(maps.Keys(edits))) {
		t.Run(name, func(t *testing.T) {
			folder := edited(t, name)
			o := quick(t, folder, "f32")
			_, p := export(t, o)
			// (1 + x) - 1 is x to the precision of 1
			if p.Weights.Largest > 6e-8 || p.Weights.Largest > 0 && !strings.HasPrefix(name, "gemma") {
				t.Errorf("weights %+v", p.Weights)
			}
			for _, text := range p.Texts {
				// of Mistral's newer tokenizers only the very beginning of a text gets a space before it
				if !text.Equal && (!firstSpace[name] || text.Question != "") {
					t.Errorf("%q has other tokens", text.Text)
				}
			}
			want, wantTokens := load(t, folder)
			got, gotTokens := load(t, imported(t, o.Out, "auto"))
			if want.Config.ModelType == "mistral" && want.Config.SlidingWindow == 0 {
				want.Config.ModelType = "llama" // which computes the same
			}
			sameConfig(t, got.Config, want.Config)
			sameEnds(t, got.Config, want.Config)
			if !firstSpace[name] {
				sameTokens(t, gotTokens, wantTokens)
			}
		})
	}
}

// TestPhi3StripsBehindTokens: blanks behind its added tokens go with them, in the file too.
func TestPhi3StripsBehindTokens(t *testing.T) {
	folder := edited(t, "phi3-older")
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"} {
		path := filepath.Join(folder, name)
		expect.Write(t, path, strings.ReplaceAll(expect.Read(t, path), `"rstrip": false`, `"rstrip": true`))
	}
	o := quick(t, folder, "f32")
	export(t, o)
	_, tokens := load(t, imported(t, o.Out, "auto"))
	for text, want := range map[string]bool{"[INST] \n a": true, "<s> \n a": false} {
		ids, err := tokens.Encode(text, false)
		bare, err2 := tokens.Encode(strings.ReplaceAll(text, " \n ", ""), false)
		if errors.Join(err, err2) != nil || slices.Equal(ids, bare) != want {
			t.Errorf("%q: tokens %v, without blanks %v", text, ids, bare)
		}
	}
}

// TestExportNamesEndsLeftOut: a GGUF file names three tokens that end a text.
func TestExportNamesEndsLeftOut(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(folderOf("llama-older"))); err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"eos_token_id":[1,2,3,4,5]}`)
	expect.Write(t, filepath.Join(folder, "generation_config.json"), text)
	heard := &testkit.Recorder{}
	if _, err := Export(t.Context(), quick(t, folder, "f32"), heard); err != nil {
		t.Fatal(err)
	}
	if want := "has keys for 3 tokens that end a text: ["; !strings.Contains(strings.Join(heard.Warned, "\n"), want) {
		t.Errorf("%q, want %q", heard.Warned, want)
	}
}

// TestExportProves: the numbers of a file in each type, smaller types with larger changes.
func TestExportProves(t *testing.T) {
	last := 0.0
	for _, kind := range []string{"f32", "f16", "bf16", "q8_0"} {
		o := quick(t, embedded.Name, kind)
		o.Answers = 2
		_, p := export(t, o)
		if len(p.Answers) != 2 || p.Logps.Count == 0 || len(p.SHA256) != 64 || p.Type != kind {
			t.Errorf("%s: %+v", kind, p)
		}
		switch {
		case kind == "f32" && (p.Weights.Largest != 0 || p.Logps.Largest != 0 || !p.Answers[0].Whole):
			t.Errorf("f32: %+v", p)
		case kind != "f32" && p.Weights.Squares <= last:
			t.Errorf("%s changes weights by %g, a larger type by %g", kind, p.Weights.Squares, last)
		}
		last = p.Weights.Squares
	}
}

// TestExportWidens: matrices whose rows are no whole blocks are f16.
func TestExportWidens(t *testing.T) {
	said, _ := export(t, quick(t, folderOf("llama-older"), "q8_0"))
	if !strings.Contains(said, "2 matrices are f16: their rows are no multiple of 32 numbers\n") {
		t.Error(said)
	}
}

func TestExportRefuses(t *testing.T) {
	reward, _ := testkit.RewardModel(t, filepath.Join("..", "..", "model", "testdata"), "llama")
	there := quick(t, folderOf("qwen2-older"), "f32")
	expect.Write(t, there.beside(proofEnding), "")
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(folderOf("qwen2-older"))); err != nil {
		t.Fatal(err)
	}
	spec := filepath.Join(other, "tokenizer.json")
	expect.Write(t, spec, strings.Replace(expect.Read(t, spec), `\\p{N}|`, `\\p{N}+|`, 1))
	change := func(f func(*ExportOptions)) ExportOptions {
		o := quick(t, folderOf("qwen2-older"), "f32")
		f(&o)
		return o
	}
	for _, c := range []struct {
		o    ExportOptions
		want string
	}{
		{change(func(o *ExportOptions) { o.GGUF = "q4_0" }), `gguf "q4_0": want f32, f16, bf16 or q8_0`},
		{change(func(o *ExportOptions) { o.Out = "model.bin" }), `out "model.bin": want a file to make, NAME.gguf`},
		{change(func(o *ExportOptions) { o.Answers = 9 }), "answers 9: want"},
		{change(func(o *ExportOptions) { o.Model = folderOf("gemma-newer") }), "model_type: found gemma, want one of gemma2, "},
		{change(func(o *ExportOptions) { o.Model = folderOf("gemma2-newer") }), "query_pre_attn_scalar: found 14, want 12, which "},
		{change(func(o *ExportOptions) { o.Model = folderOf("gemma3-newer") }), "layer_types: want every layer but each 6-th"},
		{change(func(o *ExportOptions) { o.Model = folderOf("qwen3moe-newer") }), "norm_topk_prob: found false, want true"},
		{change(func(o *ExportOptions) { o.Model = folderOf("qwen2-yarn") }), "rope_scaling: yarn cannot be exported"},
		{change(func(o *ExportOptions) { o.Model = "nowhere" }), "nowhere"},
		{change(func(o *ExportOptions) { o.Backend, o.Answers = "tpu", 1 }), "tpu"},
		{change(func(o *ExportOptions) { o.Model = reward }), "it is a reward model"},
		{change(func(o *ExportOptions) { o.Model = folderOf("qwen2-newer") }),
			"layer_types: a sliding window in some layers has no place in a GGUF file of qwen2"},
		{there, "model.proof.json: it is there already; name another file"},
		{change(func(o *ExportOptions) { o.Model = other }), "pre_tokenizer: found one (Split "},
	} {
		_, err := Export(t.Context(), c.o, nil)
		expect.Error(t, err, c.want)
		if _, err := os.Stat(c.o.Out); err == nil {
			t.Errorf("%s: a file is left", c.want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	o := quick(t, folderOf("qwen2-older"), "f32")
	if _, err := Export(ended, o, nil); err == nil || !errors.Is(err, recipe.ErrInterrupted) {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(o.Out)); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}
