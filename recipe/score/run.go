package score

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/scorer"
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
	s := &scoring{o: o, pairs: pairs, r: r}
	if s.kept, err = scorer.Keep(o.Out+".scores", o.Reward, answers(pairs), 2); err != nil {
		return nil, err
	}
	if err := errors.Join(s.all(ctx, source), s.kept.Close()); err != nil {
		return nil, err
	}
	s.take()
	if err := data.WritePreferences(o.Out, pairs); err != nil {
		return nil, err
	}
	return &Result{Pairs: pairs, Summary: s.summary()}, s.kept.Remove()
}

// scoring is a run.
type scoring struct {
	o     Options
	pairs []data.Preference
	r     run.Reporter
	kept  *scorer.Kept
}

// done is the number of pairs that are scored.
func (s *scoring) done() int { return len(s.kept.Scores) / 2 }

// all scores what is left.
func (s *scoring) all(ctx context.Context, source scorer.Source) error {
	if s.done() > 0 {
		s.r.Say("%s: continuing after %d of %d pairs", s.kept.Path(), s.done(), len(s.pairs))
	}
	bar := s.r.Progress("pair", s.done(), len(s.pairs))
	defer bar.Close()
	err := s.kept.Score(ctx, source, func(int) { bar.Step(s.done(), nil) })
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %d of %d pairs are scored; the same command continues", recipe.ErrInterrupted,
			s.done(), len(s.pairs))
	}
	return err
}

// take gives the pairs their scores.
func (s *scoring) take() {
	for i := range s.pairs {
		p, chosen, rejected := &s.pairs[i], s.kept.Scores[2*i], s.kept.Scores[2*i+1]
		p.ChosenScore, p.RejectedScore, p.Margin = chosen.Value, rejected.Value, false
		p.Scored = chosen.Why == "" && rejected.Why == ""
	}
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
	if unscored, why := s.kept.Unscored(); unscored > 0 {
		text += fmt.Sprintf("%d answers have no score; the last: %s\n", unscored, why)
	}
	if _, _, report, err := data.Prior(scored, data.DefaultRewardOptions()); err == nil {
		text += report.String() + "\n"
		if warning := report.Warning(); warning != "" {
			text += "warning: " + warning + "\n"
		}
	}
	return text
}
