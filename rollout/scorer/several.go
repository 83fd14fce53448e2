package scorer

import (
	"context"
	"errors"
	"slices"
)

// several are sources whose scores are added up with weights. A score has the numbers of all; where one of them has
// none, the sum has none.
type several struct {
	sources []Source
	weights []float64
}

// openSeveral opens a source for each kind.
func openSeveral(o Options, p Caller) (Source, error) {
	s := several{weights: o.Weigh()}
	for _, kind := range o.Kinds() {
		one, err := openKind(kind, o, p)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.sources = append(s.sources, one)
	}
	return s, nil
}

// Batch is the largest of all: Score parts it for the others.
func (s several) Batch() (most int) {
	for _, one := range s.sources {
		most = max(most, one.Batch())
	}
	return most
}

func (s several) Close() error {
	var errs []error
	for _, one := range s.sources {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

func (s several) Score(ctx context.Context, answers []Answer) ([]Score, error) {
	scores := make([]Score, len(answers))
	for k, one := range s.sources {
		own, err := All(ctx, one, answers)
		if err != nil {
			return nil, err
		}
		for i, x := range own {
			scores[i].Parts = append(scores[i].Parts, x.Value)
			if scores[i].Value += s.weights[k] * x.Value; x.Why != "" {
				scores[i].Why = x.Why
			}
		}
	}
	return scores, nil
}

// All asks a source for the scores of answers [n], as many in a call as it wants, and refuses scores that nothing can
// be learnt from.
func All(ctx context.Context, s Source, answers []Answer) (scores []Score, err error) {
	for part := range slices.Chunk(answers, s.Batch()) {
		some, err := s.Score(ctx, part)
		if err == nil {
			err = check(part, some)
		}
		if err != nil {
			return nil, err
		}
		scores = append(scores, some...)
	}
	return scores, nil
}
