package rollout

import (
	"math"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// TestEchoIsTheTrainers: a prompt's tokens have the log-probs that training measures, whole or in pieces of the head,
// and its likeliest next token is the one that is drawn.
func TestEchoIsTheTrainers(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		kinds := model.Types
		if e.Name == "xla" { // which compiles for seconds
			kinds = kinds[:1]
		}
		for _, kind := range kinds {
			m := testkit.Model(t, kind)
			all := []Options{{}, {Graph: model.GraphOptions{HeadChunk: 5}}}
			if kind != kinds[0] {
				all = all[:1]
			}
			for _, o := range all {
				echoesAre(t, setup{e, implementations[1]}.of(t, m, o).(*Cached), m)
				if e.Wants.SharedMemory && kind == kinds[0] { // and as engines that keep the cache
					echoesAre(t, setup{e, implementations[3]}.of(t, m, o).(*Cached), m)
				}
			}
		}
	})
}

func echoesAre(t *testing.T, s *Cached, m *model.Model) {
	t.Helper()
	rs := requests(6, 1, 0)
	var prompts [][]int32
	var wants []Completion // each prompt as an answer to its own first token
	asked := make([]Request, len(rs))
	for i, r := range rs {
		prompts = append(prompts, r.Prompt)
		asked[i].Prompt = r.Prompt[:1]
		wants = append(wants, Completion{Tokens: r.Prompt[1:]})
	}
	logps, drawn := logProbs(t, m, asked, wants), sample(t, s, rs...)
	echoes := expect.Must(s.Echo(prompts))(t)
	for i, e := range echoes {
		last := len(prompts[i]) - 1
		if len(e.Logps) != last+1 || len(e.Top) != last+1 || e.Best[last] != drawn[i].Tokens[0] ||
			math.Abs(float64(e.Top[last]-drawn[i].Logps[0])) > 2e-5 {
			t.Fatalf("%s, prompt %d: %+v, then %+v is drawn", m.Config.ModelType, i, e, drawn[i])
		}
		for k, want := range logps[i] {
			best := e.Best[k] == prompts[i][k+1]
			if math.Abs(float64(e.Logps[k]-want)) > 2e-5 || e.Logps[k] > e.Top[k] || best != (e.Logps[k] == e.Top[k]) {
				t.Errorf("%s, prompt %d, token %d: log-prob %v, trainer %v, at most %v of token %d", m.Config.ModelType,
					i, k, e.Logps[k], want, e.Top[k], e.Best[k])
			}
		}
	}
}
