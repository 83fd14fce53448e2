package privacylens

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
)

// Options say which cases are put to which agent, and who judges. Paths are relative to the working directory.
type Options struct {
	Data    string `yaml:"data" want:"given" path:"" words:"a file of cases (main_data.json), its folder, or embedded" flag:"data" help:"cases: a file (main_data.json), the folder with it, or embedded (an example)"`
	Prompts string `yaml:"prompts" want:"given" default:"released" path:"" words:"released, or a folder of templates" flag:"prompts" help:"prompts of model and judge: released (the benchmark's own), or a folder whose templates replace some of them (docs/privacylens.md)"`
	Form    string `yaml:"form" want:"action|probe" default:"action" flag:"form" help:"action: the model writes its final action in every case; probe: it answers yes/no questions about the norms"`

	// of actions
	Prompt      string `yaml:"prompt" want:"naive|enhanced|cot|ci-rl" default:"naive" flag:"prompt" help:"prompt of the model: naive, enhanced (asks it to guard privacy), cot (CI-CoT in the dissertation's words) or ci-rl (CI-CoT as CI-RL's release asks for it)"`
	Think       string `yaml:"think" want:"strip|keep" default:"strip" help:"what becomes of the thoughts ahead of an action: strip, or keep as CI-RL's script does"`
	Guard       string `yaml:"guard" want:"none|airgap" default:"none" flag:"guard" help:"guardrail beside the prompt: none, or airgap: a first pass of the model selects the sentences that the task needs, and the action sees only these"`
	Judging     string `yaml:"judging" want:"model|keyword" default:"model" flag:"judge" help:"model (of a server) or keyword (a smoke test, never to be quoted)"`
	Against     string `yaml:"against,omitempty" path:"" words:"a file of judgements" flag:"against" help:"recorded verdicts, or embedded, with which the judge's are compared: precision, recall, agreement"`
	Helpfulness string `yaml:"helpfulness,omitempty" path:"" words:"embedded, a .json file {name: score}, or nothing: not recorded" flag:"helpfulness" help:"recorded helpfulness, {name: score}, or embedded; with --judgments"`

	// of probes
	Levels     []string `yaml:"levels" want:"seed|vignette|trajectory|trajectory-enhanced" default:"seed,vignette,trajectory,trajectory-enhanced" flag:"levels" help:"levels of probing, with commas"`
	ThinkFirst bool     `yaml:"think_first" flag:"think" help:"probing as CI-RL asks: the model thinks first and answers in an answer block"`

	// Temperature and lengths are the published ones.
	bench.Judged `yaml:",inline" defaults:"agent.temperature=0.7 agent.max_new_tokens=7000 judge.max_new_tokens=400"`
}

// The values of Options.Form.
const (
	FormAction = "action"
	FormProbe  = "probe"
)

// The judges, as the setting "kind" of the stage judge names them, with bench.Replay.
const (
	KindModel   = "model"
	KindKeyword = "keyword"
)

// publishedCases is the number of cases of the published figures, mainCases names them.
const (
	publishedCases = 493
	mainCases      = "493, sha256 05b23922a21ef56e"
)

// publishedJudge judged them, with the benchmark's prompts.
const publishedJudge = "gpt-4o-2024-11-20"

// kind names the judge.
func (o *Options) kind() string {
	if o.Judgments != "" {
		return bench.Replay
	}
	return o.Judging
}

// Benchmark is posttrain eval privacylens.
var Benchmark = bench.New(bench.Benchmark[Options, *Summary]{
	Spec:  &config.Spec[Options]{Command: "eval privacylens", QuickStart: quickStart},
	Short: "Measure with PrivacyLens what an agent leaks: leakage rate, adjusted leakage rate, helpfulness",
	Long: `Measure with PrivacyLens what an agent gives away in its last action that the recipient must not learn, and how
helpful that action is. The model under test writes its actions, or they are recorded (--answers); a server's model
judges them, the keyword smoke test, or recorded verdicts (--judgments, a file or embedded). The report has tables, summary.json
and cases.jsonl. With --form probe the model is asked whether what each case's norm
forbids is acceptable: at the levels of seed, vignette, trajectory and trajectory with the agent asked to guard
privacy, every question in both orders of its choices. Without flags an embedded example is reported.`,
	Example: `  posttrain eval privacylens
  posttrain eval privacylens --data privacylens/ --model DIR --prompt cot --judge-model gpt-4o-2024-11-20
  posttrain eval privacylens --data privacylens/ --base-url http://localhost:8000/v1 --api-model NAME ` +
		`--judge-base-url http://localhost:9000/v1 --judge-model NAME
  posttrain eval privacylens --data PrivacyLens/data --model DIR --prompt ci-rl --judge-model gpt-4o-2024-11-20
  posttrain eval privacylens --data privacylens/ --answers actions.csv --judgments verdicts.json
  posttrain eval privacylens --data privacylens/ --form probe --model DIR --out runs/probes`,
	Open: open,
})

