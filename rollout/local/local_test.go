package local_test

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

func TestOpenAnswers(t *testing.T) {
	m, err := local.Open("go", embedded.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Model.Params[0].Data != nil {
		t.Error("the host keeps a copy of the weights that the engine has")
	}
	ask := rollout.Conversation{
		Messages: []data.Message{{Role: "user", Content: "Hello"}}, Sampling: rollout.Sampling{MaxNew: 3},
	}
	done := 0
	answers, err := m.Chat(func(n int) { done = n }).Answer(t.Context(), []rollout.Conversation{ask, ask})
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
