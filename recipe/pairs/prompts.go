package pairs

import (
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/rl"
)

// read reads or makes the prompts.
func (w *work) read() error {
	if w.o.Input == "" {
		return w.readItems()
	}
	rows, report, err := data.ReadPrompts(w.o.Input, w.o.Columns...)
	if err != nil {
		return err
	}
	w.Say("%s", report)
	for _, row := range rows {
		if t := &row.Prompt; w.o.Chat && !t.IsChat() {
			*t = data.Text{Messages: []data.Message{{Role: "user", Content: t.Plain}}}
		}
		w.questions = append(w.questions, ask.Of(row))
	}
	settings, err := w.o.Template.Identify()
	isChat := func(q ask.Question) bool { return q.Prompt.IsChat() }
	if err == nil && settings != "" && w.o.Template.Plain == "text" && !slices.ContainsFunc(w.questions, isChat) {
		err = fmt.Errorf("%s: the prompts are plain text, which has no chat template: remove chat_template",
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
		c, err := rl.CISpec.Load(config.Input{Path: w.o.Run, Allow: config.Anything})
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
	var err error
	w.order = order
	w.questions, err = eval.Questions(items, w.form, order)
	return err
}

// fit leaves out the prompts that are too long for a model with this many positions, or for the limit.
func (w *work) fit(e *batch.Encoder, positions int) error {
	kept, left, err := ask.Fit(e, w.questions, recipe.PromptLimit(positions, w.limit))
	if err != nil {
		return err
	}
	if err := left.Err(); err != nil {
		return fmt.Errorf("%s%w", w.name(), err)
	}
	if line := w.o.Template.Describe(e, "--chat-plain text"); line != "" {
		w.Say("%s%s", w.name(), line)
	}
	if w.questions, w.tooLong = kept, left.Count; left.Count > 0 {
		w.Warn("%v", left)
	}
	return nil
}