// quickStart is the embedded example, as long as the command line names no other agent, cases, form or stage.
func quickStart(overrides []config.Override) (string, []byte) {
	if slices.ContainsFunc(overrides, func(o config.Override) bool {
		return strings.HasPrefix(o.Key, "agent.") || o.Key == "data" && o.Value != embedded.Name || o.Key == "form" ||
			o.Key == "stage"
	}) {
		return "", nil
	}
	return configs.Read("privacylens-quickstart.yaml")
}

// NeedsModel is false of recorded judgements, which are of recorded actions.
func (o *Options) NeedsModel() bool { return o.Form != FormAction || o.kind() != bench.Replay }

// NeedsJudge says that actions are judged, and by a model.
func (o *Options) NeedsJudge() bool { return o.Form != FormProbe && o.kind() == KindModel }

// Defaults drops the file's judgements where the command line chooses a judge.
func (o *Options) Defaults(g *config.Given) {
	for _, key := range []string{"judging", "judge.model", "judge.base_url"} {
		for _, recorded := range []string{"judgments", "helpfulness"} {
			if g.FromCommandLine(key) && !g.FromCommandLine(recorded) {
				g.Drop(recorded)
			}
		}
	}
}

// Resolve gives what follows from prompt and form its default.
func (o *Options) Resolve(g *config.Given) {
	if !g.Has("agent.prefill") {
		thinks := o.Form == FormAction && thinks(o.Prompt) || o.Form == FormProbe && o.ThinkFirst
		o.Agent.Prefill = thinks && o.Agent.CanPrefill()
	}
	if o.Form != FormProbe {
		return
	}
	if !g.Has("agent.temperature") {
		o.Agent.Temperature = 0
	}
	if !g.Has("agent.max_new_tokens") {
		o.Agent.MaxNew = map[bool]int{false: probeTokens, true: thinkProbeTokens}[o.ThinkFirst]
	}
}

// Validate refuses what cannot be asked, and figures that belong to nothing.
func (o *Options) Validate(g *config.Given) {
	switch {
	case o.Form == FormProbe && o.Agent.Answers != "":
		g.Fault("agent.answers", "agent.answers %s: recorded actions cannot be asked; want agent.model, or "+
			"agent.base_url and agent.api_model", o.Agent.Answers)
	case o.Form == FormProbe && o.Stage == bench.StageJudge:
		g.Fault("stage", "stage judge: probes have no judge; want answers or report")
	case o.Guard != guardNone && o.Form == FormAction && (o.Agent.Answers != "" || o.Judgments != "" && o.Agent.Way() == ""):
		g.Fault("guard", "guard %s: recorded actions are not asked for again; want guard none, or agent.model, or "+
			"agent.base_url and agent.api_model", o.Guard)
	case o.Helpfulness != "" && o.Judgments == "":
		g.Fault("helpfulness", "helpfulness %s: want judgments as well, the recorded verdicts that it belongs to",
			o.Helpfulness)
	}
}

// Idle are the keys of the other form, and a judge that the command line names beside recorded judgements.
func (o *Options) Idle(g *config.Given) config.Idle {
	keys, all := []string{"levels", "think_first"}, config.Idle{}
	if o.Form == FormProbe {
		keys = []string{"prompt", "guard", "judging", "judgments", "against", "helpfulness"}
	}
	all.Add(fmt.Sprintf("it has no effect with form %s; remove it", o.Form), keys...)
	if o.Form == FormAction && o.Judgments != "" && g.FromCommandLine("judging") {
		all.Add("it has no effect with judgments; remove one of the two", "judging")
	}
	return all
}

