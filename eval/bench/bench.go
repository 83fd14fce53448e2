package bench

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/journal"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/metered"
)

// The stages of a benchmark, in which a judge may read a model's answers, as Settings name them.
const (
	StageAnswers = "answers"
	StageJudge   = "judge"
	StageReport  = "report"
)

// All are the stages that run where none is named, Unjudged those of a benchmark without a judge.
var (
	All      = []string{StageAnswers, StageJudge, StageReport}
	Unjudged = []string{StageAnswers, StageReport}
)

// The files of a run's folder, with SettingsName and UsageName.
const (
	AnswersName  = "answers.jsonl"  // Answer, as they come
	VerdictsName = "verdicts.jsonl" // Verdict, as they come
	SummaryName  = "summary.json"   // in the benchmark's form
	CasesName    = "cases.jsonl"    // in the benchmark's form, with id and score: see Compare
)

// TooLong is the reason of an answer that was not asked for: the model has not as many positions as the prompt has
// tokens. The answer is empty.
const TooLong = "prompt too long"

// Item is what a model is asked, in one turn or several. A turn's prompt has the turns before it with their answers.
type Item struct {
	ID          string
	Turns       []string // the user's
	Temperature *float64 `json:",omitempty"` // instead of the options'
}

// Answer is a model's answer in a turn, a line of answers.jsonl.
type Answer struct {
	ID     string `json:"id"`
	Turn   int    `json:"turn"` // from 1
	Output string `json:"output"`
	Reason string `json:"reason,omitempty"`        // eos, stop, length, TooLong, or a server's word
	Prompt string `json:"prompt_sha256,omitempty"` // of all messages; recorded answers have none
	// Thoughts are what a model wrote up to the end of its think block, where a judge reads what follows alone.
	Thoughts string `json:"thoughts,omitempty"`
}

// markThoughts leaves an output whose thoughts can be told from the rest: a judge reads what follows them alone, and
// other readers get the beginning of the block, which the prompt has if inside.
func (a *Answer) markThoughts(inside, judged bool) {
	switch {
	case judged:
		a.dropThoughts(inside)
	case inside && !strings.HasPrefix(strings.TrimSpace(a.Output), thinkOpen):
		a.Output = thinkOpen + a.Output
	}
}

// dropThoughts takes the thoughts out of the output. inside: the prompt ends inside a think block. Thoughts that never
// close leave nothing.
func (a *Answer) dropThoughts(inside bool) {
	rest, closed := WithoutThoughts(a.Output, inside)
	if closed && rest == a.Output {
		return
	}
	a.Thoughts, a.Output = a.Output[:len(a.Output)-len(rest)], strings.TrimSpace(rest)
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
	// Replies has a second one where the first has no verdict and a reminder was sent. The last one counts.
	Replies []string           `json:"replies"`
	Top     map[string]float64 `json:"top,omitempty"` // log-probabilities of the last reply's first token
	Cut     bool               `json:"cut,omitempty"` // the last reply met its limit of tokens, and has no Top
	Parsed  bool               `json:"parsed"`        // there is a verdict
	Said    string             `json:"verdict"`       // in the benchmark's words
	Score   float64            `json:"score"`         // in the benchmark's units
}

// Bench says what a benchmark asks, and how it reads replies.
type Bench struct {
	Command string // "eval alpaca"
	Items   []Item
	// Recorded are the answers by id and turn, in place of a model's; nil: the model is asked.
	Recorded map[string][]string
	// Questions are those about item i with its answers by turn; an item may have no question. nil: there is no judge.
	Questions func(i int, outputs []string) ([]Question, error)
	// Read finds the verdict in a reply: Parsed, Said and Score.
	Read        func(q Question, r metered.Reply, v *Verdict)
	Form        string            // of a verdict, for the error about a judge that gives none
	Reminder    string            // is said to a judge whose reply has no verdict, once; "": nothing is
	TopLogprobs int               // likeliest first tokens of a reply that Read needs
	Identity    map[string]string // what verdicts depend on besides the judge, the answers and the prompts
	Files       []string          // that the report writes, besides summary.json and cases.jsonl
	Report      func(*Found) error
	Config      func() []byte // config.yaml of the run, with paths from the root
}

// Found is what the stages have left in a run's folder.
type Found struct {
	*Store
	Items    []Item
	Answers  map[string][]Answer   // by id, in the order of turns
	Verdicts map[[2]string]Verdict // by id and key
	Settings Settings
	Warnings []string // of what went wrong on the way
}

// Outputs are an item's answers by turn.
func (f *Found) Outputs(id string) (texts []string) {
	for _, a := range f.Answers[id] {
		texts = append(texts, a.Output)
	}
	return texts
}

// benching is a call of Bench.Run.
type benching struct {
	Evaluation
	Bench
	o       BenchOptions
	store   *Store
	subject *Subject // nil: no model is asked
	client  *metered.Client
}

