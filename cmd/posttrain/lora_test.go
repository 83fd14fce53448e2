package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
)

// writeAdapter writes an adapter of a model folder that changes its outputs.
func writeAdapter(t *testing.T, folder, out string) {
	t.Helper()
	m, err := model.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := m.Config.AdapterModules([]string{"self_attn.*", "down_proj"})
	if err != nil {
		t.Fatal(err)
	}
	m = m.Adapt(model.LoRA{Rank: 2, Alpha: 4, Modules: modules, Base: testkit.Hash(t, m)}, 1)
	for i, p := range m.Trained() {
		for k := range p.Data {
			p.Data[k] += 0.1 * float32((i+7*k)%13-6)
		}
	}
	if err := (model.Writer{}).SaveAdapter(m, out, ""); err != nil {
		t.Fatal(err)
	}
}

// TestAdapterCommands trains adapters with mappo and sft, samples with them, and merges them.
func TestAdapterCommands(t *testing.T) {
	work(t, "qwen2-newer")
	o := must(t, tinyMappo(3, "--lora-rank", "2", "--set", "lora.targets=[q_proj, mlp.*]", "--set",
		"train.learning_rate=0.05")...)
	for _, part := range []string{"adapter/ is step 3, the last", "\nAdapter: " + filepath.Join("out", "adapter")} {
		if !strings.Contains(o.out, part) {
			t.Errorf("lacks %q:\n%s", part, o.out)
		}
	}
	if !strings.Contains(o.err, " frozen parameters and ") {
		t.Errorf("no line about memory:\n%s", o.err)
	}
	for name, there := range map[string]bool{"out/adapter/adapter_config.json": true, "out/model": false,
		"out/adapter/tokenizer.json": true, "out/checkpoints/step-00000003/adapter/adapter_model.safetensors": true,
		"out/checkpoints/step-00000003/model": false} {
		if _, err := os.Stat(name); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
	write(t, "demos.jsonl", messageLines(12))
	o = must(t, tiny("sft", 2, "--data", "demos.jsonl", "--adapter", "out/adapter", "--out", "more")...)
	if !strings.Contains(o.out, "more/adapter") {
		t.Error(o.out)
	}
	sample := func(args ...string) string {
		return must(t, append([]string{"generate", "--backend", "go", "--prompt", "The clerk", "--temperature", "0",
			"--max-new-tokens", "12"}, args...)...).out
	}
	plain, adapted := sample("--model", "model"), sample("--model", "model", "--adapter", "out/adapter")
	said := must(t, "model", "export", "--model", "model", "--adapter", "out/adapter", "--out", "merged", "--dtype",
		"float32").out
	if !strings.Contains(said, "merged into 8 matrices") {
		t.Error(said)
	}
	if merged := sample("--model", "merged"); plain == adapted || adapted != merged {
		t.Errorf("the model writes %q, with its adapter %q, merged %q", plain, adapted, merged)
	}
	said = must(t, "model", "export", "--model", "model", "--adapter", "out/adapter", "--out", "half", "--dtype",
		"bfloat16").out
	if !strings.Contains(said, "stored as bfloat16") {
		t.Error(said)
	}
	o = must(t, tiny("sft", 2, "--data", "demos.jsonl", "--adapter", "out/adapter", "--quantize", "nf4", "--out",
		"few")...)
	if !strings.Contains(o.err, "memory: 2.5 bytes for each of") {
		t.Error(o.err)
	}
	must(t, "model", "export", "--model", "model", "--adapter", "few/adapter", "--out", "whole")
}

// TestAdapterTemplate: the chat template of an adapter's folder, in either file, holds for what samples, merges and trains
// with it; chat.template comes before it. Of an adapter with the model's template nothing changes.
func TestAdapterTemplate(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "demos.jsonl", messageLines(6))
	write(t, "prompts.jsonl", `{"prompt": "Hello"}`+"\n")
	const own = "own: {% for m in messages %}{{ m.content }} {% endfor %}"
	write(t, "own.jinja", own)
	write(t, "other.jinja", "other "+own)
	train := func(out string, more ...string) {
		must(t, tiny("sft", 1, append(more, "--data", "demos.jsonl", "--out", out)...)...)
	}
	train("a", "--lora-rank", "2", "--set", "chat.template=own.jinja")
	writeAdapter(t, "model", "config")
	write(t, "config/tokenizer_config.json", `{"chat_template": [{"name": "default", "template": "`+own+`"},
		{"name": "rag", "template": "more"}]}`)
	writeAdapter(t, "model", "none")
	tokens := func(args ...string) string {
		must(t, append([]string{"generate", "--backend", "go", "--max-new-tokens", "1", "--temperature", "0", "--input",
			"prompts.jsonl", "--out", "answers.jsonl", "--model"}, args...)...)
		defer remove(t, "answers.jsonl")
		return read(t, "answers.jsonl")
	}
	for adapter, template := range map[string]string{"a/adapter": "own", "config": "own", "none": ""} {
		merged := adapter + "/merged"
		must(t, "model", "export", "--model", "model", "--adapter", adapter, "--out", merged)
		want := read(t, "model/chat_template.jinja")
		if template != "" {
			want = own
		}
		if got := read(t, merged+"/chat_template.jinja"); got != want {
			t.Errorf("%s: merged the chat template is %q", adapter, got)
		}
		if tokens(merged) != tokens("model", "--adapter", adapter) {
			t.Errorf("%s: generate has another answer than the merged model", adapter)
		}
	}
	if text := read(t, "config/merged/additional_chat_templates/rag.jinja"); text != "more" {
		t.Error(text)
	}
	train("b", "--adapter", "a/adapter")
	train("c", "--adapter", "a/adapter", "--set", "chat.template=other.jinja")
	for dir, want := range map[string]string{"b": "own.jinja", "c": "other.jinja"} {
		if got := read(t, dir+"/adapter/chat_template.jinja"); got != read(t, want) {
			t.Errorf("%s: the chat template is %q, want %s", dir, got, want)
		}
	}
	write(t, "none/tokenizer_config.json", `{"chat_template": [{"name": "../out", "template": ""}]}`)
	o := cli(t, "generate", "--model", "model", "--adapter", "none", "--prompt", "Hello")
	if want := `none/tokenizer_config.json: chat_template "../out": want a name`; !strings.Contains(o.last(), want) {
		t.Error(o.last())
	}
}