// evaluation is a run.
type evaluation struct {
	*Options
	prompts  prompts // of what a model is asked
	all      []Case  // of the data
	cases    []Case  // those evaluated
	recorded map[string]string
	leftOut  string  // how many cases have no recorded action; "": all have one
	replay   *replay // of recorded judgements
	judging  bool    // a model judges
	probing  []probe // of the form probe, by item
}

// open reads cases, prompts and recordings, and says what the benchmark is.
func open(o *Options, r run.Reporter) (*bench.Protocol, error) {
	e := &evaluation{Options: o}
	if err := e.read(r); err != nil {
		return nil, err
	}
	if o.Form == FormProbe {
		return e.probes()
	}
	b := &bench.Protocol{Cases: bench.HashCases(e.cases), Text: e.final, Questions: e.questions,
		Form: "Answer: Yes", Trial: "Reply with this line and nothing else.\nAnswer: No",
		Report: e.report, Files: []string{verdictsFile, helpfulnessFile, actionsFile},
		Published: len(e.cases) == publishedCases, Differs: e.differs}
	for i := range e.cases {
		b.Items = append(b.Items, bench.Item{ID: e.cases[i].Name, Seed: bench.SeedOf(o.Seed, e.cases[i].Name),
			Then: e.then(&e.cases[i]), Most: e.passes()})
	}
	if e.recorded != nil {
		b.Recorded = map[string][]string{}
		for name, action := range e.recorded {
			b.Recorded[name] = []string{action}
		}
	}
	return b, cmp.Or(e.askActions(b), e.askJudge(b))
}

// read reads cases, prompts and recorded actions, and leaves out the cases that have none.
func (e *evaluation) read(r run.Reporter) (err error) {
	var report *data.Report
	if e.all, report, err = ReadCases(e.Data); err != nil {
		return err
	}
	r.Say("%s", report)
	e.cases = bench.Head(e.all, e.First)
	if e.prompts, err = readPrompts(e.Options); err != nil {
		return err
	}
	if e.Agent.Answers == "" {
		unseen := lacking(e.Data, "description of one of their toolkits in the benchmark", e.cases, func(c *Case) bool {
			return len(c.described()) == len(c.Trajectory.Toolkits)
		})
		if unseen != nil && e.Agent.Way() != "" {
			r.Warn("%v: its prompts pass over them", unseen)
		}
		return nil
	}
	e.recorded, err = readNamed(readActions, e.Agent.Answers, embedded.PrivacyLensActions, e.all)
	if err != nil {
		return err
	}
	wanted := len(e.cases)
	e.cases = slices.DeleteFunc(slices.Clone(e.cases), func(c Case) bool { return !in(e.recorded)(&c) })
	if len(e.cases) == 0 {
		return fmt.Errorf("%s: no actions for the first %d cases", e.Agent.Answers, wanted)
	}
	if left := wanted - len(e.cases); left > 0 {
		e.leftOut = fmt.Sprintf("%d of %d", left, wanted)
		r.Warn("%s cases have no recorded action: they are left out", e.leftOut)
	}
	return nil
}

// askActions writes what a model under test is asked.
func (e *evaluation) askActions(b *bench.Protocol) error {
	if way := e.Agent.Way(); !e.Runs(bench.StageAnswers) || way == bench.Recorded || way == "" {
		return nil
	}
	b.Settings = map[string]string{"prompt": e.Prompt}
	if e.Think == bench.ThinkKeep {
		b.Settings["think"] = e.Think
	}
	if e.Guard != guardNone {
		b.Settings["guard"] = e.Guard
	}
	var err error
	b.Settings["prompts"], err = hashPrompts(e.cases, func(c *Case, add func(string, error)) {
		add(e.prompts.write(e.Prompt, c, filling{}))
		if e.Guard != guardNone {
			add(e.selecting(c))
		}
	})
	for i := range e.cases {
		text, _ := e.prompts.write(e.Prompt, &e.cases[i], filling{}) // hashPrompts has seen all faults
		if e.Guard != guardNone {
			text, _ = e.selecting(&e.cases[i])
		}
		b.Items[i].Messages = []data.Message{{Role: "user", Content: text}}
	}
	return err
}

// reading says how the agent's outputs are read.
func (o *Options) reading() reading {
	return reading{Answers: thinks(o.Prompt), Keep: o.Think == bench.ThinkKeep}
}

// final is an agent's output, post-processed; recorded ones are.
func (e *evaluation) final(a bench.Answer) string {
	if e.recorded != nil {
		return a.Output
	}
	text, _ := e.reading().Final(a.Output, a.Opened)
	return text
}

