// Package ci is posttrain eval ci: which of the information in contextual-integrity scenarios a model shares, that it
// should and that it should not. Package eval has the counts.
package ci

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/agent"
)

// Options say what is measured on what. Paths are relative to the working directory.
type Options struct {
	// The scenarios: the test split of a ci-rl run, the items of a file, or held-out synthetic ones.
	Run  string `yaml:"run,omitempty" path:"" words:"the config of a ci-rl run"`
	Data string `yaml:"data,omitempty" hub:"data" path:"" words:"a .jsonl, .json or .parquet file of items (also .gz)" flag:"data" help:"contextual-integrity items, .json, .jsonl or .parquet, or org/name[@revision][:config][:split] on the hub (default: synthetic scenarios)"`
	N    int    `yaml:"n,omitempty" want:">=0" default:"200" flag:"n" help:"number of synthetic scenarios; of --data the first n (default all)"`
	// which items of Data: those that the released preprocessing keeps, or all, as with ""
	Items string `yaml:"items,omitempty" want:"|all|released" words:"all or released" flag:"items" help:"items of --data: all, or released, without those that the released preprocessing drops"`
	// The part of Data. ci-rl with SplitSeed for its seed and the same fractions splits it in the same way.
	Split              string  `yaml:"split" want:"test|validation|train|all" default:"test" flag:"split" help:"part of --data: test, validation, train or all, as ci-rl splits it with --split-seed for its seed"`
	SplitSeed          uint64  `yaml:"split_seed" flag:"split-seed" help:"seed of the split"`
	ValidationFraction float64 `yaml:"validation_fraction" want:">=0 <=1" default:"0.09" flag:"validation-fraction" help:"share of --data that the split gives to validation"`
	TestFraction       float64 `yaml:"test_fraction" want:">=0 <=1" default:"0.10" flag:"test-fraction" help:"share of --data that the split gives to test"`

	// Episodes of an agent with tools.
	Episodes rl.Agent `yaml:"episodes,omitempty"`
	Calls    string   `yaml:"calls,omitempty" want:"|native|text" words:"native or text" flag:"calls" help:"of episodes: how tools are called on a server: native (tool_calls, the default) or text (for servers without tools)"`

	ci.Form   `yaml:",inline" defaults:"prompt=compact"`
	Samples   int            `yaml:"samples" want:">=1" default:"1" flag:"samples" help:"answers to each scenario"`
	Show      int            `yaml:"show" want:">=0" flag:"show" help:"scenarios to print with their answers"`
	Published bool           `yaml:"published" flag:"published" help:"print the figures of the CI-RL paper's six models beside (needs items of a file)"`
	Reward    reward.Options `yaml:"reward"`

	bench.Options `yaml:",inline" defaults:"seed=1000 agent.model=embedded agent.max_new_tokens=128"`
}

// How many tokens an answer has at most where the options do not say: a message of an episode, and an answer to an item
// of a file, which has the released length.
const (
	EpisodeMaxNew = 256
	FileMaxNew    = 2048
)

// Benchmark is posttrain eval ci.
var Benchmark = bench.New(bench.Benchmark[Options, *Result]{
	Spec:  &config.Spec[Options]{Command: "eval ci", Without: []string{"first", "agent.prefill"}},
	Short: "Measure contextual integrity: what a model shares that it should not, and what it should",
	Long: `Let a model answer contextual-integrity scenarios and count what it shares: integrity (nothing restricted),
utility (everything required) and complete (both), each with its 95 % interval, by domain and by transmission
principle; and how often its think block names what its answer must not. The scenarios are held-out synthetic ones,
or the test split of --data, which ci-rl with the same seed and fractions never trains on. --config takes a config
of this command, or that of a ci-rl run, whose test split is measured. An answer without the format counts for
integrity, because it shares nothing that can be read, and not for utility.`,
	Example: `  posttrain eval ci
  posttrain eval ci --model runs/mappo-20260102-150405/model --n 500
  posttrain eval ci --model DIR --data dataset.json --cot --samples 4 --temperature 0.7 --out results
  posttrain eval ci --model DIR --config runs/ci-rl-20260102-150405/config.yaml
  posttrain eval ci --model DIR --data dataset.json --items released --cot --published
  posttrain eval ci --base-url http://localhost:8000/v1 --api-model NAME --data dataset.json --cot`,
	Switches: []config.Flag{{Name: "cot", Key: "prompt", Value: ci.PromptCoT, Help: "ask for CI-CoT reasoning: --prompt cot"},
		{Name: "prefill", Key: "prefill", Help: "begin every answer with <think>, as ci-rl does (default: unless compact or " +
			"plain; of a server only with --continue)"}},
	Open: open,
})

