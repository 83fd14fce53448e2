package score

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/journal"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/scorer"
	"github.com/posttrain/posttrain/run"
)

// Result is what was scored.
type Result struct {
	Pairs   []data.Preference
	Summary string // in words
}

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Run scores both answers of each pair, and writes the pairs with their scores to Options.Out. Beside it, scores are
// kept until all are there: an interrupted run continues with the same options. A nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	r = run.Listen(r)
	pairs, report, err := data.ReadPreferences(o.Data, data.PreferenceOptions{})
	if err != nil {
		return nil, err
	}
	r.Say("%s", report)
	source, err := scorer.Open(o.Reward, scorer.Place{Cache: o.Out + ".replies", Warn: r.Warn})
	if err != nil {
		return nil, err
	}
	defer source.Close()
	s := &scoring{o: o, pairs: pairs, source: source, r: r}
	if err := s.open(); err != nil {
		return nil, err
	}
	if err := errors.Join(s.all(ctx), s.kept.Close()); err != nil {
		return nil, err
	}
	if err := data.WritePreferences(o.Out, pairs); err != nil {
		return nil, err
	}
	return &Result{Pairs: pairs, Summary: s.summary()}, os.Remove(s.kept.Path())
}

// scoring is a run.
type scoring struct {
	o        Options
	pairs    []data.Preference
	source   scorer.Source
	r        run.Reporter
	kept     *journal.Journal[row]
	done     int // pairs
	unscored int // answers
	why      string
}

// row is a line of the kept scores: first what they are of, then those of some pairs, chosen and rejected in turn.
type row struct {
	Of     string         `json:"of,omitempty"`
	Scores []scorer.Score `json:"scores,omitempty"`
}

// open takes the scores of an interrupted run.
func (s *scoring) open() error {
	kept, rows, err := journal.Open[row](s.o.Out + ".scores")
	if err != nil {
		return err
	}
	s.kept = kept
	of := s.identity()
	if len(rows) == 0 {
		err = kept.Add(row{Of: of})
	} else if rows[0].Of != of {
		err = fmt.Errorf("%s has the scores of an interrupted run with other pairs or another reward: remove it, or "+
			"name another --out", kept.Path())
	}
	for _, old := range rows[min(1, len(rows)):] {
		if err == nil && s.done+len(old.Scores)/2 > len(s.pairs) {
			err = fmt.Errorf("%s has more scores than there are pairs: remove it", kept.Path())
		}
		if err == nil {
			s.take(old.Scores)
		}
	}
	if err != nil {
		return errors.Join(err, kept.Close())
	}
	if s.done > 0 {
		s.r.Say("%s: continuing after %d of %d pairs", kept.Path(), s.done, len(s.pairs))
	}
	return nil
}

// identity is a hash of what scores depend on.
func (s *scoring) identity() string {
	h, j := sha256.New(), s.o.Reward.Judge
	enc := json.NewEncoder(h)
	_ = enc.Encode([]any{s.o.Reward.Kind, s.o.Reward.Command, j.BaseURL, j.Model, j.Rubric, j.Range, j.MaxNew})
	for _, p := range s.pairs {
		_ = enc.Encode([]data.Text{p.Prompt, p.Chosen, p.Rejected})
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// take gives the next pairs their scores.
func (s *scoring) take(scores []scorer.Score) {
	for both := range slices.Chunk(scores, 2) {
		p := &s.pairs[s.done]
		p.ChosenScore, p.RejectedScore, p.Margin = both[0].Value, both[1].Value, false
		p.Scored = both[0].Why == "" && both[1].Why == ""
		for _, x := range both {
			if x.Why != "" {
				s.unscored, s.why = s.unscored+1, x.Why
			}
		}
		s.done++
	}
}

// all scores what is left.
func (s *scoring) all(ctx context.Context) error {
	bar := s.r.Progress("pair", s.done, len(s.pairs))
	defer bar.Close()
	for s.done < len(s.pairs) {
		n := min(max(1, s.source.Batch()/2), len(s.pairs)-s.done)
		scores, err := s.source.Score(ctx, answers(s.pairs[s.done:][:n]))
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %d of %d pairs are scored; the same command continues", recipe.ErrInterrupted,
				s.done, len(s.pairs))
		}
		if err == nil {
			err = s.kept.Add(row{Scores: scores})
		}
		if err != nil {
			return err
		}
		s.take(scores)
		if s.unscored > s.done {
			return fmt.Errorf("%d of the first %d answers have no score: %s", s.unscored, 2*s.done, s.why)
		}
		bar.Step(s.done, nil)
	}
	return nil
}

func answers(pairs []data.Preference) (all []scorer.Answer) {
	for _, p := range pairs {
		all = append(all, scorer.Answer{Prompt: p.Prompt, Response: p.Chosen, Source: p.Source},
			scorer.Answer{Prompt: p.Prompt, Response: p.Rejected, Source: p.Source})
	}
	return all
}

func (s *scoring) summary() string {
	scored := slices.DeleteFunc(slices.Clone(s.pairs), func(p data.Preference) bool { return !p.Scored })
	higher, equal := 0, 0
	for _, p := range scored {
		if p.ChosenScore > p.RejectedScore {
			higher++
		} else if p.ChosenScore == p.RejectedScore {
			equal++
		}
	}
	text := fmt.Sprintf("%s: %d pairs, %d scored: chosen scores higher in %d, the same in %d, lower in %d\n", s.o.Out,
		len(s.pairs), len(scored), higher, equal, len(scored)-higher-equal)
	if s.unscored > 0 {
		text += fmt.Sprintf("%d answers have no score; the last: %s\n", s.unscored, s.why)
	}
	if _, _, report, err := data.Prior(scored, data.DefaultRewardOptions()); err == nil {
		text += report.String() + "\n"
		if warning := report.Warning(); warning != "" {
			text += "warning: " + warning + "\n"
		}
	}
	return text
}
