package train

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/model"
)

// TokenLogps returns log p(target) of every slot [slots] of a packed batch under weights (nil: the learner's own); padding
// slots hold any finite value. Other weights, such as a reference's, are in the form of Weights, and the program is the same.
func (l *Learner) TokenLogps(p *batch.Packed, weights []compute.Buffer) ([]float32, error) {
	if weights != nil {
		other := *l
		other.store = borrowed{l.store, weights}
		l = &other
	}
	key := "tokens/" + shapeKey(p)
	prog, err := l.programs.Program(key, func(g *graph.Graph) []*graph.Node {
		return []*graph.Node{l.declare(g, p).logProbs(l, p).Tokens}
	})
	if err != nil {
		return nil, err
	}
	f, err := l.feed(p)
	if err != nil {
		return nil, err
	}
	defer f.release()
	out, err := prog.Run(f.inputs(l), nil)
	if err != nil {
		return nil, err
	}
	return take(out[0])
}

// borrowed is a store of which somebody else's weights are read.
type borrowed struct {
	store
	others []compute.Buffer
}

func (b borrowed) weights() []compute.Buffer { return b.others }

// Wants says how the learner's engine would like to be fed.
func (l *Learner) Wants() backend.Wants { return l.engine.Wants }

// Config is the model's configuration.
func (l *Learner) Config() *model.Config { return l.model.Config }
