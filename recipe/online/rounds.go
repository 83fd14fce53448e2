package online

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/journal"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Maker makes the pairs of rounds. What is sampled and scored is in files of the run folder, from which an interrupted
// run continues: the same weights give the same answers, bit for bit.
type Maker struct {
	Options Options
	*recipe.Job
	Prompts []Prompt
	Sampler rollout.Sampler // with a decoder, of the weights that learn
	Reward  scorer.Source
}

// Part is the prompts of round n, counted from 0.
func (m *Maker) Part(n int) []Prompt {
	all := len(m.Prompts)
	return m.Prompts[n*all/m.Options.Rounds : (n+1)*all/m.Options.Rounds]
}

// Names of the files of round n: the answers as they come, their scores as they come, and both for offline use.
func answersName(n int) string { return fmt.Sprintf("round-%d-answers.jsonl", n+1) }
func scoresName(n int) string  { return fmt.Sprintf("round-%d-scores.jsonl", n+1) }
func tableName(n int) string   { return fmt.Sprintf("round-%d.parquet", n+1) }

// Own names the files that are written under a temporary name first, to the run folder.
func (m *Maker) Own() error {
	for n := range m.Options.Rounds {
		if err := m.Run.Own(tableName(n)); err != nil {
			return err
		}
	}
	return nil
}

// Make makes the pairs of round n. Its error says in which round.
func (m *Maker) Make(ctx context.Context, n int) ([]data.Preference, scorer.Tally, error) {
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
		return nil, tally, fmt.Errorf("round %d of %d: %w", n+1, m.Options.Rounds, err)
	}
	return pairs, tally, nil
}

// explain says in which round something stopped, and how to continue.
func (m *Maker) explain(ctx context.Context, n int, what string, err error) error {
	if ctx.Err() != nil {
		return m.StopError("in round %d of %d, while %s", n+1, m.Options.Rounds, what)
	}
	return fmt.Errorf("round %d of %d: %w (what is done is in %s: --resume continues it)", n+1, m.Options.Rounds, err,
		m.Run.Dir)
}

// answersRow is a line of a round's answers: first what they are of, then those to some prompts.
type answersRow struct {
	Of      string     `json:"of,omitempty"`
	Answers [][]string `json:"answers,omitempty"`
}

// requestsAtOnce is how many answers are drawn between two lines of the file. A sampler decodes about that many
// together anyway.
const requestsAtOnce = 128

// AtOnce is how many answers are drawn at a time.
func (m *Maker) AtOnce() int { return max(1, requestsAtOnce/m.Options.Samples) * m.Options.Samples }

// sample draws the answers of a round that are missing. They are drawn in the same parts each time, so that rounding
// gives the same bits.
func (m *Maker) sample(ctx context.Context, n int) ([]scorer.Group, error) {
	file, rows, err := journal.Open[answersRow](m.Run.Path(answersName(n)))
	if err != nil {
		return nil, err
	}
	d := drawing{Maker: m, n: n, prompts: m.Part(n), file: file}
	err = d.open(rows)
	if err == nil {
		err = d.rest(ctx)
	}
	return d.groups, errors.Join(err, file.Close())
}

// drawing is the sampling of a round.
type drawing struct {
	*Maker
	n       int
	prompts []Prompt
	file    *journal.Journal[answersRow]
	groups  []scorer.Group // those of the first prompts
}

func (d *drawing) open(rows []answersRow) error {
	of := d.identify(d.n)
	if len(rows) == 0 {
		return d.file.Add(answersRow{Of: of})
	}
	for _, row := range rows[1:] {
		if rows[0].Of != of || len(d.groups)+len(row.Answers) > len(d.prompts) {
			return fmt.Errorf("%s has answers to other prompts: the data has changed since the run was started; start "+
				"a new run with --out DIR", d.file.Path())
		}
		d.take(row.Answers)
	}
	return nil
}

func (d *drawing) take(answers [][]string) {
	for _, texts := range answers {
		p := d.prompts[len(d.groups)]
		d.groups = append(d.groups, scorer.Group{Prompt: p.Text, Answers: texts, Item: p.Item, Prefilled: p.Prefilled,
			Source: p.Source})
	}
}

// rest draws what is missing.
func (d *drawing) rest(ctx context.Context) error {
	bar := d.Progress("prompt", len(d.groups), len(d.prompts))
	defer bar.Close()
	for len(d.groups) < len(d.prompts) {
		at := len(d.groups)
		answers, err := d.draw(ctx, at, min(at+d.AtOnce()/d.Options.Samples, len(d.prompts)))
		if err == nil {
			err = d.file.Add(answersRow{Answers: answers})
		}
		if err != nil {
			return err
		}
		d.take(answers)
		bar.Step(len(d.groups), nil)
	}
	return nil
}

// draw samples the answers to some prompts. A request's draws follow from the run's seed, the round, and the places of
// prompt and answer.
func (d *drawing) draw(ctx context.Context, from, to int) (answers [][]string, err error) {
	var requests []rollout.Request
	for i := from; i < to; i++ {
		one := rollout.Request{Sampling: d.Options.Sampling, Prompt: d.prompts[i].Tokens,
			Seed: rollout.DrawSeed(rollout.DrawSeed(d.Seed, d.n), i)}
		requests = append(requests, one.Samples(d.Options.Samples)...)
	}
	completions, err := d.Sampler.Sample(ctx, requests)
	if err != nil {
		return nil, fmt.Errorf("sampling: %w", err)
	}
	for i := from; i < to; i++ {
		var texts []string
		for _, c := range completions[(i-from)*d.Options.Samples:][:d.Options.Samples] {
			texts = append(texts, d.prompts[i].Head+c.Text)
		}
		answers = append(answers, texts)
	}
	return answers, nil
}

// score scores the answers of a round that have no score yet.
func (m *Maker) score(ctx context.Context, n int, groups []scorer.Group) ([]scorer.Score, error) {
	answers := scorer.Answers(groups)
	kept, err := scorer.Keep(m.Run.Path(scoresName(n)), m.Options.Reward, answers, m.Options.Samples)
	if err != nil {
		return nil, err
	}
	bar := m.Progress("answer", len(kept.Scores), len(answers))
	defer bar.Close()
	err = kept.Score(ctx, m.Reward, func(done int) { bar.Step(done, nil) })
	if missing, why := kept.Unscored(); err == nil && missing > 0 {
		m.Warn("round %d: %d answers have no score; the last: %s", n+1, missing, why)
	}
	return kept.Scores, errors.Join(err, kept.Close())
}

// store writes the answers of a round and their scores as a table, unless it is there. Prompts with fewer than two
// scored answers are left out.
func (m *Maker) store(n int, groups []scorer.Group, scores []scorer.Score) error {
	path := m.Run.Path(tableName(n))
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return data.WriteAnswers(path, scorer.Table(groups, scores))
}
