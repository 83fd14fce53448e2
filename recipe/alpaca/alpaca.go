// Package alpaca is the recipe of posttrain eval alpaca: a model answers the instructions of AlpacaEval 2, a judge
// compares its outputs with a baseline's, and the judgements are counted.
package alpaca

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	data "github.com/posttrain/posttrain/eval/alpaca"
	eval "github.com/posttrain/posttrain/eval/alpaca"
	stages "github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// Command is the command that runs this recipe.
const Command = "eval alpaca"

// Options say which model is judged by whom, or which judgements are counted. Paths are relative to the working
// directory.
type Options struct {
	Annotations string   `yaml:"annotations,omitempty" words:"a .json, .jsonl or .parquet file (also .gz)"`
	Baseline    string   `yaml:"baseline,omitempty" words:"a file of the baseline's outputs"`
	Others      []string `yaml:"others,omitempty" words:"files of other models' judgements"`
	Weights     string   `yaml:"weights,omitempty" words:"a .csv file of published weights"`
	Leaderboard string   `yaml:"leaderboard,omitempty" words:"a .csv file of published rows"`
	Out         string   `yaml:"out,omitempty" words:"a folder to make"`
	Prompts     string   `yaml:"prompts" words:"a .jsonl file of the judge's messages, or nothing: our own"`
	Logprobs    bool     `yaml:"logprobs"` // the judge's server is asked for probabilities of its first token

	stages.BenchOptions `yaml:",inline"`
}

// counting are the keys that a count of judgements has.
var counting = []string{"command", "annotations", "baseline", "others", "weights", "leaderboard", "out"}

// Defaults are the benchmark's: answers of at most 2048 tokens, greedy, and a judge that says one letter.
func Defaults() Options {
	return Options{Logprobs: true, BenchOptions: stages.DefaultBench(0, 2048, judgeTokens)}
}

// judgeTokens are enough for a letter and what may be around it.
const judgeTokens = 8

// Spec says how a configuration becomes Options, for the stages that are to run.
func Spec(run ...string) *config.Spec[Options] {
	return &config.Spec[Options]{
		Command:  Command,
		Choose:   stages.ChooseBench,
		Defaults: func(*config.Given) Options { return Defaults() },
		Check: func(g *config.Given, o *Options) {
			o.checkCounting(g)
			if o.Out != "" && o.Annotations == "" {
				g.Fault("out", "out %s: it is for annotations; the folder of a run is named by --out", o.Out)
			}
			if o.Annotations != "" {
				stages.KeepKeys(g, counting, "annotations, which are counted")
				return
			}
			if len(run) > 0 && o.Baseline == "" {
				g.Fault("baseline", "baseline is missing: want a file of the instructions with the baseline's outputs "+
					"(columns instruction, output_1)")
			}
			o.CheckBench(g, run, ", or annotations, a file of judgements to count")
		},
		Idle: func(o *Options) []string {
			if o.Annotations != "" {
				return stages.AllBut(Spec().Keys(), counting)
			}
			return o.IdleBench()
		},
	}
}

var _ = config.Register(Spec())

// checkCounting looks across what the length-controlled win rate needs.
func (o *Options) checkCounting(g *config.Given) {
	for _, c := range []struct {
		key, value, lacks string
		wrong             bool
	}{
		{"weights", o.Weights, "others", o.Weights != "" && len(o.Others) == 0},
		{"others", strings.Join(o.Others, ","), "weights", len(o.Others) > 0 && o.Weights == ""},
		{"others", strings.Join(o.Others, ","), "baseline", len(o.Others) > 0 && o.Baseline == ""},
	} {
		if c.wrong {
			g.Fault(c.key, "%s %s: want %s as well: the length-controlled win rate needs both", c.key, c.value, c.lacks)
		}
	}
}

// Uses reports whether one of the stages uses a key. The keys of judgements that exist belong to no single stage.
func Uses(run []string, key string) bool {
	if uses, ok := stages.UsesBench(run, key); ok {
		return uses
	}
	switch key {
	case "annotations":
		return len(run) > 1
	case "prompts", "logprobs":
		return slices.Contains(run, stages.StageJudge)
	case "others", "weights", "leaderboard":
		return slices.Contains(run, stages.StageReport)
	}
	return true // the baseline has the instructions
}

// Result is what was counted. It is the form of summary.json.
type Result struct {
	Generator string `json:"generator"`
	Baseline  string `json:"baseline,omitempty"`
	eval.Counts
	Controlled *eval.Controlled `json:"length_controlled,omitempty"`
	Published  *Published       `json:"published,omitempty"`
	Judging    *Judging         `json:"judging,omitempty"` // of a run that asked a judge

	dir string
}

// Published is a model's row of a leaderboard.
type Published struct {
	WinRate       float64 `json:"win_rate"`
	StandardError float64 `json:"standard_error"`
	Controlled    float64 `json:"length_controlled_winrate"`
}

