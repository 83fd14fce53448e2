package bench

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/journal"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/metered"
)

// The stages, as Settings name them.
const (
	StageAnswers = "answers" // the model under test answers, or answers are recorded
	StageJudge   = "judge"   // a judge reads them
	StageReport  = "report"  // all is counted
)

// The files of a run's folder, with SettingsName and UsageName.
const (
	AnswersName  = "answers.jsonl"  // Answer, as they come
	VerdictsName = "verdicts.jsonl" // Verdict, as they come
	SummaryName  = "summary.json"   // in the benchmark's form
	CasesName    = "cases.jsonl"    // in the benchmark's form, with id and score or scores: see Compare
)

// TooLong is the reason of an answer that was not asked for: the model has not as many positions as the prompt has
// tokens. The answer is empty.
const TooLong = "prompt too long"

// Item is what a model is asked, in one turn or several. A turn's prompt has the turns before it with their answers.
type Item struct {
	ID          string
	Turns       []string       // the user's
	Messages    []data.Message `json:",omitempty"` // in the place of Turns: the whole conversation of one turn
	Temperature *float64       `json:",omitempty"` // instead of the options'
	Seed        uint64         `json:"-"`          // of the draws; 0: one that follows from ID and the options' seed
}

func (i *Item) turns() int { return max(len(i.Turns), 1) }

// Answer is a model's answer in a turn, a line of answers.jsonl.
type Answer struct {
	ID     string `json:"id"`
	Turn   int    `json:"turn"` // from 1
	Output string `json:"output"`
	Opened bool   `json:"think_opened,omitempty"`  // the prompt ends inside a think block
	Reason string `json:"reason,omitempty"`        // eos, stop, length, TooLong, or a server's word
	Tokens int    `json:"tokens,omitempty"`        // of the output; servers do not count
	Prompt string `json:"prompt_sha256,omitempty"` // of all messages; recorded answers have none
}

// Rest is the answer without its thoughts. closed is false where they never end, which leaves nothing.
func (a Answer) Rest() (text string, closed bool) {
	rest, closed := WithoutThoughts(a.Output, a.Opened)
	if rest != a.Output {
		rest = strings.TrimSpace(rest)
	}
	return rest, closed
}

// Whole is the answer with its thoughts, which begin with the mark of a think block if the prompt has that.
func (a Answer) Whole() string {
	if a.Opened && !strings.HasPrefix(strings.TrimSpace(a.Output), thinkOpen) {
		return thinkOpen + a.Output
	}
	return a.Output
}

// Question is what a judge is asked about an item. Key tells an item's questions apart.
type Question struct {
	ID, Key  string
	Messages []data.Message
}

// Verdict is a judge's reply to a question, a line of verdicts.jsonl.
type Verdict struct {
	ID     string         `json:"id"`
	Key    string         `json:"key"`
	Prompt []data.Message `json:"prompt"`
	// Replies has a second one where the first has no verdict and a reminder was sent; none of a verdict by a rule.
	Replies []string           `json:"replies,omitempty"`
	Top     map[string]float64 `json:"top,omitempty"` // log-probabilities of the last reply's first token
	Cut     bool               `json:"cut,omitempty"` // the last reply met its limit of tokens, and has no Top
	Parsed  bool               `json:"parsed"`        // there is a verdict
	Said    string             `json:"verdict"`       // in the benchmark's words
	Score   float64            `json:"score"`         // in the benchmark's units
}

// Bench says what a benchmark asks, and how it reads what comes back.
type Bench struct {
	Items []Item
	Cases string // names what is evaluated, whatever the prompts; "": the items do, as HashCases has it
	// Recorded are the answers by id and turn, in place of a model's; nil: the model is asked.
	Recorded map[string][]string
	// Text is what judges and counts read of an answer; nil: without its thoughts where there is a judge, else the whole.
	Text func(Answer) string
	// Questions are those about item i with the texts of its answers by turn, nil where the options need no answers; an
	// item may have no question. nil: there is no judge.
	Questions func(i int, texts []string) ([]Question, error)
	// Rule gives the verdict in place of a server's model; Kind names it. nil: the model is asked.
	Rule func(q Question, v *Verdict)
	Kind string
	// Read finds the verdict in the last of the replies: Parsed, Said and Score.
	Read        func(q Question, r metered.Reply, v *Verdict)
	Form        string // of a verdict, for the error about a judge that gives none
	Trial       string // is asked before answers are generated, so that a wrong judge does not show hours later
	TopLogprobs int    // likeliest first tokens of a reply that Read needs
	// Remind makes another question of one whose reply has no verdict; it is asked once. nil: nothing is said.
	Remind   func(messages []data.Message, reply string) []data.Message
	Identity map[string]string // what verdicts depend on besides the judge, the answers and the prompts
	Settings map[string]string // what answers depend on besides the model, and the prompts by their items
	Files    []string          // that the report writes, besides summary.json and cases.jsonl
	// Report counts what the stages have found. It gives the result, and the lines of cases.jsonl.
	Report func(*Found) (result fmt.Stringer, cases []any, err error)
}

