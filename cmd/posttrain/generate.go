package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/run"
)

// generateFlags choose what is continued and how.
type generateFlags struct {
	samplingFlags
	text, input string
	chat        bool
	out         string
	logps       bool
	seed        uint64
}

func newGenerate(s streams) *cobra.Command {
	var f generateFlags
	cmd := &cobra.Command{
		Use: "generate", Short: "Let a model continue a prompt, a file of prompts, or a conversation",
		Long: "Let a model continue a prompt, printed as it is written; a file of prompts, one JSON line for each answer; or, with --chat alone,\n" +
			"a conversation, line by line (/new begins a new one, the end of the input ends it). A prompt is continued as plain text; with\n" +
			"--chat it is a user's message, and the model's chat template is applied. Rows of conversations always have it applied.",
		Example: "  posttrain generate --model DIR --prompt Hello\n  posttrain generate --model DIR --chat\n" +
			"  posttrain generate --model DIR --input prompts.jsonl --samples 8 --out answers.jsonl",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return usageError{err}
			}
			return generate(cmd.Context(), s, f, cmd.Flags().Changed("prompt"))
		},
	}
	f.register(cmd)
	return cmd
}

func (f *generateFlags) register(cmd *cobra.Command) {
	f.samplingFlags.register(cmd, 1)
	flags := cmd.Flags()
	flags.Lookup("max-new-tokens").DefValue, f.MaxNew = "256", 256
	flags.StringVar(&f.text, "prompt", "", "text to continue")
	flags.StringVar(&f.input, "input", "", "prompts to continue, .jsonl, .json or .parquet: column prompt (text or messages) or messages")
	flags.BoolVar(&f.chat, "chat", false, "apply the chat template to plain prompts; without --prompt and --input: talk")
	flags.StringVar(&f.out, "out", "", "jsonl file to write: prompt, completion, reason, tokens")
	flags.BoolVar(&f.logps, "logps", false, "write each token's log-prob too, at temperature 1 and with nothing cut off")
	flags.IntVar(&f.answers, "samples", 1, "answers to each prompt")
	flags.IntVar(&f.TopK, "top-k", 0, "draw from the k likeliest tokens only; 0: off")
	flags.Float64Var(&f.TopP, "top-p", 0, "draw from the likeliest tokens that make up this probability only; 0: off")
	flags.Float64Var(&f.MinP, "min-p", 0, "draw from tokens at least this share as likely as the likeliest only; 0: off")
	flags.StringArrayVar(&f.Stop, "stop", nil, "text that ends an answer (may be repeated)")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of the draws")
}

// check refuses what cannot be generated.
func (f *generateFlags) check(given func(string) bool) error {
	if f.answers < 1 {
		return fmt.Errorf("--samples %d: want 1 or more", f.answers)
	}
	if err := f.samplingFlags.check(); err != nil {
		return err
	}
	if err := f.draws(given); err != nil {
		return err
	}
	talk := !given("prompt") && !given("input")
	switch {
	case given("prompt") && given("input"):
		return errors.New("--prompt and --input: want one of the two")
	case talk && !f.chat:
		return errors.New("nothing to continue: want --prompt TEXT, --input FILE, or --chat to talk")
	case given("input") && f.input == "":
		return errors.New("--input is empty: want a .jsonl, .json or .parquet file")
	}
	if talk {
		for _, name := range []string{"out", "samples", "logps"} {
			if given(name) {
				return fmt.Errorf("--%s: it does not go with talking; add --prompt TEXT or --input FILE", name)
			}
		}
	}
	return f.checkOut(given)
}

// draws refuses flags that temperature 0 makes useless.
func (f *generateFlags) draws(given func(string) bool) error {
	for _, name := range []string{"seed", "samples"} {
		if f.Temperature == 0 && given(name) {
			return fmt.Errorf("--%s: --temperature 0 always takes the likeliest token; remove one of the two flags", name)
		}
	}
	return nil
}

