package rollout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/tokenizer"
)

// scripted is a Sampler that answers what follows "say " in the prompt, or the request's seed for "say seed".
type scripted struct {
	tokenizer *tokenizer.Tokenizer
	calls     []int // requests of each call
}

func (s *scripted) Sample(ctx context.Context, requests []Request) ([]Completion, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.calls = append(s.calls, len(requests))
	var all []Completion
	for _, r := range requests {
		all = append(all, Completion{Text: script(s.tokenizer.Decode(r.Prompt, true), r.Seed), Reason: EOS})
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

func local(t *testing.T) (*Local, *scripted) {
	t.Helper()
	tok, err := tokenizer.Load("../model/testdata/qwen2-newer")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{tokenizer: tok}
	return &Local{Sampler: s, Encoder: &batch.Encoder{Tokenizer: tok}}, s
}

// chats returns all implementations, each answering by script.
func chats(t *testing.T) map[string]Chat {
	l, _ := local(t)
	remote := serve(t, func(w http.ResponseWriter, a asked, _ int) {
		var texts []string
		for i := range a.N {
			texts = append(texts, script(a.Messages[0].Content, uint64(a.Seed+i)))
		}
		fmt.Fprint(w, replyJSON(texts...))
	})
	return map[string]Chat{"local": l, "remote": remote}
}

// TestChat checks every Chat's promises.
func TestChat(t *testing.T) {
	for name, c := range chats(t) {
		t.Run(name, func(t *testing.T) {
			var cs []Conversation
			for i := range 300 {
				cs = append(cs, Conversation{Messages: []data.Message{{Role: "user",
					Content: fmt.Sprintf("say %d", i)}}, Samples: i % 3, Sampling: Sampling{MaxNew: 4}})
			}
			got, err := c.Answer(t.Context(), cs)
			if err != nil || len(got) != len(cs) {
				t.Fatalf("%d answered, %v", len(got), err)
			}
			for i, answers := range got {
				if len(answers) != max(1, i%3) || answers[0].Text != fmt.Sprint(i) || answers[0].Reason != EOS {
					t.Fatalf("conversation %d: %v", i, answers)
				}
			}
			draws := Conversation{Messages: []data.Message{{Role: "user", Content: "say seed"}}, Samples: 4,
				Sampling: Sampling{MaxNew: 4}, Seed: 1}
			other := draws
			other.Seed = 2
			got, err = c.Answer(t.Context(), []Conversation{draws, draws, other})
			if err != nil || !slices.Equal(got[0], got[1]) || slices.Contains(got[2], got[0][0]) ||
				got[0][0] == got[0][1] {
				t.Errorf("seeds: %v, %v", got, err)
			}
			why := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(why)
			if _, err := c.Answer(ctx, cs); err != why {
				t.Errorf("%v, want the context's cause", err)
			}
			if got, err := c.Answer(t.Context(), nil); err != nil || len(got) != 0 {
				t.Errorf("nothing asked: %v, %v", got, err)
			}
		})
	}
}

// TestLocalBatches: calls have the expected sizes, and progress is reported.
func TestLocalBatches(t *testing.T) {
	l, s := local(t)
	var ticks []int
	l.Tick = func(done int) { ticks = append(ticks, done) }
	c := Conversation{Messages: []data.Message{{Role: "user", Content: "say a"}}, Samples: 60,
		Sampling: Sampling{MaxNew: 1}}
	big := c
	big.Samples = 200
	if _, err := l.Answer(t.Context(), []Conversation{c, c, c, big, c}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(s.calls, ticks) != "[120 60 200 60] [2 3 4 5]" {
		t.Error(s.calls, ticks)
	}
}

// TestPrefill: a local model continues the given beginning; a server refuses one.
func TestPrefill(t *testing.T) {
	l, _ := local(t)
	c := Conversation{Messages: []data.Message{{Role: "user", Content: "hi"}}, Prefill: ci.ThinkPrefill,
		Sampling: Sampling{MaxNew: 1}}
	ids, err := l.Prompt(c)
	if text := l.Encoder.Tokenizer.Decode(ids, false); err != nil || !strings.HasSuffix(text, "<think>\n") {
		t.Errorf("%q, %v", text, err)
	}
	r := serve(t, func(http.ResponseWriter, asked, int) { t.Error("asked") })
	if _, err := r.Answer(t.Context(), []Conversation{c}); err == nil ||
		!strings.Contains(err.Error(), "beginning of the answer") {
		t.Error(err)
	}
}