// Found is what the stages have left in a run's folder.
type Found struct {
	*Store
	Items    []Item
	Answers  map[string][]Answer   // by id, in the order of turns
	Verdicts map[[2]string]Verdict // by id and key
	Settings Settings
	Warnings []string // of what went wrong on the way

	text func(Answer) string
}

// Outputs are the texts of an item's answers by turn.
func (f *Found) Outputs(id string) (texts []string) {
	for _, a := range f.Answers[id] {
		texts = append(texts, f.text(a))
	}
	return texts
}

// Verdict finds a verdict.
func (f *Found) Verdict(id, key string) (v Verdict, found bool) {
	v, found = f.Verdicts[[2]string{id, key}]
	return v, found
}

// Warn adds a warning where something holds.
func (f *Found) Warn(when bool, format string, values ...any) {
	if when {
		f.Warnings = append(f.Warnings, fmt.Sprintf(format, values...))
	}
}

// Model names the model under test: as its answers' settings do, or by the file of recorded answers.
func (f *Found) Model(a Agent) string {
	return cmp.Or(a.RecordedName(), f.Settings[StageAnswers]["model"])
}

// benching is a call of Benchmark.Run.
type benching struct {
	Evaluation
	Bench
	command string
	o       Options
	judge   Judge
	config  []byte // config.yaml
	none    bool   // no answers are needed, and none are named
	store   *Store
	subject *Subject // nil: no model is asked
	client  *metered.Client
	result  fmt.Stringer
}

func (e *benching) run(ctx context.Context) error {
	defer e.close()
	err := e.prepare()
	err = e.Do(ctx, err, StageAnswers, e.runAnswers)
	err = e.Do(ctx, err, StageJudge, e.runJudge)
	return e.Do(ctx, err, StageReport, e.runReport)
}

// asksModel says that a model is asked for answers, asksJudge that a server's model judges.
func (e *benching) asksModel() bool {
	return e.Runs(StageAnswers) && e.Recorded == nil && e.o.Agent.Way() != ""
}
func (e *benching) asksJudge() bool { return e.Runs(StageJudge) && e.Rule == nil }

// text is what is read of an answer.
func (e *benching) text(a Answer) string {
	switch {
	case e.Text != nil:
		return e.Text(a)
	case e.Recorded != nil:
		return a.Output
	case e.Questions != nil:
		rest, _ := a.Rest()
		return rest
	}
	return a.Whole()
}

// prepare finds what is wrong before anything is written or takes long.
func (e *benching) prepare() error {
	if e.asksModel() && e.o.Agent.Way() == Remote {
		if err := e.o.Agent.CheckKey("agent"); err != nil {
			return err
		}
	}
	if e.asksJudge() {
		if err := e.judge.CheckKey("judge"); err != nil {
			return err
		}
	}
	if err := cmp.Or(e.checkRecorded(), e.openSubject()); err != nil {
		return err
	}
	names := append([]string{SettingsName, UsageName, SummaryName, CasesName}, e.Files...)
	if err := e.Open(folderName(e.command), names, e.save); err != nil {
		return err
	}
	var err error
	if e.store, err = OpenStore(e.Folder.Dir, cmp.Or(e.Bench.Cases, HashCases(e.Items))); err == nil {
		e.store.Accepted, e.store.Held = e.saveIfAccepted, e.Folder.Held
	}
	return err
}

// checkRecorded wants recorded answers to every turn of every item.
func (e *benching) checkRecorded() error {
	if e.Recorded == nil {
		return nil
	}
	missing, first := 0, ""
	for _, item := range e.Items {
		if len(e.Recorded[item.ID]) < item.turns() {
			missing, first = missing+1, cmp.Or(first, item.ID)
		}
	}
	if missing > 0 {
		return fmt.Errorf("%s: %d of %d questions have no answer (first: %s)", e.o.Agent.Answers, missing, len(e.Items),
			first)
	}
	return nil
}

// openSubject opens the model under test, and finds out whether it has room for a prompt.
func (e *benching) openSubject() (err error) {
	if !e.asksModel() {
		return nil
	}
	if e.subject, err = OpenSubject(e.o.Agent, !e.Continuing, e.Reporter); err != nil || e.Continuing {
		return err
	}
	return e.subject.CheckRoom(len(e.Items), func(i int) (rollout.Conversation, error) {
		return e.conversation(&e.Items[i], nil), nil
	})
}