func (f *generateFlags) checkOut(given func(string) bool) error {
	switch {
	case given("logps") && !given("out") && given("prompt"):
		return errors.New("--logps: they are written to a file; add --out FILE.jsonl")
	case !given("out"):
		return nil
	case filepath.Ext(f.out) != ".jsonl":
		return fmt.Errorf("--out %q: want a name that ends in .jsonl", f.out)
	}
	if info, err := os.Stat(filepath.Dir(f.out)); err != nil || !info.IsDir() {
		return fmt.Errorf("--out %s: there is no folder %s to write it in", f.out, filepath.Dir(f.out))
	}
	return nil
}

// generation is a model at work.
type generation struct {
	streams
	model   *local.Model
	flags   generateFlags
	encoder batch.Encoder
}

// generate reads, lets the model write, and prints.
func generate(ctx context.Context, s streams, f generateFlags, one bool) error {
	prompts, err := f.prompts(s, one)
	if err != nil {
		return err
	}
	m, err := openSampler(f.samplingFlags)
	if err != nil {
		return err
	}
	defer m.Close()
	if f.chat && !m.Tokenizer.HasTemplate() {
		return fmt.Errorf("--chat: %s has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); without --chat a prompt is continued as plain text", f.model)
	}
	g := &generation{s, m, f, batch.Encoder{Tokenizer: m.Tokenizer}}
	switch {
	case prompts == nil:
		return g.talk(ctx)
	case one && f.out == "":
		return stopped(ctx, g.show(ctx, prompts[0]))
	}
	return stopped(ctx, g.file(ctx, prompts))
}

// prompts are those of the command line or of the file; none to talk.
func (f *generateFlags) prompts(s streams, one bool) ([]data.PromptRow, error) {
	var prompts []data.PromptRow
	switch {
	case one:
		prompts = []data.PromptRow{{Prompt: data.Text{Plain: f.text}, Source: "--prompt"}}
	case f.input != "":
		rows, report, err := data.ReadPrompts(f.input)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(s.err, report)
		prompts = rows
	}
	for i := range prompts {
		if p := &prompts[i].Prompt; f.chat && !p.IsChat() {
			*p = data.Text{Messages: []data.Message{{Role: "user", Content: p.Plain}}}
		}
	}
	return prompts, nil
}

// request is a prompt, number n, as the sampler takes it.
func (g *generation) request(p data.PromptRow, n int) (rollout.Request, error) {
	f := g.flags
	ids, err := g.encoder.Prompt(p.Prompt)
	if err != nil {
		return rollout.Request{}, fmt.Errorf("%s: %w", p.Source, err)
	}
	positions := g.model.Model.Config.MaxPositions
	switch {
	case len(ids) == 0:
		err = fmt.Errorf("%s: the prompt has no tokens: want at least one", p.Source)
	case len(ids) >= positions:
		err = fmt.Errorf("%s: the prompt has %d tokens: the model has %d positions, want fewer tokens", p.Source, len(ids), positions)
	}
	return rollout.Request{Sampling: f.Sampling, Prompt: ids, Seed: drawSeed(f.seed, n)}, err
}

// show prints the answers to a prompt: a single one while it is written.
func (g *generation) show(ctx context.Context, p data.PromptRow) error {
	r, err := g.request(p, 0)
	if err != nil {
		return err
	}
	if g.flags.answers == 1 {
		_, err := g.stream(ctx, r.Samples(1)[0]) // the draws that a file has
		return err
	}
	completions, err := g.model.Sampler.Sample(ctx, r.Samples(g.flags.answers))
	for i, c := range completions {
		fmt.Fprintf(g.out, "[%d] %s\n", i+1, c.Text)
	}
	return err
}