// Count counts judgements that exist, and writes summary.json into Options.Out. A nil Reporter is silent.
func Count(o Options, r run.Reporter) (*Result, error) {
	if err := Spec().Verify(&o); err != nil {
		return nil, err
	}
	if o.Annotations == "" {
		return nil, errors.New("annotations is missing: want a file of judgements")
	}
	r = run.Listen(r)
	all, report, err := data.ReadJudgements(o.Annotations)
	if err != nil {
		return nil, err
	}
	r.Say("%s", report)
	result, err := o.count(all)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Annotations, err)
	}
	if o.Baseline != "" {
		if err := result.control(o, all); err != nil {
			return nil, err
		}
	}
	return result, result.write(o)
}

// count counts judgements of one model.
func (o Options) count(all []data.Judgement) (result *Result, err error) {
	result = &Result{Generator: all[0].Generator}
	if result.Counts, err = eval.Count(all); err != nil {
		return nil, err
	}
	if o.Leaderboard != "" {
		result.Published, err = readPublished(o.Leaderboard, result.Generator)
	}
	return result, err
}

// control adds the length-controlled win rate.
func (s *Result) control(o Options, all []data.Judgement) error {
	b, err := data.ReadBaseline(o.Baseline)
	if err != nil {
		return err
	}
	s.Baseline = b.Generator
	if err := fits(o, all, b); err != nil {
		return err
	}
	return s.controlWith(o, all, b)
}

// controlWith is control with a baseline that was read.
func (s *Result) controlWith(o Options, all []data.Judgement, b *data.Baseline) error {
	others, err := o.readOthers(s.Generator, b)
	if err != nil {
		return err
	}
	c, err := eval.ControlLength(all, b, others)
	if err == nil {
		s.Controlled = &c
	}
	return err
}

// fits refuses judgements against another baseline, and a file that is cut short.
func fits(o Options, all []data.Judgement, b *data.Baseline) error {
	for _, j := range all {
		if j.Baseline != "" && b.Generator != "" && j.Baseline != b.Generator {
			return fmt.Errorf("%s: generator_1 is %s, and the baseline of %s is %s: want judgements against it",
				j.Source, j.Baseline, o.Baseline, b.Generator)
		}
	}
	if len(all) < len(b.Outputs) {
		return fmt.Errorf("%s: %d judgements for the %d instructions of %s: the file is cut short, or of another set",
			o.Annotations, len(all), len(b.Outputs), o.Baseline)
	}
	return nil
}

// readOthers reads the models that give the difficulties of the instructions: not the model itself.
func (o Options) readOthers(generator string, b *data.Baseline) (others []eval.Reference, err error) {
	if len(o.Others) == 0 {
		return nil, nil
	}
	weights, err := data.ReadWeights(o.Weights)
	if err != nil {
		return nil, err
	}
	for _, path := range o.Others {
		all, _, err := data.ReadJudgements(path)
		if err != nil {
			return nil, err
		}
		name := all[0].Generator
		w, found := weights[name]
		if !found {
			return nil, fmt.Errorf("%s: %s has no weights of %q", path, o.Weights, name)
		}
		if name != generator {
			others = append(others, eval.Reference{Judgements: all, Weights: w})
		}
	}
	return others, nil
}

// readPublished finds a model's row; nil without one.
func readPublished(path, generator string) (*Published, error) {
	table, err := data.ReadCSV(path)
	if err != nil {
		return nil, err
	}
	for _, row := range table[min(1, len(table)):] {
		if row[0] != generator {
			continue
		}
		p := &Published{}
		for column, to := range map[string]*float64{"win_rate": &p.WinRate, "standard_error": &p.StandardError,
			"length_controlled_winrate": &p.Controlled} {
			i := slices.Index(table[0], column)
			if i < 0 {
				return nil, fmt.Errorf("%s: it has no column %s", path, column)
			}
			if *to, err = strconv.ParseFloat(row[i], 64); err != nil {
				return nil, fmt.Errorf("%s: %s of %s is %q: want a number", path, column, generator, row[i])
			}
		}
		return p, nil
	}
	return nil, nil
}

func (s *Result) write(o Options) error {
	if s.dir = o.Out; s.dir == "" {
		return nil
	}
	return stages.WriteCount(o.Out, "eval-alpaca", Spec().Resolve(&o), s)
}

// String gives the counts in words.
func (s *Result) String() string {
	var t strings.Builder
	fmt.Fprintf(&t, "%s: win rate %.2f %% ± %.2f (%d wins, %d draws, %d losses), outputs of %d characters\n",
		s.Generator, s.WinRate, s.StandardError, s.Wins, s.Draws, s.WinsBase, s.AvgLength)
	if c := s.Controlled; c != nil {
		how := fmt.Sprintf("with difficulties from %d other models", c.References)
		if c.References == 0 {
			how = "without the difficulties of instructions, which other models' judgements give (--others, --weights)"
		}
		fmt.Fprintf(&t, "length-controlled win rate %.2f %%, %s\n", c.WinRate, how)
	}
	if p := s.Published; p != nil {
		fmt.Fprintf(&t, "published: win rate %.2f %% ± %.2f, length-controlled %.2f %%\n", p.WinRate, p.StandardError,
			p.Controlled)
	}
	if s.Judging != nil {
		s.Judging.print(&t)
	}
	if s.dir != "" {
		fmt.Fprintf(&t, "Summary: %s\n", s.dir)
	}
	return t.String()
}