func (e *benching) save() error { return e.Folder.WriteConfig(e.config) }

// saveIfAccepted saves config.yaml once a stage has begun with it, but for answers that run before the judge, which may
// still be rejected.
func (e *benching) saveIfAccepted(stage string) error {
	if stage == StageAnswers && e.Runs(StageJudge) {
		return nil
	}
	return e.save()
}

func (e *benching) close() {
	e.subject.Close()
	_ = e.closeClient() // before the folder, which has its cache; a stage that succeeds has closed it
	if e.Folder != nil {
		e.Folder.Close()
	}
}

// conversation puts a turn to the model, with the answers of those before it.
func (e *benching) conversation(item *Item, answers []string) rollout.Conversation {
	c := rollout.Conversation{Messages: item.Messages, Sampling: e.o.Agent.Sampling, Seed: item.Seed}
	if c.Seed == 0 {
		c.Seed = SeedOf(e.o.Seed, fmt.Sprintf("%s/%d", item.ID, len(answers)))
	}
	if item.Temperature != nil {
		c.Temperature = *item.Temperature
	}
	if e.o.Agent.Prefill {
		c.Prefill = ci.ThinkPrefill
	}
	for i := range min(len(item.Turns), len(answers)+1) {
		c.Messages = append(c.Messages, data.Message{Role: "user", Content: item.Turns[i]})
		if i < len(answers) {
			c.Messages = append(c.Messages, data.Message{Role: "assistant", Content: answers[i]})
		}
	}
	return c
}

// runReport reads what the stages have left, counts it, and writes it.
func (e *benching) runReport(context.Context) error {
	f, err := e.found()
	if err != nil {
		return err
	}
	result, cases, err := e.Bench.Report(f)
	if err == nil {
		err = data.WriteLines(f.Path(CasesName), len(cases), func(i int) any { return cases[i] })
	}
	if err == nil {
		err = data.WriteJSON(f.Path(SummaryName), result)
	}
	if err == nil {
		e.result = result
	}
	return err
}

// found reads what the stages have left; nothing may be missing.
func (e *benching) found() (*Found, error) {
	answers, err := e.answers()
	if err != nil {
		return nil, err
	}
	questions, err := e.questions(answers)
	if err != nil {
		return nil, err
	}
	path := e.store.Path(VerdictsName)
	rows, err := journal.Read[Verdict](path)
	if err != nil {
		return nil, err
	}
	settings, err := ReadSettings(e.store.Dir)
	if err == nil {
		err = e.store.SameCases(settings, StageJudge)
	}
	if err != nil {
		return nil, err
	}
	todo, err := unanswered(questions, rows, func(Verdict) {})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(todo) > 0 {
		return nil, fmt.Errorf("%s: %d of %d verdicts are missing (first: %s): run `posttrain %s --stage judge --out %s` "+
			"to finish", path, len(todo), len(questions), todo[0].ID, e.command, e.store.Dir)
	}
	f := &Found{Store: e.store, Items: e.Items, Answers: answers, Settings: settings, text: e.text}
	f.Verdicts, _ = byKey(rows) // unanswered has checked them
	f.warn(e.Questions != nil && e.Text == nil)
	return f, nil
}

// warn adds what a reader of the numbers should know. rest: thoughts are not read.
func (f *Found) warn(rest bool) {
	cut, tooLong, all, unparsed, open, cutVerdicts := 0, 0, 0, 0, 0, 0
	for _, item := range f.Items {
		for _, a := range f.Answers[item.ID] {
			if _, closed := a.Rest(); !closed {
				open++
			}
			switch all++; a.Reason {
			case rollout.Length:
				cut++
			case TooLong:
				tooLong++
			}
		}
	}
	for _, v := range f.Verdicts {
		if !v.Parsed {
			unparsed++
		}
		if v.Cut {
			cutVerdicts++
		}
	}
	f.Warn(cut*20 > all, "%d of %d answers met their length limit: allow more tokens", cut, all)
	f.Warn(rest && open > 0, "%d of %d answers never close their think block: nothing of them is judged", open, all)
	f.Warn(tooLong > 0, "%d of %d prompts do not fit the model: their answers are empty", tooLong, all)
	f.Warn(cutVerdicts > 0, "%d of %d replies of the judge met their length limit: what they say so far counts; allow "+
		"more tokens (judge.max_new_tokens)", cutVerdicts, len(f.Verdicts))
	f.Warn(rest && unparsed > 0, "%d of %d replies of the judge have no verdict: they do not count", unparsed,
		len(f.Verdicts))
}
