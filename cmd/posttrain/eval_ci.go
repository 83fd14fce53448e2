package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/config"
	cirlrecipe "github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/run"
)

// evaluation is a measurement under way.
type evaluation struct {
	streams
	flags   evalFlags
	title   string // what is measured on what
	cases   []eval.Case
	left    eval.Left // out, because the model cannot take their prompts
	usage   *rollout.Usage
	samples []eval.Sample
	report  eval.Report
}

// evalCI puts scenarios to a model, judges its answers, and reports.
func evalCI(ctx context.Context, s streams, f evalFlags, items scenarios) error {
	e := &evaluation{streams: s, flags: f}
	e.load(items)
	answer := e.askModel
	if f.server.url != "" {
		answer = e.askServer
	}
	if err := answer(ctx); err != nil {
		return err
	}
	e.count()
	if err := e.write(); err != nil {
		return err
	}
	return e.print()
}

// load writes the prompts.
func (e *evaluation) load(s scenarios) {
	f := e.flags
	way := f.way()
	if f.prefill {
		way.Prefill = ci.ThinkPrefill
	}
	e.cases = eval.Cases(s.items, f.prompt, s.order, way)
	for i := range e.cases {
		e.cases[i].Opened = f.server.opens
	}
	name := f.model
	if f.server.url != "" {
		name = f.server.model + " on " + f.server.url
	}
	e.title = fmt.Sprintf("%s: %s, prompt %s", name, s.what, f.prompt)
}

// scenarios are what a model is measured on.
type scenarios struct {
	items []ci.Item
	order func(i int) uint64 // of the attributes in the prompt of each
	what  string             // in words
}

// scenarios reads or makes the scenarios.
func (f *evalFlags) scenarios(s streams, given func(string) bool) (scenarios, error) {
	switch {
	case f.config != "":
		return f.ofRun(s, given)
	case f.path != "":
		return f.ofFile(s)
	}
	return scenarios{ci.SynthesizeHeldOut(f.n, f.seed), func(i int) uint64 { return uint64(i) }, fmt.Sprintf("%d held-out synthetic scenarios", f.n)}, nil
}

// ofRun takes from the config of a ci-rl run what the command line does not say, and gives the run's test split.
func (f *evalFlags) ofRun(s streams, given func(string) bool) (none scenarios, err error) {
	c, err := cirlrecipe.Spec.Load(config.Input{Path: f.config})
	if err != nil {
		return none, err
	}
	take(given("model") || given("base-url"), &f.model, c.Model)
	take(given("backend") || given("base-url"), &f.backend, c.Backend)
	c.Sampling.Temperature = c.Validation.Temperature
	f.follow(c.Sampling, given)
	f.prompt, f.prefill, f.rule, f.splitSeed = c.Data.Prompt, c.Data.Prefill && f.server.url == "", c.Reward, c.Seed
	parts, err := c.Items(nil)
	if err != nil {
		return none, err
	}
	if len(parts[2]) == 0 {
		return none, fmt.Errorf("--config %s: the run has no test split (data.test_fraction 0)", f.config)
	}
	return scenarios{parts[2], f.order, fmt.Sprintf("%d test scenarios of %s", len(parts[2]), f.config)}, nil
}

// ofFile reads the items of a split.
func (f *evalFlags) ofFile(s streams) (none scenarios, err error) {
	all, report, err := ci.Read(f.path)
	if err != nil {
		return none, err
	}
	fmt.Fprintln(s.err, report)
	part := f.part(len(all))
	if len(part) == 0 {
		return none, fmt.Errorf("%s: the %s split has no items (--validation-fraction %v and --test-fraction %v of %d): want larger fractions, or --split all",
			f.path, f.split, f.validation, f.test, len(all))
	}
	if f.n > 0 {
		part = part[:min(f.n, len(part))]
	}
	what := fmt.Sprintf("%d of %d items of %s (%s split of seed %d)", len(part), len(all), f.path, f.split, f.splitSeed)
	if f.split == "all" {
		what = fmt.Sprintf("%d of %d items of %s", len(part), len(all), f.path)
	}
	return scenarios{data.Pick(all, part), f.order, what}, nil
}

// part are the indices of the split, of n items.
func (f *evalFlags) part(n int) []int {
	train, validation, test := ci.Split(n, f.validation, f.test, f.splitSeed)
	if f.split == "all" {
		return slices.Sorted(slices.Values(slices.Concat(train, validation, test)))
	}
	return map[string][]int{"train": train, "validation": validation, "test": test}[f.split]
}

// order is the seed of the order in which the prompt of a split's item i lists its attributes: the one that ci-rl has.
func (f *evalFlags) order(i int) uint64 {
	part := map[string]ci.Part{"train": ci.Train, "validation": ci.Validation, "test": ci.Test, "all": ci.All}[f.split]
	return ci.Order(f.splitSeed, part, i)
}

