package preference

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/rollout/scorer"
	"github.com/posttrain/posttrain/train"
)

// readPrompts reads or makes the prompts of a run, in the order in which they are used. Prompts of more than limit
// tokens are left out.
func (o *Online) readPrompts(r *recipe.Run, from recipe.Files, limit int) ([]ask.Question, error) {
	all, files, err := recipe.ReadAll(from, func(name string) ([]ask.Question, error) {
		return o.read(r, name, limit, from.Columns)
	})
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if kindOf(&p) != kindOf(&all[0]) {
			return nil, fmt.Errorf("%s is %s, %s is %s: want all alike", all[0].Source, kindOf(&all[0]), p.Source,
				kindOf(&p))
		}
	}
	all = data.Pick(all, from.Weigh(files))
	all = data.Pick(all, train.Order(len(all), r.Seed, 0, true))
	if o.Prompts > len(all) {
		return nil, fmt.Errorf("online.prompts %d: %v has %d: want that many at most, or 0 for all", o.Prompts,
			from.TrainFiles, len(all))
	}
	if o.Prompts > 0 {
		all = all[:o.Prompts]
	}
	if len(all) < o.Rounds {
		return nil, fmt.Errorf("online.rounds %d: %v has %d prompts: want one for each round", o.Rounds,
			from.TrainFiles, len(all))
	}
	return all, nil
}

// kindOf is what a prompt is, in words.
func kindOf(p *ask.Question) string {
	switch {
	case p.Item != nil:
		return "a contextual-integrity item"
	case p.Prompt.IsChat():
		return "a conversation"
	}
	return "a string"
}

func (o *Online) read(r *recipe.Run, source string, limit int, columns []string) ([]ask.Question, error) {
	if source == embedded.Name {
		return o.items(r, source, limit)
	}
	rows, report, err := records.ReadPrompts(source, columns...)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 && rows[0].Item != nil {
		return o.items(r, source, limit)
	}
	if o.Reward.Has(scorer.CI) {
		return nil, fmt.Errorf("%s: its prompts are no contextual-integrity items, by which online.reward.kind ci "+
			"scores: want items, or another kind", source)
	}
	r.Say("%s", report)
	return fit(r, source, rl.Questions(rows), limit)
}

// items takes the items that ci-rl trains on, in the same prompts.
func (o *Online) items(r *recipe.Run, source string, limit int) ([]ask.Question, error) {
	c := rl.CI{Base: recipe.Base{Seed: r.Seed}, Data: rl.CIData{Files: recipe.Files{TrainFiles: config.Names{source}},
		Scenarios: o.Scenarios, Parts: rl.Parts{ValidationFraction: o.ValidationFraction, TestFraction: o.TestFraction}}}
	parts, err := c.Items(r)
	if err != nil {
		return nil, err
	}
	all, err := eval.Questions(parts[ci.Train], o.Form, c.Order(ci.Train))
	if err != nil {
		return nil, err
	}
	return fit(r, source, all, limit)
}

// fit encodes the prompts of a source and leaves out those that are too long.
func fit(r *recipe.Run, source string, all []ask.Question, limit int) ([]ask.Question, error) {
	e := r.Chat.Encoder(r.Tokenizer)
	kept, left, err := ask.Fit(e, all, limit)
	if err == nil {
		err = left.Err()
	}
	if err == nil && left.Count > 0 {
		r.Say("%s: %v", source, left)
	}
	r.SayEncoded(e)
	return kept, err
}

// hashPrompts adds prompts to a hash.
func hashPrompts(h hash.Hash, prompts []ask.Question) {
	for _, p := range prompts {
		fmt.Fprintf(h, "%d %q %v\n", len(p.Tokens), p.Head(), p.Opened)
		binary.Write(h, binary.LittleEndian, p.Tokens) // a hash never fails
		if p.Item != nil {
			fmt.Fprintf(h, "%q %q\n", p.Item.Required(), p.Item.Restricted())
		}
	}
}

// identify is a hash of what the answers of a round depend on, beside the weights.
func (m *onlineTraining) identifyRound(n int) string {
	h := sha256.New()
	fmt.Fprintln(h, m.Seed, n, m.o.Online.Samples, m.o.Online.Sampling)
	hashPrompts(h, m.part(n))
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}
