package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
)

func TestMain(m *testing.M) { os.Exit(expect.NoLeaks(m)) }

// scripted is a sampler that answers what follows "say " in the prompt, or the request's seed for "say seed".
type scripted struct{ tokenizer *tokenizer.Tokenizer }

func (s scripted) Sample(ctx context.Context, requests []rollout.Request) (all []rollout.Completion, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for _, r := range requests {
		all = append(all, said(script(s.tokenizer.Decode(r.Prompt, true), r.Seed), rollout.EOS).Completion)
	}
	return all, nil
}

func script(prompt string, seed uint64) string {
	_, what, _ := strings.Cut(prompt, "say ")
	what, _, _ = strings.Cut(what, "\n")
	if what == "seed" {
		return fmt.Sprint(seed)
	}
	return what
}

// models returns all implementations, each answering by script.
func models(t *testing.T) map[string]ask.Model {
	tok, err := tokenizer.Load("../../model/testdata/qwen2-newer")
	if err != nil {
		t.Fatal(err)
	}
	client := serve(t, func(w http.ResponseWriter, a asked, _ int) {
		var texts []string
		for i := range a.N {
			texts = append(texts, script(a.Messages[0].Content, uint64(a.Seed+i)))
		}
		fmt.Fprint(w, replyJSON(texts...))
	})
	return map[string]ask.Model{"remote": client,
		"local": &ask.Local{Sampler: scripted{tok}, Encoder: &batch.Encoder{Tokenizer: tok}}}
}

// TestModel checks every model's promises.
func TestModel(t *testing.T) {
	for name, m := range models(t) {
		t.Run(name, func(t *testing.T) {
			var questions []ask.Question
			for i := range 300 {
				q := talk(fmt.Sprintf("say %d", i))
				q.Samples, q.MaxNew = i%3, 4
				questions = append(questions, q)
			}
			got, err := m.Answer(t.Context(), questions)
			if err != nil || len(got) != len(questions) {
				t.Fatalf("%d answered, %v", len(got), err)
			}
			for i, answers := range got {
				if a := answers[0]; len(answers) != max(1, i%3) || a.Text != fmt.Sprint(i) || a.Reason != rollout.EOS ||
					a.To != &questions[i] {
					t.Fatalf("question %d: %v", i, answers)
				}
			}
			draws := talk("say seed")
			draws.Samples, draws.MaxNew, draws.Seed = 4, 4, 1
			other := draws
			other.Seed = 2
			got, err = m.Answer(t.Context(), []ask.Question{draws, draws, other})
			if err != nil {
				t.Fatal(err)
			}
			one, again, others := texts(got[0]), texts(got[1]), texts(got[2])
			if one[0] == one[1] || !slices.Equal(one, again) || slices.Contains(others, one[0]) {
				t.Errorf("seeds: %v, %v, %v", one, again, others)
			}
			why := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(why)
			if _, err := m.Answer(ctx, questions); err != why {
				t.Errorf("%v, want the context's cause", err)
			}
			if got, err := m.Answer(t.Context(), nil); err != nil || len(got) != 0 {
				t.Errorf("nothing asked: %v, %v", got, err)
			}
		})
	}
}

func texts(answers []ask.Answer) (all []string) {
	for _, a := range answers {
		all = append(all, a.Text)
	}
	return all
}