// askModel lets a model of this process answer.
func (e *evaluation) askModel(ctx context.Context) error {
	m, err := openSampler(e.flags.samplingFlags)
	if err != nil {
		return err
	}
	defer m.Close()
	chat := m.Chat(nil)
	if e.cases, e.left, err = eval.Fit(chat, e.cases, m.Model.Config.MaxPositions-1); err != nil {
		return err
	}
	if err := e.left.Err(); err != nil {
		return err
	}
	if e.left.Count > 0 {
		fmt.Fprintln(e.err, "warning:", e.left)
	}
	return e.ask(ctx, func(tick func(done int)) (rollout.Chat, error) {
		chat.Tick = tick
		return chat, nil
	})
}

// askServer lets a model answer that a server has.
func (e *evaluation) askServer(ctx context.Context) error {
	var server *rollout.Remote
	err := e.ask(ctx, func(tick func(done int)) (chat rollout.Chat, err error) {
		server, err = e.flags.server.open(tick)
		return server, err
	})
	if err == nil {
		usage := server.Usage()
		e.usage = &usage
	}
	return err
}

// ask shows progress while a chat answers.
func (e *evaluation) ask(ctx context.Context, open func(tick func(done int)) (rollout.Chat, error)) error {
	bar := run.NewProgress(run.ProgressOptions{Out: e.err, Terminal: e.terminal, Unit: "scenario", Total: len(e.cases)})
	defer bar.Close()
	chat, err := open(func(done int) { bar.Step(done, nil) })
	if err != nil {
		return err
	}
	eval.SeedDraws(e.cases, e.flags.seed)
	e.samples, err = eval.Ask(ctx, chat, e.cases, e.flags.rule)
	return stopped(ctx, err)
}

// count adds the samples to the report and shows the first.
func (e *evaluation) count() {
	for _, s := range e.samples {
		e.report.Add(s)
		if s.Item < e.flags.show {
			fmt.Fprintf(e.out, "%s\n%s\nreward %.2f\n\n", s.Case.Messages[0].Content, s.Answer.Text, s.Score.Reward)
		}
	}
}

// evalSummary is summary.json.
type evalSummary struct {
	Model       string         `json:"model"`
	BaseURL     string         `json:"base_url,omitempty"`
	Data        string         `json:"data"`
	Split       string         `json:"split,omitempty"`
	SplitSeed   *uint64        `json:"split_seed,omitempty"`
	Prompt      string         `json:"prompt"`
	Prefill     bool           `json:"prefill"`
	Samples     int            `json:"samples"`
	Temperature float64        `json:"temperature"`
	MaxNew      int            `json:"max_new_tokens"`
	Seed        uint64         `json:"seed"`
	Format      string         `json:"format"`
	Match       string         `json:"match"`
	LeftOut     int            `json:"left_out"` // scenarios whose prompts are longer than the model takes
	Usage       *rollout.Usage `json:"usage,omitempty"`
	eval.Report
}

func (e *evaluation) summary() evalSummary {
	f := e.flags
	s := evalSummary{
		Model: f.model, Data: "held-out synthetic scenarios", Prompt: f.prompt, Prefill: f.prefill, Samples: f.answers, Temperature: f.Temperature,
		MaxNew: f.MaxNew, Seed: f.seed, Format: f.rule.Format, Match: f.rule.Match, LeftOut: e.left.Count, Usage: e.usage, Report: e.report,
	}
	if f.server.url != "" {
		s.Model, s.BaseURL = f.server.model, f.server.url
	}
	if f.config != "" {
		s.Data, s.Split, s.SplitSeed = f.config, f.split, &f.splitSeed
	}
	if f.path != "" {
		s.Data, s.Split = f.path, f.split
		if f.split != "all" {
			s.SplitSeed = &f.splitSeed
		}
	}
	return s
}

// write makes the results' folder, where one is wanted.
func (e *evaluation) write() error {
	dir := e.flags.out
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("--out %s cannot be made: %w", dir, errors.Unwrap(err))
	}
	if err := data.WriteLines(filepath.Join(dir, "results.jsonl"), len(e.samples), func(i int) any { return e.samples[i].Row() }); err != nil {
		return err
	}
	return data.WriteJSON(filepath.Join(dir, "summary.json"), e.summary())
}

// print shows the tables.
func (e *evaluation) print() error {
	fmt.Fprintln(e.out, e.title)
	if kept := e.report.All.Format.Share(); kept.Count == 0 {
		fmt.Fprintf(e.err, "warning: no answer keeps the format (most often: %s): integrity then says nothing\n", e.commonFault())
	}
	return e.report.Write(e.out)
}

// commonFault is what breaks the format most often.
func (e *evaluation) commonFault() (most string) {
	count := map[string]int{}
	for _, s := range e.samples {
		if count[s.Score.Fault]++; count[s.Score.Fault] > count[most] {
			most = s.Score.Fault
		}
	}
	return most
}