// stream prints an answer while it is written.
func (g *generation) stream(ctx context.Context, r rollout.Request) (rollout.Completion, error) {
	s, begun := rollout.NewStream(r, g.model.Model.Config, g.model.Tokenizer), false
	r.OnToken = func(token int32, logp float32) {
		piece := s.Take(token, logp)
		begun = begun || piece != ""
		fmt.Fprint(g.out, piece)
	}
	completions, err := g.model.Sampler.Sample(ctx, []rollout.Request{r})
	if err == nil || begun {
		fmt.Fprintln(g.out)
	}
	if err != nil {
		return rollout.Completion{}, err
	}
	c := completions[0]
	if c.Reason == rollout.Length {
		fmt.Fprintf(g.err, "(cut after %d tokens)\n", len(c.Tokens))
	}
	return c, nil
}

// generatedRow is an answer as a file has it: prompt and completion are columns that posttrain sft reads.
type generatedRow struct {
	Prompt     data.Text `json:"prompt"`
	Completion data.Text `json:"completion"`
	Reason     string    `json:"reason"` // eos, length or stop
	Tokens     []int32   `json:"tokens"`
	Logps      []float32 `json:"logps,omitempty"`
}

func (g *generation) row(p data.Text, c rollout.Completion) generatedRow {
	r := generatedRow{Prompt: p, Completion: data.Text{Plain: c.Text}, Reason: c.Reason, Tokens: c.Tokens}
	if p.IsChat() {
		r.Completion = data.Text{Messages: []data.Message{{Role: "assistant", Content: c.Text}}}
	}
	if g.flags.logps {
		r.Logps = c.Logps
	}
	return r
}

// file answers all prompts, into a file that appears whole or not at all, or as lines on standard output.
func (g *generation) file(ctx context.Context, prompts []data.PromptRow) error {
	requests := make([]rollout.Request, len(prompts))
	for i, p := range prompts {
		var err error
		if requests[i], err = g.request(p, i); err != nil {
			return err
		}
	}
	bar := run.NewProgress(run.ProgressOptions{Out: g.err, Terminal: g.terminal, Quiet: g.flags.out == "", Unit: "prompt", Total: len(prompts)})
	defer bar.Close()
	var rows []generatedRow
	for at := 0; at < len(prompts); {
		n := min(max(1, promptBatch/g.flags.answers), len(prompts)-at)
		part, err := g.some(ctx, prompts[at:at+n], requests[at:at+n])
		if err != nil {
			return err
		}
		rows = append(rows, part...)
		at += n
		bar.Step(at, nil)
		if g.flags.out == "" {
			if err := g.lines(part); err != nil {
				return err
			}
		}
	}
	if g.flags.out == "" {
		return nil
	}
	bar.Close()
	return g.save(rows)
}

// promptBatch is how many answers are written together.
const promptBatch = 128

// some answers some prompts.
func (g *generation) some(ctx context.Context, prompts []data.PromptRow, requests []rollout.Request) ([]generatedRow, error) {
	var all []rollout.Request
	for _, r := range requests {
		all = append(all, r.Samples(g.flags.answers)...)
	}
	completions, err := g.model.Sampler.Sample(ctx, all)
	if err != nil {
		return nil, err
	}
	rows := make([]generatedRow, len(completions))
	for i, c := range completions {
		rows[i] = g.row(prompts[i/g.flags.answers].Prompt, c)
	}
	return rows, nil
}

func (g *generation) lines(rows []generatedRow) error {
	for _, r := range rows {
		if err := data.WriteLine(g.out, r); err != nil {
			return err
		}
	}
	return nil
}

func (g *generation) save(rows []generatedRow) error {
	cut := 0
	for _, r := range rows {
		if r.Reason == rollout.Length {
			cut++
		}
	}
	if err := data.WriteLines(g.flags.out, len(rows), func(i int) any { return rows[i] }); err != nil {
		return err
	}
	fmt.Fprintf(g.out, "%s: %d answers (%d cut by length)\n", g.flags.out, len(rows), cut)
	return nil
}
