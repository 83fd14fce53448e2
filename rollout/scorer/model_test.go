package scorer

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

const fixtures = "../../model/testdata"

func byModel(dir, engine string) Options {
	o := Defaults()
	o.Kind, o.Model.Folder, o.Model.Backend, o.Model.Batch, o.Model.Plain = Model, dir, engine, 4, "text"
	return o
}

func openModelOf(t *testing.T, o Options) ask.Judge {
	t.Helper()
	s := expect.Must(Open(o, Caller{Warn: t.Logf}))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func answersOf(rows []testkit.RewardRow) (answers []ask.Answer) {
	for i, r := range rows {
		q := &ask.Question{Prompt: r.Prompt, Source: fmt.Sprintf("p.jsonl:%d", i+1)}
		answers = append(answers, ask.Answer{To: q, Said: r.Response})
	}
	return answers
}

// TestModelScoresAsTransformers: conversations and plain texts, alone and among others, on every engine.
func TestModelScoresAsTransformers(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for _, kind := range []string{"llama", "mistral", "qwen2", "qwen3", "gemma", "armo", "urm"} {
			dir, rows := testkit.RewardModel(t, fixtures, kind)
			if !slices.Contains([]string{"llama", "armo", "urm"}, kind) && !backendtest.AllVariants(t, e) {
				continue
			}
			s := openModelOf(t, byModel(dir, e.Name))
			all := answersOf(rows)
			for _, call := range [][]ask.Answer{all, all[:1], all} {
				scores := expect.Must(s.Score(t.Context(), call))(t)
				for i, x := range scores {
					if x.Missing != "" || math.Abs(x.Value-rows[i].Score) > 1e-4 {
						t.Errorf("%s: text %d: %+v: transformers has %v", kind, i, x, rows[i].Score)
					}
				}
			}
		}
	})
}

// TestModelEncodesAsTransformers: the tokens are what the chat template gives for the whole conversation, without the
// pad tokens at their end.
func TestModelEncodesAsTransformers(t *testing.T) {
	for _, kind := range []string{"llama", "mistral", "qwen2", "qwen3", "gemma", "urm"} {
		dir, rows := testkit.RewardModel(t, fixtures, kind)
		n := openModelOf(t, byModel(dir, "go")).(*network)
		for i, a := range answersOf(rows) {
			g, err := n.encoder.Scored(a.To.Source, n.pad, a.To.Prompt, a.Response())
			want := rows[i].IDs
			for n.pad != nil && int(want[len(want)-1]) == *n.pad {
				want = want[:len(want)-1]
			}
			if err != nil || !slices.Equal(g.Prompt, want) {
				t.Errorf("%s: text %d: %v %v: transformers has %v", kind, i, g.Prompt, err, want)
			}
		}
	}
}

// TestPlainTextsGoThroughTheTemplate: a plain prompt with its answer has the score of the same conversation, and one
// line says so.
func TestPlainTextsGoThroughTheTemplate(t *testing.T) {
	dir, _ := testkit.RewardModel(t, fixtures, "armo")
	o, said := byModel(dir, "go"), []string{}
	o.Model.Plain = "template"
	s, err := Open(o, Caller{Say: func(f string, args ...any) { said = append(said, fmt.Sprintf(f, args...)) }})
	expect.OK(t, err)
	defer s.Close()
	text := func(role, s string) data.Text { return data.Text{Messages: []data.Message{{Role: role, Content: s}}} }
	answers := []ask.Answer{
		{To: &ask.Question{Prompt: text("user", "France?")}, Said: text("assistant", "Paris")},
		{To: &ask.Question{Prompt: data.Text{Plain: "France?"}}, Said: data.Text{Plain: " Paris"}}}
	for range 2 {
		scores, err := s.Score(t.Context(), answers)
		if err != nil || scores[0].Value != scores[1].Value {
			t.Fatal(scores, err)
		}
	}
	if len(said) != 1 || !strings.Contains(said[0], "go through the model's chat template") {
		t.Errorf("said %q", said)
	}
}

// TestGate: ArmoRM's head looks at the turn that begins the answer, the last one, and refuses a text without one.
func TestGate(t *testing.T) {
	dir, rows := testkit.RewardModel(t, fixtures, "armo")
	s, answers := openModelOf(t, byModel(dir, "go")), answersOf(rows)
	alone := expect.Must(s.Score(t.Context(), answers))(t)
	longer, q := answers[0], *answers[0].To
	q.Prompt.Messages = append([]data.Message{{Role: "user", Content: "Hello?"},
		{Role: "assistant", Content: "Yes."}}, q.Prompt.Messages...)
	longer.To = &q
	scores, err := s.Score(t.Context(), []ask.Answer{longer, answers[1]})
	if err != nil || scores[0].Value == alone[0].Value || math.Abs(scores[1].Value-alone[1].Value) > 1e-5 {
		t.Errorf("%v, %v: alone %v", scores, err, alone[:2])
	}
	_, err = s.Score(t.Context(), plain("a"))
	expect.Error(t, err, ": the text has no turn of an assistant (")
}

