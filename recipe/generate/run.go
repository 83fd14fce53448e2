package generate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Row is an answer as a file has it. Prompt and completion are columns that the recipe sft reads.
type Row struct {
	Prompt     data.Text `json:"prompt"`
	Completion data.Text `json:"completion"`
	Reason     string    `json:"reason"` // eos, length or stop
	Tokens     []int32   `json:"tokens"`
	Logps      []float32 `json:"logps,omitempty"`
}

// Result is what the model wrote.
type Result struct {
	Rows    []Row  // the samples of a prompt follow each other
	Summary string // in words, where a file was written
}

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Run continues a prompt or a file of prompts. A nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	g, err := open(o, r)
	if err != nil {
		return nil, err
	}
	defer g.model.Close()
	if o.Talks() {
		return nil, fmt.Errorf("there is nothing to continue: want prompt or input")
	}
	result := &Result{}
	if o.Prompt != nil && o.Out == "" {
		result.Rows, err = g.show(ctx, g.prompts[0])
	} else if result.Rows, err = g.answer(ctx); err == nil && o.Out != "" {
		result.Summary = g.summary(result.Rows)
	}
	return result, g.stopError(ctx, err)
}

// generator is an open model with what it continues.
type generator struct {
	run.Reporter
	o       Options
	model   *local.Model
	encoder batch.Encoder
	prompts []data.PromptRow
}

// open reads the prompts and opens the model.
func open(o Options, r run.Reporter) (*generator, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	if o.Writer == nil {
		o.Writer = io.Discard
	}
	g := &generator{Reporter: run.Listen(r), o: o}
	var err error
	if g.prompts, err = g.read(); err != nil {
		return nil, err
	}
	g.model, err = local.OpenWith(local.Options{Backend: o.Backend, Model: o.Model, Adapter: o.Adapter,
		CacheGB: o.CacheGB, Chat: o.Template})
	if err != nil {
		return nil, err
	}
	recipe.ReportEngine(g.model.Engine, g)
	g.encoder.Tokenizer = g.model.Tokenizer
	err = recipe.CheckLength(o.MaxNew, DefaultMaxNew, g.positions())
	if err == nil && o.Chat && !g.model.Tokenizer.HasTemplate() {
		err = fmt.Errorf("chat: %s has no chat template (chat_template.jinja, or chat_template in "+
			"tokenizer_config.json); without chat a prompt is continued as plain text", o.Model)
	}
	if err != nil {
		g.model.Close()
	}
	return g, err
}

func (g *generator) positions() int { return g.model.Model.Config.MaxPositions }

// read reads the prompts. A conversation has none.
func (g *generator) read() (prompts []data.PromptRow, err error) {
	if g.o.Prompt != nil {
		prompts = []data.PromptRow{{Prompt: data.Text{Plain: *g.o.Prompt}, Source: "prompt"}}
	} else if g.o.Input != "" {
		var report *data.Report
		if prompts, report, err = data.ReadPrompts(g.o.Input); err != nil {
			return nil, err
		}
		g.Say("%s", report)
	}
	for i := range prompts {
		if p := &prompts[i].Prompt; g.o.Chat && !p.IsChat() {
			*p = data.Text{Messages: []data.Message{{Role: "user", Content: p.Plain}}}
		}
	}
	return prompts, nil
}

// request is a prompt, number n, as the sampler takes it.
func (g *generator) request(p data.PromptRow, n int) (rollout.Request, error) {
	ids, err := g.encoder.Prompt(p.Prompt)
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", p.Source, err)
	case len(ids) == 0:
		err = fmt.Errorf("%s: the prompt has no tokens: want at least one", p.Source)
	case len(ids) >= g.positions():
		err = fmt.Errorf("%s: the prompt has %d tokens: the model has %d positions, want fewer tokens",
			p.Source, len(ids), g.positions())
	}
	seed := rollout.DrawSeed(g.o.Seed, n)
	return rollout.Request{Sampling: g.o.Sampling, Prompt: ids, Seed: seed}, err
}

// show prints the answers to a prompt, a single one while it is drawn. The draws are those that a file would have.
func (g *generator) show(ctx context.Context, p data.PromptRow) ([]Row, error) {
	r, err := g.request(p, 0)
	if err != nil {
		return nil, err
	}
	if g.o.Samples == 1 {
		c, err := g.stream(ctx, r.Samples(1)[0])
		return []Row{g.row(p.Prompt, c)}, err
	}
	rows, err := g.some(ctx, []data.PromptRow{p}, []rollout.Request{r})
	if err != nil {
		return nil, err
	}
	for i, row := range rows[0] {
		fmt.Fprintf(g.o.Writer, "[%d] %s\n", i+1, row.Completion.Last())
	}
	return rows[0], nil
}

