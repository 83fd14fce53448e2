package generate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

// Row is an answer as a file has it. Prompt and completion are columns that the recipe sft reads.
type Row struct {
	Prompt     data.Text       `json:"prompt"`
	Completion data.Text       `json:"completion"`
	Reason     string          `json:"reason"` // eos, length or stop
	Tokens     []int32         `json:"tokens"`
	Logps      []float32       `json:"logps,omitempty"`
	Tools      json.RawMessage `json:"tools,omitempty"` // of the prompt
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
	result := &Result{}
	if o.Prompt != nil && o.Out == "" {
		result.Rows, err = g.show(ctx)
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
	encoder *batch.Encoder
	prompts []ask.Question
}

// open reads the prompts and opens the model.
func open(o Options, r run.Reporter) (*generator, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	g := &generator{Reporter: run.Listen(r), o: o}
	var err error
	if g.prompts, err = g.read(); err != nil {
		return nil, err
	}
	return g, g.openModel()
}

// openModel opens the model that the options name, and checks that it can do what they ask for.
func (g *generator) openModel() (err error) {
	if g.o.Writer == nil {
		g.o.Writer = io.Discard
	}
	o := g.o
	g.model, err = local.OpenWith(local.Options{Backend: o.Backend, Model: o.Model, Adapter: o.Adapter,
		CacheGB: o.CacheGB, Chat: o.Template.Chat})
	if err != nil {
		return err
	}
	recipe.ReportEngine(g.model.Engine, g)
	if g.encoder = o.Template.Encoder(g.model.Tokenizer); o.Input == "" {
		g.encoder.Converse = false
	}
	err = recipe.CheckLength(o.MaxNew, DefaultMaxNew, g.positions())
	if err == nil && o.Chat && !g.model.Tokenizer.HasTemplate() {
		err = fmt.Errorf("chat: %s has no chat template (chat_template.jinja, or chat_template in "+
			"tokenizer_config.json); posttrain generate --prompt continues plain text", o.Model)
	}
	if err != nil {
		g.model.Close()
	}
	return err
}

func (g *generator) positions() int { return g.model.Model.Config.MaxPositions }

// read reads the prompts. A conversation has none.
func (g *generator) read() (prompts []ask.Question, err error) {
	if g.o.Prompt != nil {
		prompts = []ask.Question{{Prompt: data.Text{Plain: *g.o.Prompt}, Source: "prompt"}}
	} else if g.o.Input != "" {
		rows, report, err := data.ReadPrompts(g.o.Input, g.o.Columns...)
		if err != nil {
			return nil, err
		}
		g.Say("%s", report)
		for _, row := range rows {
			prompts = append(prompts, ask.Of(row))
		}
	}
	for i := range prompts {
		if p := &prompts[i].Prompt; g.o.Chat && !p.IsChat() {
			*p = data.Text{Messages: []data.Message{{Role: "user", Content: p.Plain}}}
		}
	}
	return prompts, nil
}

// encode gives question number n its tokens, and how it is answered.
func (g *generator) encode(q *ask.Question, n int) (err error) {
	q.Tokens, err = g.encoder.Prompt(q.Prompt)
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", q.Source, err)
	case len(q.Tokens) == 0:
		err = fmt.Errorf("%s: the prompt has no tokens: want at least one", q.Source)
	case len(q.Tokens) >= g.positions():
		err = fmt.Errorf("%s: the prompt has %d tokens: the model has %d positions, want fewer tokens",
			q.Source, len(q.Tokens), g.positions())
	}
	q.Sampling, q.Samples, q.Seed = g.o.Sampling, g.o.Samples, rollout.DrawSeed(g.o.Seed, n)
	return err
}

// show prints the answers to the prompt, a single one while it is drawn. The draws are those that a file would have.
func (g *generator) show(ctx context.Context) ([]Row, error) {
	q := &g.prompts[0]
	if err := g.encode(q, 0); err != nil {
		return nil, err
	}
	if g.o.Samples == 1 {
		c, err := g.stream(ctx, q)
		return []Row{g.row(&ask.Answer{To: q, Completion: c})}, err
	}
	rows, err := g.some(ctx, g.prompts)
	if err != nil {
		return nil, err
	}
	for i, row := range rows[0] {
		fmt.Fprintf(g.o.Writer, "[%d] %s\n", i+1, row.Completion.Last())
	}
	return rows[0], nil
}

// stream prints an answer while it is drawn. Beside an error there is the text of what was printed.
func (g *generator) stream(ctx context.Context, q *ask.Question) (c rollout.Completion, err error) {
	r := q.Requests()[0]
	s := rollout.NewStream(r, g.model.Model.Config, g.model.Tokenizer)
	r.OnToken = func(token int32, logp float32) {
		piece := s.Take(token, logp)
		c.Text += piece
		fmt.Fprint(g.o.Writer, piece)
	}
	completions, err := g.model.Sampler.Sample(ctx, []rollout.Request{r})
	if err == nil || c.Text != "" {
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

// answer answers all prompts. Without a file to write, the rows are printed; with one, they are kept beside it until
// all are there.
func (g *generator) answer(ctx context.Context) (rows []Row, err error) {
	for i := range g.prompts {
		if err = g.encode(&g.prompts[i], i); err != nil {
			return nil, err
		}
	}
	if line := g.o.Template.Describe(g.encoder, "--chat-plain text"); line != "" && g.o.Input != "" {
		g.Say("%s: %s", g.o.Input, line)
	}
	do := func(ctx context.Context, from, to int) ([][]Row, error) { return g.some(ctx, g.prompts[from:to]) }
	atOnce := ask.AtOnce(g.o.Samples)
	if g.o.Out == "" {
		for at := 0; at < len(g.prompts); at += atOnce {
			part, err := do(ctx, at, min(at+atOnce, len(g.prompts)))
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
	weights, err := local.HashWeights(g.o.Model, g.o.Adapter)
	if err != nil {
		return nil, err
	}
	kept, err := ask.Keep[[]Row](g.o.Out+".answers", g.identify(weights), len(g.prompts), ask.Drawn)
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
func (g *generator) identify(weights string) string {
	h, o := sha256.New(), g.o
	enc := json.NewEncoder(h) // a hash never fails
	_ = enc.Encode([]any{o.Model, o.Adapter, weights, o.Backend, o.Seed, o.Samples, o.Sampling, o.Logps})
	for _, q := range g.prompts {
		_ = enc.Encode(q.Tokens)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// some answers some prompts together, each several times.
func (g *generator) some(ctx context.Context, prompts []ask.Question) ([][]Row, error) {
	groups, err := ask.Sample(ctx, g.model.Sampler, prompts)
	if err != nil {
		return nil, err
	}
	rows := make([][]Row, len(groups))
	for i, answers := range groups {
		for k := range answers {
			rows[i] = append(rows[i], g.row(&answers[k]))
		}
	}
	return rows, nil
}

func (g *generator) row(a *ask.Answer) Row {
	r := Row{Prompt: a.To.Prompt, Completion: a.Response(), Reason: a.Reason, Tokens: a.Tokens}
	if g.o.Logps {
		r.Logps = a.Logps
	}
	if m := r.Prompt.Messages; len(m) > 0 {
		r.Tools = json.RawMessage(m[0].Tools)
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