// TestModelIsDeterministic: the same answers have the same bits, also in another process's place: a second source.
func TestModelIsDeterministic(t *testing.T) {
	dir, rows := testkit.RewardModel(t, fixtures, "qwen2")
	var first []ask.Score
	for range 2 {
		s := openModelOf(t, byModel(dir, "go"))
		for range 2 {
			scores := expect.Must(s.Score(t.Context(), answersOf(rows)))(t)
			if first == nil {
				first = scores
			}
			if !reflect.DeepEqual(scores, first) {
				t.Errorf("%v, then %v", first, scores)
			}
		}
	}
}

// TestLongAnswersHaveNoScore, and cost the others nothing.
func TestLongAnswersHaveNoScore(t *testing.T) {
	dir, rows := testkit.RewardModel(t, fixtures, "llama")
	answers := answersOf(rows[:2])
	answers[0].Said = data.Text{Messages: []data.Message{{Role: "assistant", Content: strings.Repeat("no ", 300)}}}
	scores, err := openModelOf(t, byModel(dir, "go")).Score(t.Context(), answers)
	want := "tokens, and reward model " + dir + " has positions for 256"
	if err != nil || !strings.HasSuffix(scores[0].Missing, want) || math.Abs(scores[1].Value-rows[1].Score) > 1e-4 {
		t.Errorf("%v, %v: want %s", scores, err, want)
	}
}

// TestModelsThatCannotScore gives each a line.
func TestModelsThatCannotScore(t *testing.T) {
	change := func(file, from, to string) string {
		dir, _ := testkit.RewardModel(t, fixtures, "llama")
		path := filepath.Join(dir, file)
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), from) {
			t.Fatal(err)
		}
		expect.Write(t, path, strings.Replace(string(b), from, to, 1))
		return dir
	}
	causal := filepath.Join(fixtures, "llama-newer")
	for dir, want := range map[string]string{
		causal: causal + ": it is a language model (LlamaForCausalLM), which has no head that scores: want a reward " +
			"model",
		change("config.json", `{"0": "LABEL_0"}`, `{"0": "bad", "1": "good"}`): "config.json: id2label: found 2 " +
			"labels, want 1: the head of a reward model gives one number",
		"nowhere": "nowhere: there is no such folder",
	} {
		_, err := Open(byModel(dir, "go"), Caller{})
		if err == nil || !strings.HasPrefix(err.Error(), "reward: model.folder: ") ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: want %s", err, want)
		}
	}
}

// TestVocabularyOfAnotherModel: the tokenizer has ids that the embedding has no rows for.
func TestVocabularyOfAnotherModel(t *testing.T) {
	dir, _ := testkit.RewardModel(t, fixtures, "llama")
	m := expect.Must(model.Load(dir))(t)
	rows := m.Config.VocabSize - 5
	m.Config.VocabSize, m.Config.EOS, m.Config.BOS = rows, nil, nil
	m.Params[0].Shape, m.Params[0].Data = []int{rows, m.Config.HiddenSize}, m.Params[0].Data[:rows*m.Config.HiddenSize]
	expect.OK(t, m.Save(dir, ""))
	_, err := Open(byModel(dir, "go"), Caller{})
	want := "reward: model.folder: " + dir + "/tokenizer.json: ids go up to 307, but vocab_size in config.json is 303: "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v: want %s", err, want)
	}
}

// TestConversationsNeedATemplate, plain texts do not.
func TestConversationsNeedATemplate(t *testing.T) {
	dir, rows := testkit.RewardModel(t, fixtures, "llama")
	expect.OK(t, os.Remove(filepath.Join(dir, "chat_template.jinja")))
	s, answers := openModelOf(t, byModel(dir, "go")), answersOf(rows)
	_, err := s.Score(t.Context(), answers)
	want := "reward model " + dir + ": p.jsonl:1: the row is a conversation, for which the model must have a chat " +
		"template"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v: want %s", err, want)
	}
	texts := slices.DeleteFunc(answers, func(a ask.Answer) bool { return a.To.Prompt.IsChat() })
	if _, err := s.Score(t.Context(), texts); err != nil || len(texts) == 0 {
		t.Error(err)
	}
}

// TestScoresThatAreNotNumbers end the run: the model's weights overflow.
func TestScoresThatAreNotNumbers(t *testing.T) {
	dir, rows := testkit.RewardModel(t, fixtures, "llama")
	m := expect.Must(model.Load(dir))(t)
	for i := range m.Params[m.HeadTable()].Data {
		m.Params[m.HeadTable()].Data[i] = math.MaxFloat32 * float32(1-2*(i%2))
	}
	expect.OK(t, m.Save(dir, ""))
	_, err := openModelOf(t, byModel(dir, "go")).Score(t.Context(), answersOf(rows[:1]))
	if err == nil || !strings.HasPrefix(err.Error(), "reward model "+dir+": it gives ") ||
		!strings.Contains(err.Error(), "for the answer of p.jsonl:1: want a finite number") {
		t.Error(err)
	}
}

func TestModelStopsWithItsContext(t *testing.T) {
	dir, rows := testkit.RewardModel(t, fixtures, "llama")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openModelOf(t, byModel(dir, "go")).Score(ctx, answersOf(rows)); err != context.Canceled {
		t.Error(err)
	}
}