// mainData is the file of the released cases.
const mainData = "main_data.json"

// ReadCases reads cases from a file, the embedded ones, or the folder in which PrivacyLens has them.
func ReadCases(path string) ([]Case, *data.Report, error) {
	if path == embedded.Name {
		return readCases(embedded.Files, embedded.PrivacyLensCases)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, mainData)
	}
	if _, err := os.Stat(path); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: want a file of cases, or the folder with PrivacyLens's %s",
			path, run.Cause(err), mainData)
	}
	return readCases(nil, path)
}

// differs says what is not as it was where the published figures come from.
func (e *evaluation) differs(f *bench.Found) (lines []string) {
	actions, judge, kind := f.Settings[bench.StageAnswers], f.Settings[bench.StageJudge], e.kind()
	published := " (published: " + publishedJudge + ")"
	for _, d := range []struct {
		differs bool
		text    string
	}{
		{e.Prompts != bench.Released, "prompts: with templates of " + e.Prompts + " (published: the benchmark's and CI-RL's)"},
		{actions == nil || actions["kind"] == bench.Recorded, "actions: recorded ones; what was asked is not known"},
		{actions["prompt"] == CoT, "prompt cot: the CI-CoT text of the paper's figure (CI-RL's release: prompt ci-rl)"},
		{actions["prompt"] == Enhanced, "prompt enhanced: no column is of it"},
		{actions["guard"] != "", "guard " + actions["guard"] + ": no column is of it"},
		{thinks(e.Prompt) && e.Think != bench.ThinkKeep, "think strip: thoughts are dropped (CI-RL's script: keep)"},
		{!slices.Contains([]string{"", "0.7"}, actions["temperature"]), "temperature: " + actions["temperature"] +
			" (published: 0.7)"},
		{kind == KindKeyword, "judge: keywords" + published},
		{kind == bench.Replay, "judge: recorded verdicts" + published},
		{kind == KindModel && judge["model"] != publishedJudge, "judge: " + judge["model"] + published},
		{bench.HashCases(e.cases) != mainCases, "cases: not those of PrivacyLens's main_data.json"},
	} {
		if d.differs {
			lines = append(lines, d.text)
		}
	}
	return lines
}

// readNamed reads a file that names cases, or the embedded one.
func readNamed[T any](read func(fs.FS, string, []Case) (T, error), path, inside string, cases []Case) (T,
	error) {
	if path == embedded.Name {
		return read(embedded.Files, inside, cases)
	}
	return read(nil, path, cases)
}

// in says whether a case is among those that a map has by name.
func in[V any](all map[string]V) func(c *Case) bool {
	return func(c *Case) bool { _, ok := all[c.Name]; return ok }
}

// The files of a run's folder, besides the ones that every benchmark has.
const (
	verdictsFile    = "verdicts.json"    // in the benchmark's own form
	helpfulnessFile = "helpfulness.json" // the same
	actionsFile     = "actions.csv"      // the same
)

// report joins what the stages have found, counts it, and writes the verdicts and actions in the
// benchmark's own forms.
func (e *evaluation) report(f *bench.Found) (fmt.Stringer, []any, error) {
	results := e.results(f)
	s := summarize(results)
	s.Settings, s.Judge, s.Data = f.Settings, f.Judge(), e.Data
	f.Warn(e.leftOut != "", "%s cases have no recorded action: they are left out", e.leftOut)
	f.Warn(e.kind() == KindKeyword, keywordWarning)
	s.Warnings = append(s.Warnings, f.Warnings...)
	verdicts, scores := verdictsOf(results)
	actions, rows := map[string]string{}, make([]any, len(results))
	for i, c := range results {
		if rows[i] = c; c.Recorded {
			actions[c.Name] = c.FinalAction
		}
	}
	return s, rows, cmp.Or(e.compare(results, s),
		writeObject(f.Path(verdictsFile), e.cases, verdicts),
		writeOptional(f.Path(helpfulnessFile), e.cases, scores, writeObject),
		writeOptional(f.Path(actionsFile), e.cases, actions, writeActions))
}

// writeOptional writes a file where there is something for it, and removes an older one where there is nothing.
func writeOptional[V any](path string, cases []Case, of map[string]V,
	write func(string, []Case, map[string]V) error) error {
	if len(of) > 0 {
		return write(path, cases, of)
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
