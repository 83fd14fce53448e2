package generate_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/generate"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

func options() generate.Options {
	o, prompt := generate.Spec.Defaults(), "Hello"
	o.Backend, o.Prompt, o.MaxNew = "go", &prompt, 5
	return o
}

func TestRun(t *testing.T) {
	o, out := options(), &bytes.Buffer{}
	o.Writer = out
	got, err := generate.Run(t.Context(), o, nil)
	if err != nil || len(got.Rows) != 1 || len(got.Rows[0].Tokens) > 5 ||
		got.Rows[0].Completion.Plain+"\n" != out.String() {
		t.Fatalf("%+v, %v, written %q", got, err, out)
	}
	o.Writer, o.Samples = nil, 3
	many, err := generate.Run(t.Context(), o, nil)
	if err != nil || len(many.Rows) != 3 || many.Rows[0].Completion.Plain != got.Rows[0].Completion.Plain {
		t.Errorf("%+v, %v", many, err)
	}
}

// TestToolsOfPrompts: the file that is written has the tools of each prompt, for sft.
func TestToolsOfPrompts(t *testing.T) {
	dir := t.TempDir()
	o := options()
	o.Prompt, o.Input, o.Out, o.Template.Template = nil, dir+"/p.jsonl", dir+"/out.jsonl", dir+"/t.jinja"
	err := errors.Join(os.WriteFile(o.Input, []byte(`{"prompt":[{"role":"user","content":"Q"}],"tools":[{"name":"<a>"}]}
{"prompt":[{"role":"user","content":"Q"}]}`), 0o600), os.WriteFile(o.Template.Template,
		[]byte("{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = generate.Run(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	rows, _, err := data.ReadDemonstrations(o.Out)
	if err != nil || rows[0].Prompt.Messages[0].Tools != `[{"name":"<a>"}]` || rows[1].Prompt.Messages[0].Tools != "" {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestSpecialTokensOfCalls: answers to prompts with tools keep their special tokens, which may be the marks of calls.
func TestSpecialTokensOfCalls(t *testing.T) {
	_, tok, err := local.Load(embedded.Name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := options()
	o.Prompt, o.Input, o.Samples, o.MaxNew, o.Temperature = nil, dir+"/p.jsonl", 16, 100, 50
	if err := os.WriteFile(o.Input, []byte(`{"prompt":[{"role":"user","content":"Q"}],"tools":[{"name":"a"}]}
{"prompt":[{"role":"user","content":"Q"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := generate.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	special := 0
	for i, row := range got.Rows {
		tokens := row.Tokens
		if row.Reason == rollout.EOS {
			tokens = tokens[:len(tokens)-1]
		}
		keeps := i < o.Samples
		if want := tok.Decode(tokens, !keeps); row.Completion.Last() != want {
			t.Errorf("answer %d: %q, want %q", i, row.Completion.Last(), want)
		}
		if keeps && tok.Decode(tokens, true) != tok.Decode(tokens, false) {
			special++
		}
	}
	if special == 0 {
		t.Error("no answer has a special token")
	}
}

// TestAnswersOfOtherWeights: kept answers of the weights that a folder had before are not taken.
func TestAnswersOfOtherWeights(t *testing.T) {
	m, tok, err := local.Load("embedded")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := options()
	o.Model, o.Out = filepath.Join(dir, "model"), filepath.Join(dir, "out.jsonl")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	run := func(ctx context.Context, seed uint64) error {
		err := errors.Join(model.Init(m.Config, seed).Save(o.Model, "float32"), tok.CopyTo(o.Model))
		if err != nil {
			t.Fatal(err)
		}
		_, err = generate.Run(ctx, o, nil)
		return err
	}
	if err := run(stopped, 1); !errors.Is(err, recipe.ErrInterrupted) {
		t.Fatal(err)
	}
	expect.Error(t, run(t.Context(), 2), "has the answers of an interrupted run with other prompts, another model or")
	if err := run(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

func TestRunRefuses(t *testing.T) {
	for want, change := range map[string]func(*generate.Options){
		"top_k -1":               func(o *generate.Options) { o.TopK = -1 },
		"temperature 0 always":   func(o *generate.Options) { o.Temperature, o.Seed = 0, 3 },
		"prompt or input":        func(o *generate.Options) { o.Input = "p.jsonl" },
		"nothing to continue":    func(o *generate.Options) { o.Prompt = nil },
		"max_new_tokens 1000000": func(o *generate.Options) { o.MaxNew = 1_000_000 },
	} {
		o := options()
		change(&o)
		if _, err := generate.Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	o := options()
	o.MaxNew = 1_000_000
	if _, err := generate.Run(t.Context(), o, nil); !errors.As(err, new(fault.Fault)) {
		t.Errorf("%v is no fault of an option", err)
	}
}

func TestTalk(t *testing.T) {
	o, out := generate.ChatSpec.Defaults(), &bytes.Buffer{}
	o.Backend, o.MaxNew, o.Temperature, o.Writer = "go", 5, 0, out
	c, err := generate.Talk(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(message string) string {
		out.Reset()
		if err := c.Reply(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	first := ask("Hello")
	if ask(" ") != "" {
		t.Error("a blank message got an answer")
	}
	ask("And now?")
	c.Forget()
	if again := ask("Hello"); again != first {
		t.Errorf("%q, and %q in a new conversation", first, again)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := c.Reply(stopped, "Lost"); !errors.Is(err, recipe.ErrInterrupted) {
		t.Errorf("%v of a stopped answer", err)
	}
	path := t.TempDir() + "/c.jsonl"
	c.SetSystem("Be brief.")
	if err := errors.Join(c.Save(path), c.Save(path)); err != nil {
		t.Fatal(err)
	}
	rows, _, err := data.ReadDemonstrations(path)
	if err != nil || len(rows) != 2 {
		t.Errorf("%v, %v: want the conversation twice", rows, err)
	}
}