// TestMergeFaults: what cannot be merged is one clear error, and leaves no folder.
func TestMergeFaults(t *testing.T) {
	work(t, "qwen2-newer")
	writeAdapter(t, "model", "adapter")
	must(t, "model", "export", "--model", "model", "--adapter", "adapter", "--out", "merged")
	copyModel(t, fixture("qwen2-older"), "other")
	for _, k := range []struct {
		name, model, adapter, want string
	}{
		{"twice", "merged", "adapter", "the adapter was trained on other weights"},
		{"other weights", "embedded", "adapter", "tensor"},
		{"no adapter", "model", "nowhere", "want an adapter's folder"},
		{"a model as adapter", "model", "model", "want an adapter's folder"},
		{"an adapter as model", "adapter", "adapter", "adapter holds an adapter, not a model"},
	} {
		t.Run(k.name, func(t *testing.T) {
			o := cli(t, "model", "export", "--model", k.model, "--adapter", k.adapter, "--out", "new")
			if o.code != 1 || !strings.Contains(o.err, k.want) || strings.Count(o.err, "\n") != 1 {
				t.Errorf("exit code %d: %s, want a line with %q", o.code, o.err, k.want)
			}
			if _, err := os.Stat("new"); err == nil {
				t.Error("there is a folder new")
			}
		})
	}
}

// TestAdapterCIRL: ci-rl with a KL term, and live adapter weights on frozen ones in few bits in its sampler.
func TestAdapterCIRL(t *testing.T) {
	workCI(t)
	must(t, tinyCIRL(2, "--max-new-tokens", "16", "--group-size", "2", "--lora-rank", "2", "--quantize", "nf4")...)
	kl := 0.0
	for _, r := range metrics(t, "out") {
		kl = max(kl, r.Values["sampling/sampling_logp_difference/max"])
	}
	if kl > 1e-3 {
		t.Errorf("sampler and trainer differ by %v", kl)
	}
	if _, err := os.Stat("out/adapter/adapter_model.safetensors"); err != nil {
		t.Error(err)
	}
}