// stream prints an answer while it is drawn.
func (g *generator) stream(ctx context.Context, r rollout.Request) (c rollout.Completion, err error) {
	s, begun := rollout.NewStream(r, g.model.Model.Config, g.model.Tokenizer), false
	r.OnToken = func(token int32, logp float32) {
		piece := s.Take(token, logp)
		begun = begun || piece != ""
		fmt.Fprint(g.o.Writer, piece)
	}
	completions, err := g.model.Sampler.Sample(ctx, []rollout.Request{r})
	if err == nil || begun {
		fmt.Fprintln(g.o.Writer)
	}
	if err != nil {
		return c, err
	}
	if c = completions[0]; c.Reason == rollout.Length {
		g.Say("(cut after %d tokens)", len(c.Tokens))
	}
	return c, nil
}

// answer answers all prompts. Without a file to write, the rows are printed; with one, they are kept beside it until all
// are there.
func (g *generator) answer(ctx context.Context) (rows []Row, err error) {
	requests := make([]rollout.Request, len(g.prompts))
	for i, p := range g.prompts {
		if requests[i], err = g.request(p, i); err != nil {
			return nil, err
		}
	}
	do := func(ctx context.Context, from, to int) ([][]Row, error) {
		return g.some(ctx, g.prompts[from:to], requests[from:to])
	}
	atOnce := scorer.PromptsAtOnce(g.o.Samples)
	if g.o.Out == "" {
		for at := 0; at < len(requests); at += atOnce {
			part, err := do(ctx, at, min(at+atOnce, len(requests)))
			if err == nil {
				for _, row := range slices.Concat(part...) {
					err = cmp.Or(err, data.WriteLine(g.o.Writer, row))
				}
			}
			if err != nil {
				return nil, err
			}
			rows = slices.Concat(rows, slices.Concat(part...))
		}
		return rows, nil
	}
	kept, err := scorer.Keep[[]Row](g.o.Out+".answers", g.identify(requests), len(requests), scorer.Drawn)
	if err == nil {
		err = kept.Fill(ctx, g, "prompt", atOnce, do)
	}
	if err != nil {
		return nil, err
	}
	rows = slices.Concat(kept.Done...)
	if err := data.WriteLines(g.o.Out, len(rows), func(i int) any { return rows[i] }); err != nil {
		return nil, err
	}
	return rows, kept.Remove()
}

// identify is a hash of what the answers depend on.
func (g *generator) identify(requests []rollout.Request) string {
	h, o := sha256.New(), g.o
	enc := json.NewEncoder(h) // a hash never fails
	_ = enc.Encode([]any{o.Model, o.Adapter, o.Backend, o.Seed, o.Samples, o.Sampling, o.Logps})
	for _, r := range requests {
		_ = enc.Encode(r.Prompt)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// some answers some prompts together, each several times.
func (g *generator) some(ctx context.Context, prompts []data.PromptRow, requests []rollout.Request) ([][]Row, error) {
	var all []rollout.Request
	for _, r := range requests {
		all = append(all, r.Samples(g.o.Samples)...)
	}
	completions, err := g.model.Sampler.Sample(ctx, all)
	if err != nil {
		return nil, err
	}
	rows := make([][]Row, len(prompts))
	for i, c := range completions {
		k := i / g.o.Samples
		rows[k] = append(rows[k], g.row(prompts[k].Prompt, c))
	}
	return rows, nil
}

func (g *generator) row(p data.Text, c rollout.Completion) Row {
	r := Row{Prompt: p, Completion: p.Reply(c.Text), Reason: c.Reason, Tokens: c.Tokens}
	if g.o.Logps {
		r.Logps = c.Logps
	}
	return r
}

// summary counts the answers of a file.
func (g *generator) summary(rows []Row) string {
	cut := 0
	for _, r := range rows {
		if r.Reason == rollout.Length {
			cut++
		}
	}
	return fmt.Sprintf("%s: %d answers (%d cut by length)\n", g.o.Out, len(rows), cut)
}

// stopError is the error of work that a context may have ended.
func (g *generator) stopError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return recipe.ErrInterrupted
	}
	return err
}
