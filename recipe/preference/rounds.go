package preference

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

// Names of the files of round n: the answers as they come, their scores as they come, and both for offline use.
func answersName(n int) string { return fmt.Sprintf("round-%d-answers.jsonl", n+1) }
func scoresName(n int) string  { return fmt.Sprintf("round-%d-scores.jsonl", n+1) }
func tableName(n int) string   { return fmt.Sprintf("round-%d.jsonl", n+1) }

// part is the prompts of round n, counted from 0.
func (m *onlineTraining) part(n int) []ask.Question {
	all := len(m.prompts)
	return m.prompts[n*all/m.o.Online.Rounds : (n+1)*all/m.o.Online.Rounds]
}

// make makes the pairs of round n. Its error says in which round.
func (m *onlineTraining) make(ctx context.Context, n int) ([]data.Preference, ask.Tally, error) {
	var tally ask.Tally
	groups, err := m.sample(ctx, n)
	if err != nil {
		return nil, tally, m.explain(ctx, n, "answers were sampled", err)
	}
	if err := m.score(ctx, n, groups); err != nil {
		return nil, tally, m.explain(ctx, n, "answers were scored", err)
	}
	if err := m.store(n, groups); err != nil {
		return nil, tally, err
	}
	pairs, tally, err := ask.Pairs(groups)
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

// sample draws the answers of a round that are missing. Draws follow from the run's seed, the round, and the places of
// prompt and answer.
func (m *onlineTraining) sample(ctx context.Context, n int) (groups [][]ask.Answer, err error) {
	questions := slices.Clone(m.part(n))
	ask.SeedDraws(questions, rollout.DrawSeed(m.Seed, n))
	for i := range questions {
		questions[i].Sampling, questions[i].Samples = m.o.Online.Sampling, m.o.Online.Samples
	}
	drawn, err := ask.KeepTexts(m.Folder.Path(answersName(n)), m.identifyRound(n), questions, m.o.Online.Samples)
	if err != nil {
		return nil, err
	}
	err = drawn.Fill(ctx, m, func(ctx context.Context, part []ask.Question) ([][]ask.Answer, error) {
		answers, err := ask.Sample(ctx, m.sampler, part)
		if err != nil {
			err = fmt.Errorf("sampling: %w", err)
		}
		return answers, err
	})
	return drawn.Answers(), err
}

// score scores the answers of a round that have no score yet.
func (m *onlineTraining) score(ctx context.Context, n int, groups [][]ask.Answer) error {
	answers := slices.Concat(groups...)
	kept, err := m.o.Online.Reward.Scores(ctx, m, m.Folder.Path(scoresName(n)), m.reward, answers, m.o.Online.Samples)
	if err != nil {
		return err
	}
	if missing, why := ask.Unscored(kept.Done); missing > 0 {
		m.Warn("round %d: %d answers have no score; the last: %s", n+1, missing, why)
	}
	if apart := ask.LeftOut(kept.Done); apart > 0 {
		m.Say("round %d: %d scores are null, and left out of the sums", n+1, apart)
	}
	ask.Assign(groups, kept.Done)
	return nil
}

// store writes the answers of a round and their scores as a table, unless it is there. Prompts with fewer than two
// scored answers are left out.
func (m *onlineTraining) store(n int, groups [][]ask.Answer) error {
	path := m.Folder.Path(tableName(n))
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return data.WriteAll(path, ask.Table(groups))
}
