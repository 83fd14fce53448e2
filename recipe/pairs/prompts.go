package pairs

import (
	"errors"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/cirl"
)

// prompt is what a model answers.
type prompt struct {
	data.PromptRow
	item    *ci.Item // nil: none
	prefill string   // the beginning of the answer, which the model gets
	opened  bool     // the chat template writes that beginning
	order   uint64   // of the item's attributes
	long    bool     // it does not fit the model
}

// head is the beginning of the answer that belongs to it: what the chat template writes belongs to the prompt.
func (p *prompt) head() string {
	if p.opened {
		return ""
	}
	return p.prefill
}

// read reads or makes the prompts.
func (w *work) read() error {
	if w.o.Input == "" {
		return w.readItems()
	}
	rows, report, err := data.ReadPrompts(w.o.Input)
	if err != nil {
		return err
	}
	w.Say("%s", report)
	for _, row := range rows {
		if t := &row.Prompt; w.o.Chat && !t.IsChat() {
			*t = data.Text{Messages: []data.Message{{Role: "user", Content: t.Plain}}}
		}
		w.prompts = append(w.prompts, prompt{PromptRow: row})
	}
	settings, err := w.o.Template.Identify()
	isChat := func(p prompt) bool { return p.Prompt.IsChat() }
	if err == nil && settings != "" && !slices.ContainsFunc(w.prompts, isChat) {
		err = fmt.Errorf("%s: the prompts are plain text, which has no chat template: add chat, or remove chat_template",
			w.o.Input)
	}
	return err
}

// readItems puts items into prompts.
func (w *work) readItems() error {
	items, order, err := w.o.items(w)
	if err != nil {
		return err
	}
	write, err := w.o.Writer()
	if err != nil {
		return err
	}
	for i := range items {
		p := prompt{item: &items[i], order: order(i)}
		if w.o.Prefill {
			p.prefill = ci.ThinkPrefill
		}
		p.Source = fmt.Sprintf("scenario %d", i+1)
		messages, err := write(items[i], p.order)
		if err != nil {
			return fmt.Errorf("%s: %w", items[i].Source, err)
		}
		p.Prompt.Messages = messages
		w.prompts = append(w.prompts, p)
	}
	return nil
}

// items reads or makes the items; order gives the seed of the order in which the prompt of item i lists its attributes.
func (o *Options) items(w *work) (items []ci.Item, order func(i int) uint64, err error) {
	order = func(i int) uint64 { return ci.Order(o.SplitSeed, ci.Train, i) } // in training's, whatever the part
	switch {
	case o.Run != "":
		c, err := cirl.Spec.Load(config.Input{Path: o.Run})
		if err != nil {
			return nil, nil, err
		}
		parts, err := c.Items(w)
		return parts[ci.Train], order, err
	case o.Data == "" && o.HeldOut:
		return ci.SynthesizeHeldOut(o.N, o.Seed), func(i int) uint64 { return uint64(i) }, nil
	case o.Data == "":
		return ci.Synthesize(o.N, o.Seed), func(i int) uint64 { return uint64(i) }, nil
	}
	all, report, err := ci.ReadItems(o.Data, o.Kept)
	if err != nil {
		return nil, nil, err
	}
	w.Say("%s", report)
	train, validation, test := ci.Split(len(all), o.ValidationFraction, o.TestFraction, o.SplitSeed)
	part := map[string][]int{"train": train, "validation": validation, "test": test}[o.Split]
	if o.Split == "all" {
		part = slices.Sorted(slices.Values(slices.Concat(train, validation, test)))
	}
	if len(part) == 0 {
		err = fmt.Errorf("%s: the %s split has no items (validation_fraction %v and test_fraction %v of %d): want other "+
			"fractions, or split all", o.Data, o.Split, o.ValidationFraction, o.TestFraction, len(all))
	}
	return data.Pick(all, part), order, err
}

// fit leaves out the prompts that are too long for a model with this many positions, or for the limit.
func (w *work) fit(e *batch.Encoder, positions int) error {
	limit, longest, left := positions-1, 0, 0
	if w.o.MaxPromptTokens > 0 {
		limit = min(limit, w.o.MaxPromptTokens)
	}
	for i := range w.prompts {
		p := &w.prompts[i]
		ids, err := e.Prefilled(p.Prompt, p.prefill)
		if err == nil && len(ids) == 0 {
			err = errors.New("the prompt has no tokens: want at least one")
		}
		if err == nil && p.item != nil {
			p.opened, err = e.Opens(p.Prompt, ci.ThinkPrefill)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.place(p), err)
		}
		if longest = max(longest, len(ids)); len(ids) > limit {
			p.long = true
			left++
		}
	}
	if left == len(w.prompts) {
		return fmt.Errorf("%sno prompt fits: all %d have more than %d tokens (the longest has %d)", w.name(), left, limit,
			longest)
	}
	if left > 0 {
		w.Warn("%d of %d prompts are left out: they have more than %d tokens (the longest has %d)", left, len(w.prompts),
			limit, longest)
	}
	return nil
}

// place is where a prompt is from, for an error.
func (w *work) place(p *prompt) string {
	if p.item != nil {
		return p.item.Source
	}
	return p.Source
}
