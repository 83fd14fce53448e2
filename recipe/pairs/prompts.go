package pairs

import (
	"errors"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
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

// readItems puts items into prompts: those that a ci-rl run trains on, as it does, or synthetic ones.
func (w *work) readItems() error {
	order := func(i int) uint64 { return uint64(i) }
	var items []ci.Item
	switch {
	case w.o.Run != "":
		c, err := cirl.Spec.Load(config.Input{Path: w.o.Run, Allow: config.Anything})
		if err != nil {
			return err
		}
		parts, err := c.Items(w)
		if err != nil {
			return err
		}
		items, order, w.form, w.limit = parts[ci.Train], c.Order(ci.Train), c.Data.Form, c.Data.MaxPromptTokens
	case w.o.HeldOut:
		items = ci.SynthesizeHeldOut(w.o.N, w.o.Seed)
	default:
		items = ci.Synthesize(w.o.N, w.o.Seed)
	}
	if w.o.Run == "" {
		w.form.Prompt = ci.PromptCoT
		if w.o.Model == embedded.Name {
			w.form.Prompt = ci.PromptCompact
		}
		w.form.Prefill = w.form.Thinks()
	}
	write, err := w.form.Writer()
	if err != nil {
		return err
	}
	for i := range items {
		p := prompt{item: &items[i], order: order(i)}
		if w.form.Prefill {
			p.prefill = ci.ThinkPrefill
		}
		p.Source = fmt.Sprintf("scenario %d", i+1)
		if p.Prompt.Messages, err = write(items[i], p.order); err != nil {
			return fmt.Errorf("%s: %w", items[i].Source, err)
		}
		w.prompts = append(w.prompts, p)
	}
	return nil
}

// fit leaves out the prompts that are too long for a model with this many positions, or for the limit.
func (w *work) fit(e *batch.Encoder, positions int) error {
	limit, longest, left := positions-1, 0, 0
	if w.limit > 0 {
		limit = min(limit, w.limit)
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
