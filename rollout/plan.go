package rollout

import (
	"context"
	"fmt"
	"slices"
)

// Plan says how many requests are answered at once, and what their cache takes.
type Plan struct {
	Requests  int
	Prompt    int // tokens
	New       int // tokens of an answer at most
	Rows      int // answered at once
	Tokens    int // that a row has room for
	SlotBytes int // of a token's keys and values
	Programs  int // that steps go through: fewer and fewer rows, as answers end
	Most      int // bytes that the cache may take
	Devices   int // that have a share of the rows each
}

// Plan plans a call of requests with prompts and completions of given lengths. Samples of a prompt, which share its
// part of the cache, may take less.
func (s *Cached) Plan(requests, prompt, maxNew int) (Plan, error) {
	p := s.planner()
	prompt = min(prompt, p.positions-1)
	r := Request{Prompt: make([]int32, prompt), Sampling: Sampling{MaxNew: maxNew}}
	if err := p.check(r); err != nil {
		return Plan{}, err
	}
	all := make([]Request, requests)
	for i := range all {
		all[i] = r
	}
	rows, programs := 0, inGraphPrograms
	if p.inGraph {
		rows = p.forAll(all).slots
	} else {
		rows = p.rowsOf(p.fit(all))
		programs = 1 + slices.Index(p.rowCounts(), rows)
	}
	return Plan{Requests: requests, Prompt: prompt, New: maxNew, Rows: rows, Programs: programs, Tokens: p.lengthOf(r), SlotBytes: p.slotBytes,
		Most: p.most, Devices: s.engine.Devices()}, nil
}

// Rehearse answers the requests of a plan, samples for each prompt, whose answers all have their full length. It is for a
// device that is not there, which then has compiled what a step of sampling runs.
func (s *Cached) Rehearse(ctx context.Context, p Plan, samples int) error {
	all := make([]Request, p.Requests)
	for i := range all {
		prompt := make([]int32, p.Prompt)
		prompt[0] = int32(i / samples)
		all[i] = Request{Prompt: prompt, Sampling: Sampling{MaxNew: p.New, Temperature: 1}, StopTokens: []int32{}}
	}
	_, err := s.Sample(ctx, all)
	return err
}

// inGraphPrograms read the prompts, and step with all rows and with few. Long prompts are read by several small ones.
const inGraphPrograms = 3

// RowBytes is what the cache of one row takes.
func (p Plan) RowBytes() int { return p.Tokens * p.SlotBytes }

// Bytes is what the cache takes.
func (p Plan) Bytes() int { return p.Rows * p.RowBytes() }

func (p Plan) String() string {
	at := "all of them"
	if p.Rows < p.Requests {
		at = fmt.Sprint(p.Rows)
	}
	where := ""
	if p.Devices > 1 {
		where = fmt.Sprintf("on %d devices together: ", p.Devices)
	}
	return where + fmt.Sprintf("%d completions, %s at once; %.1f MB of cache each (%d tokens of %.1f kB), %.2f GB of at "+
		"most %.2f GB", p.Requests, at, float64(p.RowBytes())/1e6, p.Tokens, float64(p.SlotBytes)/1e3,
		float64(p.Bytes())/1e9, float64(p.Most)/1e9)
}
