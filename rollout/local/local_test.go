package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// hello is a question whose answer has so many tokens at most.
func hello(most int) ask.Question {
	return ask.Question{Prompt: data.Text{Messages: []data.Message{{Role: "user", Content: "Hello"}}},
		Sampling: rollout.Sampling{MaxNew: most}}
}

func TestOpenAnswers(t *testing.T) {
	m := expect.Must(local.Open("go", embedded.Name))(t)
	defer m.Close()
	if m.Model.Params[0].Data != nil {
		t.Error("the host keeps a copy of the weights that the engine has")
	}
	q, done := hello(3), 0
	answers, err := m.Chat(func(n int) { done = n }).Answer(t.Context(), []ask.Question{q, q})
	if err != nil || done != 2 || len(answers) != 2 || answers[0][0].Text != answers[1][0].Text {
		t.Errorf("%v, %d done: %+v", err, done, answers)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct{ engine, folder, want string }{
		{"go", t.TempDir(), "config.json"},
		{"tpu", embedded.Name, `"tpu"`},
	} {
		if _, err := local.Open(c.engine, c.folder); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s on %s: %v, want %s", c.folder, c.engine, err, c.want)
		}
	}
}

// TestRewardModelsDoNotAnswer, and language models do not score.
func TestRewardModelsDoNotAnswer(t *testing.T) {
	dir, _ := testkit.RewardModel(t, "../../model/testdata", "llama")
	_, err := local.Open("go", dir)
	if err == nil || err.Error() != dir+": it is a reward model (LlamaForSequenceClassification), which scores texts "+
		"and writes none: want a language model" {
		t.Error(err)
	}
	if _, _, err = local.LoadReward(embedded.Name); err == nil ||
		!strings.HasPrefix(err.Error(), "embedded: it is a language model (") {
		t.Error(err)
	}
}

// answer is what the model says now.
func answer(t *testing.T, m *local.Model) string {
	t.Helper()
	answers := expect.Must(m.Chat(nil).Answer(t.Context(), []ask.Question{hello(12)}))(t)
	return answers[0][0].Text
}

// TestReloadAndAdapters: new weights answer otherwise, and an adapter belongs to the weights of the moment. It has the
// chat template in its folder, which changes no other's.
func TestReloadAndAdapters(t *testing.T) {
	base, tok, err := local.Load(embedded.Name)
	expect.OK(t, err)
	modules := expect.Must(base.Config.AdapterModules(nil))(t)
	adapted := base.Adapt(model.LoRA{Rank: 2, Alpha: 4, Modules: modules, Base: testkit.Hash(t, base)}, 1)
	for _, p := range adapted.Trained() {
		for i := range p.Data {
			p.Data[i] += 0.2
		}
	}
	adapter, other := t.TempDir(), t.TempDir()
	expect.OK(t, (model.Writer{}).SaveAdapter(adapted, adapter, "float32"))
	expect.OK(t, errors.Join(model.Init(base.Config, 5).Save(other, "float32"), tok.CopyTo(other)))
	m := expect.Must(local.Open("go", embedded.Name))(t)
	defer m.Close()
	before := answer(t, m)
	a := expect.Must(m.Adapted(adapter))(t)
	with := answer(t, a)
	a.Close()
	own := filepath.Join(adapter, "chat_template.jinja")
	expect.OK(t, os.WriteFile(own, []byte("{{ messages[0].content }}!"), 0o600))
	asks := func(m *local.Model) string {
		text, _ := m.Tokenizer.Render([]tokenizer.Message{{Role: "user", Content: "Hello"}}, tokenizer.RenderOptions{})
		return text
	}
	b := expect.Must(m.Adapted(adapter))(t)
	if asks(b) != "Hello!" || asks(m) == "Hello!" || asks(a) != asks(m) {
		t.Errorf("prompts %q, of the model %q, of an adapter without a template %q", asks(b), asks(m), asks(a))
	}
	b.Close()
	if with == before || answer(t, m) != before {
		t.Errorf("with the adapter %q, before %q, then %q", with, before, answer(t, m))
	}
	expect.OK(t, m.Reload(other))
	if answer(t, m) == before {
		t.Errorf("%q with other weights", before)
	}
	if _, err := m.Adapted(adapter); err == nil || !strings.Contains(err.Error(), "other weights") {
		t.Errorf("%v: want the adapter of the old weights refused", err)
	}
	if err := m.Reload(t.TempDir()); err == nil {
		t.Error("an empty folder was loaded")
	}
	now, turned := answer(t, m), *base.Config
	turned.RopeTheta *= 2
	expect.OK(t, model.Init(&turned, 5).Save(other, "float32"))
	if err := m.Reload(other); err == nil || !strings.Contains(err.Error(), "another model than the one that is "+
		"served: RopeTheta 20000, not 10000") || answer(t, m) != now {
		t.Errorf("%v: want weights of another rotation refused", err)
	}
	third := t.TempDir()
	expect.OK(t, errors.Join(model.Init(base.Config, 6).Save(third, "float32"), m.Reload(third),
		model.Init(base.Config, 7).Save(third, "bfloat16")))
	if _, err := m.Adapted(adapter); err == nil || !strings.Contains(err.Error(), "has changed since") {
		t.Errorf("%v: the files are not those that are served", err)
	}
}
