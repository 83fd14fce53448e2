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
	return l.forward("tokens", p, func(lp LogProbs) *graph.Node { return lp.Tokens })
}

// forward runs the forward pass of a batch and returns one of its log-probs.
func (l *Learner) forward(name string, p *batch.Packed, which func(LogProbs) *graph.Node) ([]float32, error) {
	prog, err := l.programs.Program(name+"/"+shapeKey(p), func(g *graph.Graph) []*graph.Node {
		return []*graph.Node{which(l.declare(g, p).logProbs(l, p))}
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
