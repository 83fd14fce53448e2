package recipe

import (
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/train"
)

// room is what the steps of a run take at their fullest, in bytes, with what the process has.
type room struct {
	There   int // to the process, or on the engine's device
	Kept    int // where layers are as train.gradient_checkpointing says
	Again   int // where all layers are computed again in the backward pass
	Adapter int // of an adapter alone, without the weights' gradients and moments
}

// checkRoom says what the largest batch of the steps takes, and refuses a run that does not fit. What fits follows from
// the config and the data, and what is free decides only whether the run begins: a run that is resumed elsewhere ends
// in the same bits. Models whose state is a small part of the memory are not looked at.
func (r *Run) checkRoom(t *train.Trainer) error {
	source, ok := t.Source.(interface{ Survey(*train.Survey) error })
	state, process := r.Learner.Footprint(r.Train.AdamW()).Each(), backend.ResidentMemory()
	there := r.Engine.Room(process)
	if !ok || r.Engine.Mesh != nil || there > smallState*uint64(state.Sum()) {
		return nil
	}
	var survey train.Survey
	if err := source.Survey(&survey); err != nil {
		return err
	}
	trains := slices.DeleteFunc(survey.Shapes, func(p train.ShapeCount) bool { return p.Objective == nil })
	if len(trains) == 0 {
		return nil
	}
	largest := slices.MinFunc(trains, train.Larger)
	has := int(process)
	if r.Engine.OwnsMemory() {
		has = state.Weights + state.Frozen
	}
	need := func(l *train.Learner) (int, error) {
		sketch, err := l.Sketch(largest)
		n := r.Engine.Needs(state.Sum(), state.Gradients, []backend.Use{{Sketch: sketch, Runs: largest.Count}})
		return has + state.Moments + state.Gradients + n.Programs + n.Engine, err
	}
	kept, err := need(r.Learner)
	if err != nil {
		return err
	}
	again, err := need(r.Learner.Recomputing())
	if err != nil {
		return err
	}
	layers := "are kept"
	if r.Train.GradientCheckpointing {
		layers = "are computed again"
	}
	r.Say("the largest batch has %d rows of %d tokens, its layers %s: the steps take about %.1f GB, there are %.1f GB",
		largest.Packed.Rows, largest.Packed.Len, layers, float64(kept)/1e9, float64(there)/1e9)
	return room{There: int(there), Kept: kept, Again: again, Adapter: kept - state.Moments - state.Gradients}.err()
}

// smallState: a state that the memory holds so often leaves room for its batches.
const smallState = 64

// err names the settings that fit.
func (m room) err() error {
	if m.Kept <= m.There {
		return nil
	}
	gb := func(n int) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }
	want := "a smaller model, or shorter prompts and answers"
	switch {
	case m.Again <= m.There:
		want = fmt.Sprintf("train.gradient_checkpointing: true, with which it takes %s", gb(m.Again))
	case m.Adapter <= m.There:
		want = fmt.Sprintf("an adapter (lora.rank: 16), with which it takes about %s", gb(m.Adapter))
	}
	return fmt.Errorf("the run does not fit into the memory: its steps take about %s, and there are %s: want %s",
		gb(m.Kept), gb(m.There), want)
}
