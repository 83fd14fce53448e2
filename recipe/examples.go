package recipe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/train"
)

// Encoding says how the rows of a file become examples.
type Encoding[R any] struct {
	Unit    string // of the examples: pairs
	Prompts bool   // what is held out are prompts, with all their answers
	Read    func(name string) ([]R, error)
	Fit     func(sets ...[]R) error                  // looks at all rows ahead of the encoding; may be nil
	Prepare func(name string, rows []R) ([]R, error) // of one file; may be nil
	Encode  func(*batch.Encoder, R) (train.Example, error)
	Limit   func(name string, groups []batch.Group, drift int) (keep []int, err error)
}

// Pairs reads a file of pairs, or the embedded ones, and says what is in it. A nil Reporter is silent.
func (f Files) Pairs(r run.Reporter, name string, o data.PreferenceOptions) ([]data.Preference, error) {
	o.Columns = f.Columns
	read := func() ([]data.Preference, *data.Report, error) { return data.ReadPreferences(name, o) }
	if name == embedded.Name {
		read = data.StreamPreferences(embedded.Files, embedded.Pairs, o).Collect
	}
	pairs, report, err := read()
	if err == nil {
		run.Listen(r).Say("%s", report)
	}
	return pairs, err
}

// Load reads what is trained on and what is held out, which may be nil, and encodes both.
func Load[R any](ctx context.Context, r *Run, s Source, e Encoding[R]) (trained, held []train.Example, err error) {
	rows, from, err := ReadAll(s.Files, e.Read)
	if err != nil {
		return nil, nil, err
	}
	rows = data.Pick(rows, s.Weigh(from))
	var evaluated []R
	if s.EvalFile != "" {
		if evaluated, err = e.Read(s.EvalFile); err != nil {
			return nil, nil, err
		}
	}
	if e.Fit != nil {
		if err := e.Fit(rows, evaluated); err != nil {
			return nil, nil, err
		}
	}
	if trained, err = e.Examples(ctx, r, s.TrainFiles.String(), rows); err != nil {
		return nil, nil, err
	}
	switch {
	case s.EvalFile != "":
		held, err = e.Examples(ctx, r, s.EvalFile, evaluated)
	case s.EvalFraction > 0:
		trained, held, err = e.split(s, trained, r.Seed)
	}
	if err != nil {
		return trained, held, err
	}
	unit := cmp.Or(e.Unit, "answers")
	if n := overlap(trained, held); n > 0 {
		r.Warn("%s: %d of %d held-out %s are in the training data, too", cmp.Or(s.EvalFile, "data.eval_fraction"), n,
			len(held), unit)
	}
	r.Choose(len(trained), 1, unit, held != nil)
	return trained, held, nil
}

// overlap counts the held-out examples that are trained on, too: a file may have rows of another one, and rows twice.
func overlap(trained, held []train.Example) (n int) {
	copies := map[string]int{}
	for _, x := range held {
		copies[rowOf(x)]++
	}
	for _, x := range trained {
		if len(copies) == 0 {
			break
		}
		key := rowOf(x)
		n += copies[key]
		delete(copies, key)
	}
	return n
}

// Examples encodes the rows of a file on all cores, and leaves out what is too long. Where the context has ended, the
// error is ErrInterrupted.
func (e Encoding[R]) Examples(ctx context.Context, r *Run, name string, rows []R) (_ []train.Example, err error) {
	if e.Prepare != nil {
		if rows, err = e.Prepare(name, rows); err != nil {
			return nil, err
		}
	}
	encoder := r.Chat.Encoder(r.Tokenizer)
	all, err := Encode(ctx, encoder, rows, e.Encode)
	if err != nil {
		return nil, err
	}
	r.SayEncoded(encoder)
	kept := Keep(all, func(groups []batch.Group) (keep []int) {
		keep, err = e.Limit(name, groups, encoder.Drift)
		return keep
	})
	return kept, err
}

// Keep keeps the examples that a limit lists, whose answers it may cut.
func Keep(all []train.Example, limit func(groups []batch.Group) []int) []train.Example {
	groups := train.Groups(all)
	keep := limit(groups)
	for _, i := range keep {
		all[i].Group = groups[i]
	}
	return data.Pick(all, keep)
}

// split holds a share of the examples out. No copy of what is held out is trained on.
func (e Encoding[R]) split(s Source, all []train.Example, seed uint64) (kept, held []train.Example, err error) {
	unit, key := e.Unit, strconv.Itoa
	switch {
	case e.Prompts || s.Weights != nil:
		unit, key = "prompts", func(i int) string { return e.promptOf(all[i]) }
	case len(s.TrainFiles) > 1: // files may have the same rows
		key = func(i int) string { return rowOf(all[i]) }
	}
	members := Together(len(all), key)
	first, second, err := s.Split(len(members), unit, seed)
	if err != nil {
		return nil, nil, err
	}
	pick := func(some []int) []train.Example { return data.Pick(all, slices.Concat(data.Pick(members, some)...)) }
	if held = pick(second); s.Weights != nil || len(s.TrainFiles) > 1 {
		held = once(held)
	}
	return pick(first), held, nil
}

// once leaves copies out.
func once(all []train.Example) (kept []train.Example) {
	key := func(i int) string { return fmt.Sprint(all[i].Group, all[i].Gap, all[i].Desirable) }
	for _, same := range Together(len(all), key) {
		kept = append(kept, all[same[0]])
	}
	return kept
}

// promptOf is the prompt, or the whole of a text without one, which has its first token alone in the prompt's place.
func (e Encoding[R]) promptOf(x train.Example) string {
	if !e.Prompts && len(x.Prompt) == 1 && len(x.Answers) == 1 {
		return rowOf(x)
	}
	return fmt.Sprint(x.Prompt)
}

func rowOf(x train.Example) string { return fmt.Sprint(x.Prompt, x.Answers) }

// Together lists which of n rows have a key in common.
func Together(n int, key func(i int) string) (members [][]int) {
	at := map[string]int{}
	for i := range n {
		k := key(i)
		if _, ok := at[k]; !ok {
			at[k], members = len(members), append(members, nil)
		}
		members[at[k]] = append(members[at[k]], i)
	}
	return members
}
