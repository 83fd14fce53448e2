package privacylens

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/rollout/metered"
	"github.com/posttrain/posttrain/rollout/metered/meteredtest"
)

// All 493 cases with their 1,487 items, against a server that fails at every tenth request, with a stage that is
// stopped in the middle, loses its own last rows and continues with another client: every question has its verdict, and
// none is answered by the server twice.
func TestWholeBenchmarkWithFaults(t *testing.T) {
	cases := realCases(t, "main_data.json")
	actions := map[string]string{}
	for i := range cases {
		actions[cases[i].Name] = "Action: Send\nAction Input: {\"body\": \"" + cases[i].Name + "\"}"
	}
	server := meteredtest.Start(t, meteredtest.Options{Faults: 0.1, Stall: time.Minute, Seed: 7,
		Reply: func(prompt string) string {
			if strings.Contains(prompt, "Excellent (3)") {
				return "Answer: Good (2)"
			}
			return "Answer: No"
		}})
	dir := t.TempDir()
	r := openRun(t, filepath.Join(dir, "run"), cases)
	if err := r.Import(actions, nil); err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context, tick func(bench.Progress)) (metered.Stats, error) {
		client := must[*metered.Client](t)(metered.Open(metered.Options{
			BaseURL: server.URL, Model: "m", Cache: filepath.Join(dir, "cache.jsonl"), Parallel: 32,
			Timeout: 3 * time.Second, Wait: time.Millisecond,
		}))
		o := someJudge(t, client)
		o.Parallel, o.Tick = 32, tick
		err := r.Judge(ctx, o)
		return client.Stats(), errors.Join(err, client.Close())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	first, err := ask(ctx, func(p bench.Progress) {
		if p.Calls == 700 {
			cancel(enough)
		}
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	tear(t, r.Path(verdictsName))
	var last bench.Progress
	second, err := ask(t.Context(), func(p bench.Progress) { last = p })
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := r.Report()
	if err != nil || last.Calls != 1980 || s.All.Verdicts != 1980 || s.All.Helpfulness.Sum != 2*493 ||
		s.All.Leakage.Count != 0 || s.All.Unparsed != 0 {
		t.Errorf("%v, %+v, %+v", err, last, s.All)
	}
	answered, _ := server.Requests()
	for _, n := range server.Faults() {
		answered -= n
	}
	if answered != 1980 {
		t.Errorf("%d questions answered, want every one of 1980 once\n%+v\n%+v\nfaults %v", answered, first, second,
			server.Faults())
	}
}
