package scorer

import (
	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/reward"
)

// CIOptions choose the variant of the contextual-integrity reward. Its weights are the paper's, so that the
// scores are in [0, 1].
type CIOptions struct {
	Format string `yaml:"format" want:"paper|strict|answer" default:"paper" help:"paper: the tags must occur; strict: one think block, one answer block, nothing else; answer: its tags must occur"`
	Match  string `yaml:"match" want:"substring|word" default:"substring" help:"how keywords are found:"`
}

// openCI is the contextual-integrity reward R of answers to CI items, mapped to [0, 1] by (R+1)/2.
func openCI(o CIOptions) ask.Judge {
	all := reward.DefaultOptions()
	all.Format, all.Match = o.Format, o.Match
	score := ask.Keywords(all)
	return ask.Rule(func(q *ask.Question, text string) ask.Score {
		s := score(q, text)
		s.Value = reward.Unit(s.Value)
		return s
	})
}
