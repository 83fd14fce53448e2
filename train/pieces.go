package train

import (
	"iter"
	"slices"

	"github.com/posttrain/posttrain/data"

	"github.com/posttrain/posttrain/batch"
)

// piece is a share of some examples that goes through the model at once.
type piece struct {
	examples []int
	*batch.Packed
}

// window is how many examples are sorted by their length together: enough to fill rows well, few enough to be held packed.
const window = 4096

// Layout says how groups like these are laid out for this engine, pad examples at most in a piece (batch.Split).
func (l *Learner) Layout(groups []batch.Group, share bool, pad int) batch.Layout {
	return batch.Layout{Share: share, Pad: pad, Tokens: l.engine.Wants.Tokens}.Fit(groups)
}

// pieces cuts examples of a set into what goes through the model at once. Together they have the gradient of the whole.
func pieces(groups []batch.Group, examples []int, layout batch.Layout) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for part := range slices.Chunk(examples, window) {
			for _, p := range batch.Split(data.Pick(groups, part), layout) {
				if !yield(piece{data.Pick(part, p.Members), p.Packed}) {
					return
				}
			}
		}
	}
}
