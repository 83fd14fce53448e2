package preference

import (
	"context"
	"fmt"
	"os"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Names of the files of round n: the answers as they come, their scores as they come, and both for offline use.
func answersName(n int) string { return fmt.Sprintf("round-%d-answers.jsonl", n+1) }
func scoresName(n int) string  { return fmt.Sprintf("round-%d-scores.jsonl", n+1) }
func tableName(n int) string   { return fmt.Sprintf("round-%d.jsonl", n+1) }

// part is the prompts of round n, counted from 0.
func (m *onlineTraining) part(n int) []prompt {
	all := len(m.prompts)
	return m.prompts[n*all/m.o.Online.Rounds : (n+1)*all/m.o.Online.Rounds]
}

// make makes the pairs of round n. Its error says in which round.
func (m *onlineTraining) make(ctx context.Context, n int) ([]data.Preference, scorer.Tally, error) {
	var tally scorer.Tally
	groups, err := m.sample(ctx, n)
	if err != nil {
		return nil, tally, m.explain(ctx, n, "answers were sampled", err)
	}
	scores, err := m.score(ctx, n, groups)
	if err != nil {
		return nil, tally, m.explain(ctx, n, "answers were scored", err)
	}
	if err := m.store(n, groups, scores); err != nil {
		return nil, tally, err
	}
	pairs, tally, err := scorer.Pairs(groups, scores)
	if err != nil {
		return nil, tally, fmt.Errorf("round %d of %d: %w", n+1, m.o.Online.Rounds, err)
	}
	return pairs, tally, nil
}

// explain says in which round something stopped, and how to continue.
func (m *onlineTraining) explain(ctx context.Context, n int, what string, err error) error {
	if ctx.Err() != nil {
		return m.StopError("in round %d of %d, while %s", n+1, m.o.Online.Rounds, what)
	}
	return fmt.Errorf("round %d of %d: %w (what is done is in %s: --resume continues it)", n+1, m.o.Online.Rounds, err,
		m.Folder.Dir)
}

// sample draws the answers of a round that are missing.
func (m *onlineTraining) sample(ctx context.Context, n int) (groups []scorer.Group, err error) {
	prompts := m.part(n)
	drawn, err := scorer.Keep[[]string](m.Folder.Path(answersName(n)), m.identifyRound(n), len(prompts), scorer.Drawn)
	if err != nil {
		return nil, err
	}
	atOnce := scorer.PromptsAtOnce(m.o.Online.Samples)
	err = drawn.Fill(ctx, m, "prompt", atOnce, func(ctx context.Context, from, to int) ([][]string, error) {
		return m.draw(ctx, n, from, prompts[from:to])
	})
	for i, texts := range drawn.Done {
		p := prompts[i]
		groups = append(groups, scorer.Group{Prompt: p.Text, Answers: texts, Row: p.Row, Item: p.Item, Prefilled: p.Prefilled,
			Source: p.Source})
	}
	return groups, err
}

// draw samples the answers to prompts of round n, the first of which has this number. A request's draws follow from the
// run's seed, the round, and the places of prompt and answer.
func (m *onlineTraining) draw(ctx context.Context, n, first int, prompts []prompt) (answers [][]string, err error) {
	samples := m.o.Online.Samples
	var requests []rollout.Request
	for i, p := range prompts {
		one := rollout.Request{Sampling: m.o.Online.Sampling, Prompt: p.Tokens,
			Seed: rollout.DrawSeed(rollout.DrawSeed(m.Seed, n), first+i)}
		requests = append(requests, one.Samples(samples)...)
	}
	completions, err := m.sampler.Sample(ctx, requests)
	if err != nil {
		return nil, fmt.Errorf("sampling: %w", err)
	}
	for i, p := range prompts {
		var texts []string
		for _, c := range completions[i*samples:][:samples] {
			texts = append(texts, p.Head+c.Text)
		}
		answers = append(answers, texts)
	}
	return answers, nil
}

// score scores the answers of a round that have no score yet.
func (m *onlineTraining) score(ctx context.Context, n int, groups []scorer.Group) ([]scorer.Score, error) {
	answers := scorer.Answers(groups)
	kept, err := scorer.Scores(ctx, m, m.Folder.Path(scoresName(n)), m.reward, m.o.Online.Reward, answers, m.o.Online.Samples)
	if err != nil {
		return nil, err
	}
	if missing, why := scorer.Unscored(kept.Done); missing > 0 {
		m.Warn("round %d: %d answers have no score; the last: %s", n+1, missing, why)
	}
	return kept.Done, nil
}

// store writes the answers of a round and their scores as a table, unless it is there. Prompts with fewer than two
// scored answers are left out.
func (m *onlineTraining) store(n int, groups []scorer.Group, scores []scorer.Score) error {
	path := m.Folder.Path(tableName(n))
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return data.WriteAll(path, scorer.Table(groups, scores))
}
