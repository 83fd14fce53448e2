package scorer

import (
	"context"
	"errors"

	"github.com/posttrain/posttrain/ask"
)

// several are judges whose scores are added up with weights. A score has the numbers of all; where one of them has
// none, the sum has none. A judge that an answer is not for is left out of its sum, as TRL does.
type several struct {
	judges  []ask.Judge
	kinds   []string
	weights []float64
}

// openSeveral opens a judge for each kind.
func openSeveral(o Options, p Caller) (ask.Judge, error) {
	s := several{kinds: o.Kinds(), weights: o.Weigh()}
	for _, kind := range o.Kinds() {
		one, err := openKind(kind, o, p)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.judges = append(s.judges, one)
	}
	return s, nil
}

// Batch is the largest of all: Score parts it for the others.
func (s several) Batch() (most int) {
	for _, one := range s.judges {
		most = max(most, one.Batch())
	}
	return most
}

func (s several) Close() error {
	var errs []error
	for _, one := range s.judges {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

func (s several) Score(ctx context.Context, answers []ask.Answer) ([]ask.Score, error) {
	scores := make([]ask.Score, len(answers))
	for i := range scores {
		scores[i].Parts = map[string]float64{}
	}
	for k, one := range s.judges {
		own, err := ask.Judged(ctx, one, answers)
		if err != nil {
			return nil, err
		}
		for i, x := range own {
			scores[i].Each = append(scores[i].Each, x.Value)
			if x.Missing == ask.NotItsOwn {
				scores[i].Without = append(scores[i].Without, k)
				continue
			}
			scores[i].Parts[partName(s.kinds[k])] = x.Value
			if scores[i].Value += s.weights[k] * x.Value; x.Missing != "" {
				scores[i].Missing = x.Missing
			}
		}
	}
	for i := range scores {
		if len(scores[i].Without) == len(s.judges) {
			scores[i].Missing = ask.NotItsOwn
		}
	}
	return scores, nil
}

// partName is the metric of one of several rewards.
func partName(kind string) string { return "rewards/" + kind + "/mean" }
