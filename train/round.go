package train

// Round is a part of a run that has examples of its own, such as pairs of answers that were sampled from the weights
// with which the part begins. Weights, moments, the count of steps and the schedule of the learning rate go on over all
// rounds of a run.
type Round struct {
	Number      int // from 0
	Train       Examples
	First, Last int // steps done before and after it
	Total       int // steps of the whole run as far as is known, over which the schedule goes
	Epoch       int // of its first pass, which decides the order of the examples
}

// Numbers of a round that checkpoints keep.
const roundKey, firstKey = "round", "step before the round"

// Enter makes a round the one that Run and Resume are about. A checkpoint says which one it is of, see
// [Loop.LastRound].
func (l *Loop) Enter(r Round) {
	l.Train, l.round = r.Train, &r
	l.rows.Pad = 0 // other examples have another layout
	if l.State.Step == r.First {
		l.State.Epoch, l.State.Position = r.Epoch, 0
	}
	if l.Kept == nil {
		l.Kept = map[string]float64{}
	}
	l.Kept[roundKey], l.Kept[firstKey] = float64(r.Number), float64(r.First)
}

// LastRound is the number of the round that a resumed run is in, and the steps done before it; 0, 0 for a new run.
func (l *Loop) LastRound() (number, first int) { return int(l.Kept[roundKey]), int(l.Kept[firstKey]) }

// Passes is how many steps a number of passes over n examples takes.
func (o Options) Passes(n int) int { return o.Epochs * ((n + o.BatchSize - 1) / o.BatchSize) }
