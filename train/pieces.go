package train

import "github.com/posttrain/posttrain/batch"

// piece is a share of some examples that goes through the model at once.
type piece struct {
	examples []int
	*batch.Packed
}

// window is how many examples are sorted by their length together: enough to fill rows well, few enough to be quick.
const window = 4096

// layout says how groups like these are laid out for this engine, pad examples at most in a piece.
func (l *Learner) layout(groups []batch.Group, share bool, pad int) batch.Layout {
	return batch.Layout{Share: share, Pad: pad, Tokens: l.engine.Wants.Tokens}.Fit(groups)
}

// pieces cuts examples of a set into what goes through the model at once. Together they have the gradient of the whole.
func pieces(groups []batch.Group, examples []int, layout batch.Layout) []piece {
	var out []piece
	for at := 0; at < len(examples); at += window {
		part := examples[at:min(at+window, len(examples))]
		chosen := make([]batch.Group, len(part))
		for i, e := range part {
			chosen[i] = groups[e]
		}
		for _, p := range batch.Split(chosen, layout) {
			x := piece{Packed: p.Packed}
			for _, i := range p.Members {
				x.examples = append(x.examples, part[i])
			}
			out = append(out, x)
		}
	}
	return out
}