// Run opens the folder and runs the stages. The Evaluation says where it is and how far it came, after an error too.
func (b Bench) Run(ctx context.Context, o BenchOptions, place Place, r run.Reporter) (*Evaluation, error) {
	if len(place.Stages) == 0 {
		place.Stages = map[bool][]string{false: Unjudged, true: All}[b.Questions != nil]
	}
	e := &benching{Bench: b, o: o, Evaluation: Evaluation{Place: place, Continuing: place.Continues(),
		Reporter: run.Listen(r), Cases: len(b.Items)}}
	defer e.close()
	if e.Runs(StageAnswers) {
		e.o.Agent.ChooseBackend(e.Reporter)
	}
	err := e.prepare()
	err = e.Do(ctx, err, StageAnswers, e.runAnswers)
	err = e.Do(ctx, err, StageJudge, e.runJudge)
	err = e.Do(ctx, err, StageReport, e.runReport)
	return &e.Evaluation, err
}

// prepare finds what is wrong before anything is written or takes long.
func (e *benching) prepare() error {
	if e.Runs(StageAnswers) && e.Recorded == nil {
		if err := e.o.Agent.CheckKey(); err != nil {
			return err
		}
	}
	if e.Runs(StageJudge) {
		if err := e.o.Judge.CheckKey(); err != nil {
			return err
		}
	}
	if err := e.checkRecorded(); err != nil {
		return err
	}
	if err := e.openSubject(); err != nil {
		return err
	}
	err := e.Open(FolderName(e.Command), append([]string{SettingsName, UsageName, SummaryName, CasesName}, e.Files...),
		e.save)
	if err != nil {
		return err
	}
	if e.store, err = OpenStore(e.Folder.Dir, HashCases(e.Items)); err == nil {
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
		if len(e.Recorded[item.ID]) < len(item.Turns) {
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
	if !e.Runs(StageAnswers) || e.Recorded != nil {
		return nil
	}
	if e.subject, err = OpenSubject(e.o.Agent.ModelConfig, !e.Continuing, e.Reporter); err != nil || e.Continuing {
		return err
	}
	return e.subject.CheckRoom(len(e.Items), func(i int) (rollout.Conversation, error) {
		return e.conversation(&e.Items[i], nil), nil
	})
}

func (e *benching) save() error { return e.Folder.WriteConfig(e.Config()) }

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
	c := rollout.Conversation{Sampling: e.o.Agent.Sampling,
		Seed: SeedOf(e.o.Seed, fmt.Sprintf("%s/%d", item.ID, len(answers)))}
	if item.Temperature != nil {
		c.Temperature = *item.Temperature
	}
	for i, turn := range item.Turns[:len(answers)+1] {
		c.Messages = append(c.Messages, data.Message{Role: "user", Content: turn})
		if i < len(answers) {
			c.Messages = append(c.Messages, data.Message{Role: "assistant", Content: answers[i]})
		}
	}
	return c
}

// runReport reads what the stages have left, and counts it.
func (e *benching) runReport(context.Context) error {
	answers, err := e.answers()
	if err != nil {
		return err
	}
	questions, err := e.questions(answers)
	if err != nil {
		return err
	}
	rows, err := journal.Read[Verdict](e.store.Path(VerdictsName))
	if err != nil {
		return err
	}
	settings, err := ReadSettings(e.store.Dir)
	if err == nil {
		err = e.store.SameCases(settings, StageJudge)
	}
	if err != nil {
		return err
	}
	todo, err := unanswered(questions, rows, func(Verdict) {})
	if err != nil {
		return fmt.Errorf("%s: %w", e.store.Path(VerdictsName), err)
	}
	if len(todo) > 0 {
		return fmt.Errorf("%s: %d of %d verdicts are missing (first: %s): run `posttrain %s judge --out %s` to finish",
			e.store.Path(VerdictsName), len(todo), len(questions), todo[0].ID, e.Command, e.store.Dir)
	}
	f := &Found{Store: e.store, Items: e.Items, Answers: answers, Settings: settings}
	f.Verdicts, _ = byKey(rows) // unanswered has checked them
	f.warn()
	return e.Report(f)
}

// warn adds what a reader of the numbers should know.
func (f *Found) warn() {
	cut, tooLong, all, unparsed, open, cutVerdicts := 0, 0, 0, 0, 0, 0
	for _, item := range f.Items {
		for _, a := range f.Answers[item.ID] {
			if a.Thoughts != "" && !strings.Contains(a.Thoughts, thinkClose) {
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
	add := func(when bool, format string, values ...any) {
		if when {
			f.Warnings = append(f.Warnings, fmt.Sprintf(format, values...))
		}
	}
	add(cut*20 > all, "%d of %d answers met their length limit: allow more tokens", cut, all)
	add(open > 0, "%d of %d answers never close their think block: nothing of them is judged", open, all)
	add(tooLong > 0, "%d of %d prompts do not fit the model: their answers are empty", tooLong, all)
	add(cutVerdicts > 0, CutReplies, cutVerdicts, len(f.Verdicts))
	add(unparsed > 0, "%d of %d replies of the judge have no verdict: they do not count", unparsed, len(f.Verdicts))
}
