package scorer

import (
	"context"

	"github.com/posttrain/posttrain/reward"
)

// CIOptions choose the variant of the contextual-integrity reward. Its weights are those of the paper, so that the
// scores are in [0, 1].
type CIOptions struct {
	Format string `yaml:"format" want:"paper|strict|answer" default:"paper" help:"paper: the tags must occur; strict: one think block, one answer block, nothing else; answer: its tags must occur"`
	Match  string `yaml:"match" want:"substring|word" default:"substring" help:"how keywords are found:"`
}

// keywords is the contextual-integrity reward R of answers to CI items, mapped to [0, 1] by (R+1)/2.
type keywords struct{ o reward.Options }

func openCI(o CIOptions) Source {
	all := reward.DefaultOptions()
	all.Format, all.Match = o.Format, o.Match
	return keywords{all}
}

// Batch is large: a score costs nothing.
func (keywords) Batch() int   { return 4096 }
func (keywords) Close() error { return nil }

func (k keywords) Score(_ context.Context, answers []Answer) ([]Score, error) {
	scores := make([]Score, len(answers))
	for i, a := range answers {
		if a.Item == nil {
			scores[i].Why = "the reward ci scores answers to contextual-integrity items alone, and the prompt has no " +
				"item"
			continue
		}
		s := reward.Evaluate(reward.Of(a.Item), a.Response.Last(), a.Prefilled, k.o)
		scores[i].Value = reward.Unit(s.Reward)
	}
	return scores, nil
}