// Defaults takes model, prompts, sampling and reward from the config of the ci-rl run that the user names, if any.
func (o *Options) Defaults(g *config.Given) {
	path := g.Text("run")
	if path == "" {
		return
	}
	c, err := readRun(path)
	if err != nil {
		g.Fault("run", "run %s: %s", path, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	o.Run, o.Split, o.SplitSeed, o.N = path, "test", c.Seed, 0
	o.Agent.Model, o.Agent.Backend, o.Agent.Chat, o.Agent.Sampling = c.Model, c.Backend, c.Chat.Chat, c.TestSampling()
	o.Form, o.Reward, o.Episodes = c.Data.Form, c.Reward, c.Agent
}

func readRun(path string) (*rl.CI, error) {
	return rl.CISpec.Load(config.Input{Path: path, Allow: config.Anything})
}

// Resolve gives what follows from the source of scenarios, and from the form of prompts, its default.
func (o *Options) Resolve(g *config.Given) {
	if o.Run != "" {
		o.Prefill = o.Prefill && o.Agent.CanPrefill()
		return
	}
	if o.Data != "" {
		if !g.Has("n") {
			o.N = 0
		}
		if !g.Has("prompt") {
			o.Prompt = ci.PromptPlain
		}
		if !g.Has("agent.max_new_tokens") {
			o.Agent.MaxNew = FileMaxNew
		}
	}
	if o.Episodes.On() {
		if o.Agent.BaseURL != "" && !g.Has("prompt") {
			o.Prompt = ci.PromptPlain
		}
		if !g.Has("agent.max_new_tokens") {
			o.Agent.MaxNew = EpisodeMaxNew
		}
	}
	o.Reward.Format = o.Suits(o.Reward.Format, g.Has("reward.format"))
	if !g.Has("prefill") {
		o.Prefill = o.Thinks() && o.Agent.CanPrefill()
	}
}

// ofRun are the keys whose values a run has.
var ofRun = []string{"data", "items", "n", "prompt", "template", "prefill", "split", "split_seed", "validation_fraction",
	"test_fraction", "agent.chat.template", "agent.chat.template_sha256", "agent.chat.variables", "agent.chat.date",
	"reward.format", "reward.match", "reward.required_weight", "reward.restricted_weight", "episodes.turns", "episodes.tokens",
	"episodes.policy"}

// Idle are the keys that the run has, or those about a split where nothing is split.
func (o *Options) Idle(*config.Given) config.Idle {
	all := config.Idle{}
	split := []string{"split_seed", "validation_fraction", "test_fraction"}
	switch {
	case o.Run != "":
		all.Add(fmt.Sprintf("the run %s has that; remove one of the two", o.Run), ofRun...)
	case o.Data == "":
		all.Add("only a file of items is split: add data", append(split, "items", "split")...)
	case o.Split == "all":
		all.Add("split all takes the whole file; remove one of the two", split...)
	}
	return all
}

// synthetic says that the scenarios are made, not read from a file.
func (o *Options) synthetic() bool {
	if o.Run == "" {
		return o.Data == ""
	}
	c, err := readRun(o.Run)
	return err == nil && c.Data.SyntheticTest()
}

// Validate refuses values that do not go together.
func (o *Options) Validate(g *config.Given) {
	if o.N < 1 && (o.Run == "" && o.Data == "" || g.Has("n")) {
		g.Fault("n", "n %d: want a whole number, 1 or more", o.N)
	}
	if v, t := o.ValidationFraction, o.TestFraction; v >= 0 && v <= 1 && t >= 0 && t <= 1 && v+t > 1 {
		g.Fault("test_fraction", "test_fraction %v: with validation_fraction %v the sum is above 1: want 1 at most",
			t, v)
	}
	o.checkEpisodes(g)
	o.CheckSamples(g, o.Samples)
	if a := o.Agent; o.Run != "" && a.BaseURL != "" && (a.TopK != 0 || a.MinP != 0) {
		g.Fault("run", "run %s: it draws with top_k %d and min_p %v, which OpenAI's protocol has not: want 0 (off)", o.Run,
			a.TopK, a.MinP)
	}
	if o.Published && o.synthetic() {
		g.Fault("published", "published true: the published figures are of the released items, and these scenarios "+
			"are synthetic; add data, such as dataset.json, or remove it")
	}
	if o.Prefill && !o.Agent.CanPrefill() {
		g.Fault("prefill", "prefill true: this server does not continue the beginning of an answer; want false, or "+
			"agent.continue vllm for a server that does, without agent.think_opened")
	}
}

var parts = map[string]ci.Part{"train": ci.Train, "validation": ci.Validation, "test": ci.Test, "all": ci.All}

// scenarios are those to put to a model; order is the seed of the order in which the prompt of item i lists its
// attributes.
func (o *asking) scenarios(r run.Reporter) (items []ci.Item, order func(i int) uint64, what string, err error) {
	switch {
	case o.Run != "":
		c, err := readRun(o.Run)
		if err != nil {
			return nil, nil, "", err
		}
		o.judge = c.Judge.Model
		all, err := c.Items(nil) // the sizes of the other parts are of no interest
		if err == nil && len(all[ci.Test]) == 0 {
			err = fmt.Errorf("%s: the run has no test split (data.test_fraction 0)", o.Run)
		}
		items = all[ci.Test]
		return items, c.Order(ci.Test), fmt.Sprintf("%d test scenarios of %s", len(items), o.Run), err
	case o.Data != "":
		return o.ofFile(r)
	}
	if o.Episodes.Policy != "" && o.Episodes.Policy != rl.OfItem {
		return o.ofNorms()
	}
	return ci.SynthesizeHeldOut(o.N, o.Seed), func(i int) uint64 { return uint64(i) },
		fmt.Sprintf("%d held-out synthetic scenarios", o.N), nil
}

// ofFile reads the part of a file.
func (o *Options) ofFile(r run.Reporter) (items []ci.Item, order func(i int) uint64, what string, err error) {
	all, report, err := ci.ReadItems(o.Data, o.Items)
	if err != nil {
		return nil, nil, "", err
	}
	r.Say("%s", report)
	train, validation, test := ci.Split(len(all), o.ValidationFraction, o.TestFraction, o.SplitSeed)
	what = fmt.Sprintf("%s split of seed %d", o.Split, o.SplitSeed)
	part := map[string][]int{"train": train, "validation": validation, "test": test}[o.Split]
	if o.Split == "all" {
		part, what = slices.Sorted(slices.Values(slices.Concat(train, validation, test))), "all"
	}
	if len(part) == 0 {
		return nil, nil, "", fmt.Errorf("%s: the %s split has no items (validation_fraction %v and test_fraction %v of "+
			"%d): want other fractions, or split all", o.Data, o.Split, o.ValidationFraction, o.TestFraction, len(all))
	}
	if o.N > 0 {
		part = part[:min(o.N, len(part))]
	}
	what = fmt.Sprintf("%d of %d items of %s (%s)", len(part), len(all), o.Data, what)
	order = func(i int) uint64 { return ci.Order(o.SplitSeed, parts[o.Split], i) }
	return data.Pick(all, part), order, what, nil
}

// ofNorms are scenarios of unseen norms, or of all that a policy's file has.
func (o *Options) ofNorms() (items []ci.Item, order func(i int) uint64, what string, err error) {
	order = func(i int) uint64 { return uint64(i) }
	if o.Episodes.Policy == rl.Drawn {
		return ci.SynthesizeNorms(o.N, o.Seed, true), order, fmt.Sprintf("%d scenarios of unseen norms", o.N), nil
	}
	items, err = rl.OfPolicy(o.Episodes.Policy, o.N, o.Seed)
	return items, order, fmt.Sprintf("%d scenarios of %s", len(items), o.Episodes.Policy), err
}

// asking is a run.
type asking struct {
	*Options
	questions []ask.Question
	talks     []agent.Conversation // of each case: episodes alone
	what      string
	judge     string // of the run, which asks it about its episodes

	uncounted bool // a server does not say how many tokens a prompt has
}

// open puts the scenarios into prompts, each of which is asked as often as it has samples.
func open(o *Options, r run.Reporter) (*bench.Protocol, error) {
	e := &asking{Options: o}
	items, order, what, err := e.scenarios(r)
	e.what = what
	if err == nil && !o.Episodes.On() {
		e.questions, err = eval.Questions(items, o.Form, order)
	}
	if err != nil {
		return nil, err
	}
	o.Agent.Prefill = o.Prefill
	b := &bench.Protocol{Report: e.report, Published: o.Published, Differs: e.differs, Text: func(a bench.Answer) string { return a.Output }}
	if o.Episodes.On() {
		return b, e.openEpisodes(items, order, b)
	}
	for i := range e.questions {
		for k := range o.Samples {
			b.Items = append(b.Items, bench.Item{ID: e.sample(i, k), Messages: e.questions[i].Prompt.Messages,
				Seed: rollout.DrawSeed(o.Seed, i*o.Samples+k)})
		}
	}
	return b, nil
}

// differs says what is not as it was where the published figures come from.
func (e *asking) differs(*bench.Found) (lines []string) {
	if !e.IsReleased() {
		lines = append(lines, fmt.Sprintf("prompt: %s (published: CI-RL's, --prompt released)", e.Prompt))
	}
	if e.Items != ci.ReleasedItems || e.Split != "test" {
		lines = append(lines, "items: not the test split of those that the release keeps (--items released)")
	}
	if e.Episodes.On() {
		lines = append(lines, fmt.Sprintf("turns: %d at most, with tools (published: one answer)", e.Episodes.Turns))
	}
	return append(lines, "items: another draw of 64, for the release splits without a seed")
}

// sample names answer k, from 0, to case i.
func (e *asking) sample(i, k int) string { return fmt.Sprintf("%s/%d", e.questions[i].Source, k+1) }

// row is an answer's line of cases.jsonl.
type row struct {
	ID     string             `json:"id"`
	Scores map[string]float64 `json:"scores"`
	eval.Row
}

// report scores the answers, and counts.
func (e *asking) report(f *bench.Found) (fmt.Stringer, []any, error) {
	s := &Result{Data: e.what, Prompt: e.Prompt, Prefill: e.Prefill, Samples: e.Samples, Format: e.Reward.Format,
		Match: e.Reward.Match, Settings: f.Settings, Report: &eval.Report{}, Model: f.Model(e.Agent),
		BaseURL: e.Agent.BaseURL, show: e.Show}
	faults, often := map[string]int{}, ""
	var rows []any
	for i := range e.questions {
		q := &e.questions[i]
		for k := range e.Samples {
			said := f.Answers[e.sample(i, k)]
			a := said[0]
			if a.Reason == bench.TooLong {
				s.LeftOut++
				continue
			}
			var sample eval.Sample
			if e.Episodes.On() {
				var err error
				if sample, err = e.episode(i, k, said); err != nil {
					return nil, nil, err
				}
			} else {
				q.Opened, q.Prefill = a.Opened, map[bool]string{true: ci.ThinkPrefill}[e.Prefill]
				sample = eval.SampleOf(i, answerOf(q, a.Output, a.Reason, a.Tokens), e.Reward)
				sample.Number = k
			}
			s.Answers = append(s.Answers, sample)
			s.Add(sample)
			if faults[sample.Score.Fault]++; faults[sample.Score.Fault] > faults[often] {
				often = sample.Score.Fault
			}
			score := sample.Score
			rows = append(rows, row{e.sample(i, k), map[string]float64{"integrity": eval.Indicator(score.Integrity()),
				"utility": eval.Indicator(score.Utility()), "reward": score.Reward,
				"complete": eval.Indicator(score.Integrity() && score.Utility())}, sample.Row()})
		}
	}
	kept := s.All.Format.Share()
	f.Warn(kept.Count == 0, "no answer keeps the format (most often: %s): integrity then says nothing", often)
	f.Warn(e.judge != "", "the run counts what its judge (judge.model %s) calls a leak, too: here keywords alone count, so "+
		"that the figures do not compare with the run's own test", e.judge)
	f.Warn(e.uncounted && e.Episodes.Tokens > 0, "the server does not count the tokens of prompts: episodes of more than "+
		"%d tokens are not cut", e.Episodes.Tokens)
	s.Warnings = f.Warnings
	return s, rows, nil
}

// answerOf is an answer of a run's folder.
func answerOf(q *ask.Question, text, reason string, tokens int) ask.Answer {
	return ask.Answer{To: q, Completion: rollout.Completion{Text: text, Reason: reason},
		Usage: ask.Usage{CompletionTokens: tokens}}
}

// Result is what was measured, the form of summary.json.
type Result struct {
	Model   string `json:"model"`
	BaseURL string `json:"base_url,omitempty"`
	Data    string `json:"data"`
	Prompt  string `json:"prompt"`
	Prefill bool   `json:"prefill"`
	Samples int    `json:"samples"`
	Format  string `json:"format"`
	Match   string `json:"match"`
	LeftOut int    `json:"left_out"` // answers that the model has no room for
	*eval.Report
	Settings bench.Settings `json:"settings"`
	Warnings []string       `json:"warnings,omitempty"`

	Answers []eval.Sample `json:"-"` // those to the first scenario, then those to the second
	show    int           // scenarios to print
}

// String says in words what was measured.
func (s *Result) String() string {
	var b strings.Builder
	for _, a := range s.Answers {
		if a.Item < s.show {
			fmt.Fprintf(&b, "%s\n%s\nreward %.2f\n\n", a.Answer.To.Prompt.Last(), a.Answer.Text, a.Score.Reward)
		}
	}
	name := s.Model
	if s.BaseURL != "" {
		name += " on " + s.BaseURL
	}
	fmt.Fprintf(&b, "%s: %s, prompt %s\n", name, s.Data, s.Prompt)
	_ = s.Write(&b) // a Builder takes everything
	return b.String() + bench.Warned(s.Warnings)
}
