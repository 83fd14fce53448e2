package preference

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/scorer"
	"github.com/posttrain/posttrain/train"
)

// prompt is what a model answers.
type prompt struct {
	Text      data.Text
	Row       map[string]any // the other columns of its row
	Tokens    []int32
	Head      string   // the beginning of each answer, which belongs to it
	Item      *ci.Item // nil: none
	Prefilled bool     // the chat template opens the think block
	Source    string
}

// readPrompts reads or makes the prompts of a run, in the order in which they are used. Those of more than limit tokens are
// left out.
func (o *Online) readPrompts(j *recipe.Run, from recipe.Files, limit int) ([]prompt, error) {
	all, err := recipe.ReadAll(from, func(name string) ([]prompt, error) { return o.read(j, name, limit) })
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.kind() != all[0].kind() {
			return nil, fmt.Errorf("%s is %s, %s is %s: want all alike", all[0].Source, all[0].kind(), p.Source,
				p.kind())
		}
	}
	all = data.Pick(all, train.Order(len(all), j.Seed, 0, true))
	if o.Prompts > len(all) {
		return nil, fmt.Errorf("online.prompts %d: %v has %d: want that many at most, or 0 for all", o.Prompts,
			from.Train, len(all))
	}
	if o.Prompts > 0 {
		all = all[:o.Prompts]
	}
	if len(all) < o.Rounds {
		return nil, fmt.Errorf("online.rounds %d: %v has %d prompts: want one for each round", o.Rounds, from.Train,
			len(all))
	}
	return all, nil
}

// kind is what the prompt is, in words.
func (p *prompt) kind() string {
	switch {
	case p.Item != nil:
		return "a contextual-integrity item"
	case p.Text.IsChat():
		return "a conversation"
	}
	return "a string"
}

func (o *Online) read(j *recipe.Run, source string, limit int) ([]prompt, error) {
	e := &batch.Encoder{Tokenizer: j.Tokenizer}
	if source == embedded.Name {
		return o.items(j, e, source, limit)
	}
	rows, report, err := records.ReadPrompts(source)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 && rows[0].Item != nil {
		return o.items(j, e, source, limit)
	}
	if o.Reward.Has(scorer.CI) {
		return nil, fmt.Errorf("%s: its prompts are no contextual-integrity items, by which online.reward.kind ci "+
			"scores: want items, or another kind", source)
	}
	j.Say("%s", report)
	return plain(j, rows, limit)
}

// items takes the items that ci-rl trains on, in the same prompts.
func (o *Online) items(j *recipe.Run, e *batch.Encoder, source string, limit int) (all []prompt, err error) {
	c := cirl.Options{Base: recipe.Base{Seed: j.Seed}, Data: cirl.Data{Files: recipe.Files{Train: config.Names{source}}, Scenarios: o.Scenarios,
		Parts: rl.Parts{ValidationFraction: o.ValidationFraction, TestFraction: o.TestFraction}}}
	parts, err := c.Items(j)
	if err != nil {
		return nil, err
	}
	cases, err := eval.Cases(parts[ci.Train], o.Form, c.Order(ci.Train), rollout.Conversation{})
	if err != nil {
		return nil, err
	}
	cases, left, err := eval.Fit(&rollout.Local{Encoder: e}, cases, limit)
	if err == nil {
		err = left.Err()
	}
	if err != nil {
		return nil, err
	}
	if left.Count > 0 {
		j.Say("%s: %v", source, left)
	}
	for _, c := range cases {
		p := prompt{Text: data.Text{Messages: c.Messages}, Tokens: c.Tokens, Head: c.Prefill, Item: c.Item,
			Prefilled: c.Opened, Source: c.Item.Source}
		if c.Opened { // the chat template writes it
			p.Head = ""
		}
		all = append(all, p)
	}
	return all, nil
}

// plain encodes prompts that are texts or conversations.
func plain(j *recipe.Run, rows []records.Prompt, limit int) (all []prompt, err error) {
	kept, tokens, err := rl.EncodePrompts(j, rows, limit)
	for i, r := range kept {
		all = append(all, prompt{Text: r.Text, Row: r.Row, Tokens: tokens[i], Source: r.Source})
	}
	return all, err
}

// hashPrompts adds prompts to a hash.
func hashPrompts(h hash.Hash, prompts []prompt) {
	for _, p := range prompts {
		fmt.Fprintf(h, "%d %q %v\n", len(p.Tokens), p.Head, p.Prefilled)
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
