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
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/run"
)

// evalCase is a scenario as it is put to the model.
type evalCase struct {
	item      *ci.Item
	prompt    []data.Message
	prefilled bool // the answer begins inside the think block
	answers   []rollout.Answer
}

// evaluation is a measurement under way.
type evaluation struct {
	streams
	flags   evalFlags
	title   string // what is measured on what
	cases   []evalCase
	dropped int // scenarios whose prompts are longer than the model takes
	usage   *rollout.Usage
	report  eval.Report
	rows    []resultRow
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
	e.judge()
	if err := e.write(); err != nil {
		return err
	}
	return e.print()
}

// load writes the prompts.
func (e *evaluation) load(s scenarios) {
	f := e.flags
	for i := range s.items {
		prompt := ci.Prompt(s.items[i], f.prompt, s.order(i))
		e.cases = append(e.cases, evalCase{item: &s.items[i], prompt: prompt, prefilled: f.prefill || f.server.opens})
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
	parts, err := readCIItems(&job{streams: s, flags: &trainFlags{quiet: true}}, c)
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

// conversations are the cases as a Chat takes them.
func (e *evaluation) conversations() []rollout.Conversation {
	out := make([]rollout.Conversation, len(e.cases))
	for i, c := range e.cases {
		out[i] = e.flags.conversation(c.prompt, e.flags.seed, i)
		if e.flags.prefill {
			out[i].Prefill = ci.ThinkPrefill
		}
	}
	return out
}

// askModel lets a model of this process answer.
func (e *evaluation) askModel(ctx context.Context) error {
	m, err := openSampler(e.flags.samplingFlags)
	if err != nil {
		return err
	}
	defer m.Close()
	chat := m.Chat(nil)
	if err := e.fit(chat, m.Model.Config.MaxPositions); err != nil {
		return err
	}
	return e.ask(ctx, func(tick func(done int)) (rollout.Chat, error) {
		chat.Tick = tick
		return chat, nil
	})
}

// fit leaves out prompts that the model cannot take, and finds whether its template opens the think block.
func (e *evaluation) fit(chat *rollout.Local, positions int) error {
	var kept []evalCase
	longest := 0
	for i, c := range e.conversations() {
		ids, err := chat.Prompt(c)
		if err != nil {
			return fmt.Errorf("%s: %w", e.cases[i].item.Source, err)
		}
		if longest = max(longest, len(ids)); len(ids) >= positions {
			continue
		}
		opens, err := chat.Encoder.Opens(data.Text{Messages: c.Messages}, ci.ThinkPrefill)
		if err != nil {
			return err
		}
		e.cases[i].prefilled = e.cases[i].prefilled || opens
		kept = append(kept, e.cases[i])
	}
	if len(kept) == 0 {
		return fmt.Errorf("no prompt fits the model: it has %d positions, the longest prompt has %d tokens", positions, longest)
	}
	if e.dropped = len(e.cases) - len(kept); e.dropped > 0 {
		fmt.Fprintf(e.err, "warning: %d of %d scenarios left out: their prompts have up to %d tokens, the model has %d positions\n", e.dropped, len(e.cases), longest, positions)
	}
	e.cases = kept
	return nil
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
	answers, err := chat.Answer(ctx, e.conversations())
	if err != nil {
		return stopped(ctx, err)
	}
	for i := range e.cases {
		e.cases[i].answers = answers[i]
	}
	return nil
}

// resultRow is an answer as results.jsonl has it.
type resultRow struct {
	Item       string         `json:"item"`
	Sample     int            `json:"sample"`
	Domain     string         `json:"domain"`
	Principle  string         `json:"principle"`
	Prompt     []data.Message `json:"prompt"`
	Prefill    string         `json:"prefill,omitempty"`
	Completion string         `json:"completion"`
	Reason     string         `json:"reason"` // eos, length, or a server's own word
	Reward     float64        `json:"reward"`
	Format     bool           `json:"format"`
	Fault      string         `json:"fault,omitempty"` // what breaks the format
	Answer     string         `json:"answer"`
	Required   []keywordAt    `json:"required"`   // at: byte of the answer, -1 where it is not there
	Restricted []keywordAt    `json:"restricted"` // the same
	Integrity  bool           `json:"integrity"`
	Utility    bool           `json:"utility"`
	Complete   bool           `json:"complete"`
	ThinkLeak  bool           `json:"think_leak"`
	Think      []keywordAt    `json:"restricted_in_think"` // at: byte of the think block
}

type keywordAt struct {
	Keyword string `json:"keyword"`
	At      int    `json:"at"`
}

func keywordsAt(matches []reward.Match) []keywordAt {
	all := make([]keywordAt, len(matches))
	for i, m := range matches {
		all[i] = keywordAt(m)
	}
	return all
}

// judge scores every answer.
func (e *evaluation) judge() {
	for i, c := range e.cases {
		for k, a := range c.answers {
			s := eval.Score(i, c.item, a.Text, c.prefilled, e.flags.rule)
			s.Cut = a.Reason == rollout.Length
			e.report.Add(s)
			e.rows = append(e.rows, e.row(c, k, s))
			if i < e.flags.show {
				fmt.Fprintf(e.out, "%s\n%s\nreward %.2f\n\n", c.prompt[0].Content, a.Text, s.Score.Reward)
			}
		}
	}
}

func (e *evaluation) row(c evalCase, sample int, s eval.Sample) resultRow {
	a, score := c.answers[sample], s.Score
	r := resultRow{
		Item: c.item.Source, Sample: sample, Domain: s.Domain, Principle: s.Principle, Prompt: c.prompt, Completion: a.Text, Reason: a.Reason,
		Reward: score.Reward, Format: score.Format, Fault: score.Fault, Answer: score.Answer,
		Required: keywordsAt(score.Required), Restricted: keywordsAt(score.Restricted),
		Integrity: score.Integrity(), Utility: score.Utility(), Complete: score.Integrity() && score.Utility(),
		ThinkLeak: s.ThinkLeak(), Think: keywordsAt(s.Think),
	}
	if e.flags.prefill {
		r.Prefill = ci.ThinkPrefill
	}
	return r
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
		MaxNew: f.MaxNew, Seed: f.seed, Format: f.rule.Format, Match: f.rule.Match, LeftOut: e.dropped, Usage: e.usage, Report: e.report,
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
	if err := data.WriteLines(filepath.Join(dir, "results.jsonl"), len(e.rows), func(i int) any { return e.rows[i] }); err != nil {
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
	for _, r := range e.rows {
		if count[r.Fault]++; count[r.Fault] > count[most] {
			most = r.Fault
		}
	}
	return most
}
