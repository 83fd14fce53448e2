package privacylens

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/posttrain/posttrain/data"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/metered"
)

// realCases are those of a real data file; without the data the test is skipped.
func realCases(t testing.TB, name string) []lens.Case {
	t.Helper()
	path := need.File(t, "data", "privacylens/"+name)
	cases, _, err := lens.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// agent is a chat that says in every case what a function of the prompt says.
type agent func(prompt string) (string, error)

func (a agent) Answer(ctx context.Context, talks []rollout.Conversation) ([][]rollout.Answer, error) {
	out := make([][]rollout.Answer, len(talks))
	for i, talk := range talks {
		text, err := a(talk.Messages[0].Content)
		if err != nil {
			return nil, err
		}
		out[i] = []rollout.Answer{{Text: text, Reason: rollout.EOS}}
	}
	return out, nil
}

// asker is a model that answers what a function says, and remembers what it was asked.
type asker struct {
	mu    sync.Mutex
	asked map[string]int
	say   func(prompt string) (string, error)
}

func (a *asker) Chat(_ context.Context, messages []data.Message) (metered.Reply, error) {
	prompt := messages[0].Content
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked == nil {
		a.asked = map[string]int{}
	}
	text, err := a.say(prompt)
	if err == nil {
		a.asked[prompt]++
	}
	return metered.Reply{Text: text}, err
}

func (a *asker) calls() (n int) {
	for _, k := range a.asked {
		n += k
	}
	return n
}

// wantError checks that an error is one line that holds every one of the parts.
var wantError = expect.Error

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func openRun(t *testing.T, dir string, cases []lens.Case) *store {
	t.Helper()
	return must[*store](t)(openStore(dir, cases))
}

// readReplay reads recorded verdicts and, unless scores is empty, recorded helpfulness.
func readReplay(t *testing.T, verdicts, scores string, cases []lens.Case) *replay {
	t.Helper()
	r := &replay{Verdicts: must[map[string]lens.Verdict](t)(lens.ReadVerdicts(verdicts, cases))}
	if scores != "" {
		r.Scores = must[map[string]int](t)(lens.ReadScores(scores, cases))
	}
	return r
}
