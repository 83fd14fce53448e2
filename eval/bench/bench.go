// Package bench runs evaluations in stages, answers, judge and report, each of which can be stopped at any time and
// continued. A run is a folder. Rows grow in journals; settings.json says what each stage's rows come from.
package bench

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/posttrain/posttrain/data"
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
	timeName     = "time.json"      // spent: how long the model under test took
)

// TooLong is the reason of an answer that was not asked for: the model has not as many positions as the prompt has
// tokens. The answer is empty.
const TooLong = "prompt too long"

// Item is what a model is asked, in one turn or several. A turn's prompt has the turns before it with their answers.
type Item struct {
	ID       string
	Turns    []string       // the user's
	Messages []data.Message `json:",omitempty"` // in the place of Turns: the whole conversation of one turn
	// Then gives the conversation that follows from answers, nil where none does: Messages is the first of Most at most.
	// The last of them alone has the options' prefill.
	Then        func(said []Answer) ([]data.Message, error) `json:"-"`
	Most        int                                         `json:",omitempty"`
	Temperature *float64                                    `json:",omitempty"` // instead of the options'
	Seed        uint64                                      `json:"-"`          // of the draws; 0: one that follows from ID and the options' seed
}

// turns is how many answers there are at most.
func (i *Item) turns() int { return max(len(i.Turns), i.Most, 1) }

// next gives the conversation that follows from answers, and whether the item has ended.
func (i *Item) next(said []Answer) (messages []data.Message, ended bool, err error) {
	if len(said) >= i.turns() {
		return nil, true, nil
	}
	if i.Then == nil || len(said) == 0 {
		return i.Messages, false, nil
	}
	messages, err = i.Then(said)
	return messages, messages == nil, err
}

// spared is how many turns an item has not that it could have.
func (i *Item) spared(said []Answer) int {
	if _, ended, err := i.next(said); err == nil && ended {
		return i.turns() - len(said)
	}
	return 0
}

// Answer is a model's answer in a turn, a line of answers.jsonl.
type Answer struct {
	ID     string `json:"id"`
	Turn   int    `json:"turn"` // from 1
	Output string `json:"output"`
	Opened bool   `json:"think_opened,omitempty"`  // the prompt ends inside a think block
	Reason string `json:"reason,omitempty"`        // eos, stop, length, TooLong, or a server's word
	Tokens int    `json:"tokens,omitempty"`        // of the output
	Asked  int    `json:"prompt_tokens,omitempty"` // tokens of the prompt
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
	if a.Opened && !strings.HasPrefix(strings.TrimSpace(a.Output), data.ThinkOpen) {
		return data.ThinkOpen + a.Output
	}
	return a.Output
}

// Question is what a judge is asked about an item. Key tells an item's questions apart.
type Question struct {
	ID, Key  string
	Messages []data.Message
	Again    int // tells apart questions with the same messages: each is asked for itself
}

// Verdict is a judge's reply to a question, a line of verdicts.jsonl.
type Verdict struct {
	ID     string         `json:"id"`
	Key    string         `json:"key"`
	Prompt []data.Message `json:"prompt"`
	// Replies has a second one where the first has no verdict and a reminder was sent; none of a verdict by a rule.
	Replies []string           `json:"replies,omitempty"`
	Top     map[string]float64 `json:"top,omitempty"`     // log-probabilities of the last reply's first token
	Cut     bool               `json:"cut,omitempty"`     // the last reply met its limit of tokens, and has no Top
	Parsed  bool               `json:"parsed"`            // there is a verdict
	Said    string             `json:"verdict"`           // in the benchmark's words
	Score   float64            `json:"score"`             // in the benchmark's units
	Refused string             `json:"refused,omitempty"` // what the filter of the judge's server said: no verdict
}

// Protocol says what a benchmark asks, and how it reads what comes back.
type Protocol struct {
	Items []Item
	Cases string // names what is evaluated, whatever the prompts; "": the items do, as HashCases has it
	// Recorded are the answers by id and turn, in place of a model's; nil: the model is asked, or the options name a file
	// of lines of id and output.
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
	Read func(q Question, r metered.Reply, v *Verdict)
	// Released reads recorded verdicts in the form of the benchmark's authors, with the prompts of the judge as far as the
	// file has them. nil: they have no form.
	Released    func(path string) ([]Verdict, error)
	Form        string // of a verdict, for the error about a judge that gives none
	Trial       string // is asked before answers are generated, so that a wrong judge does not show hours later
	TopLogprobs int    // likeliest first tokens of a reply that Read needs
	// Remind makes another question of one whose reply has no verdict; it is asked once. nil: nothing is said.
	Remind   func(messages []data.Message, reply string) []data.Message
	Identity map[string]string // what verdicts depend on besides the judge, the answers and the prompts
	Settings map[string]string // what answers depend on besides the model, and the prompts by their items
	Files    []string          // that the report writes, besides summary.json and cases.jsonl
	// Published says that the figures that others have published for the benchmark compare with the run's.
	Published bool
	// Differs says what is not as it was there, a line each; nil: nothing is said.
	Differs func(*Found) []string
	// Report counts what the stages have found. It gives the result, and the lines of cases.jsonl.
	Report func(*Found) (result fmt.Stringer, cases []any, err error)
}

// Found is what the stages have left in a run's folder.
type Found struct {
	Dir      string
	Items    []Item
	Answers  map[string][]Answer   // by id, in the order of turns
	Verdicts map[[2]string]Verdict // by id and key
	Settings Settings
	Warnings []string // of what went wrong on the way

	text func(Answer) string
	from string // the file of recorded verdicts
}

// Path is the path of a file of the folder.
func (f *Found) Path(name string) string { return filepath.Join(f.Dir, name) }

// Outputs are the texts of an item's answers by turn.
func (f *Found) Outputs(id string) (texts []string) {
	for _, a := range f.Answers[id] {
		texts = append(texts, f.text(a))
	}
	return texts
}

// Unclosed counts the answers whose thoughts never end.
func (f *Found) Unclosed() (n int) {
	for _, item := range f.Items {
		for _, a := range f.Answers[item.ID] {
			if _, closed := a.Rest(); !closed {
				n++
			}
		}
	}
	return n
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

// Unlike says what of a judged run is not as it was where the published figures come from: the judge, its prompts ("": our
// own words), the number of questions.
func (f *Found) Unlike(o *Judged, judge, prompts string) (lines []string) {
	if model := f.Judge(); model != judge {
		lines = append(lines, fmt.Sprintf("judge: %s (published: %s)", model, judge))
	}
	if prompts == "" && f.from == "" {
		lines = append(lines, "the judge's prompts: our own words (published: the benchmark's, --prompts FILE)")
	}
	if o.First > 0 {
		lines = append(lines, fmt.Sprintf("questions: the first %d", o.First))
	}
	return lines
}

// Model names the model under test: as its answers' settings do, or by the file of recorded answers.
func (f *Found) Model(a Agent) string {
	return cmp.Or(a.RecordedName(), f.Settings.Model(func(path string) string { return path }))
}

// Judge names who has judged: a model, or the file of recorded verdicts; "" of a rule.
func (f *Found) Judge() string {
	if f.from != "" {
		return "recorded in " + filepath.Base(f.from)
	}
	return f.Settings[StageJudge]["model"]
}

// warn adds what a reader of the numbers should know. rest: thoughts are not read.
func (f *Found) warn(rest bool) {
	cut, tooLong, all, unparsed, open, cutVerdicts := 0, 0, 0, 0, f.Unclosed(), 0
	refused, firstRefused := 0, ""
	for _, item := range f.Items {
		for _, a := range f.Answers[item.ID] {
			switch all++; a.Reason {
			case rollout.Length:
				cut++
			case TooLong:
				tooLong++
			}
		}
	}
	for _, v := range f.Verdicts {
		switch {
		case v.Refused != "":
			if refused++; firstRefused == "" || v.ID < firstRefused {
				firstRefused = v.ID
			}
		case !v.Parsed:
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
	f.Warn(refused > 0, "%d of %d questions were refused by the filter of the judge's server, and have no verdict "+
		"(first: %s)", refused, len(f.Verdicts), firstRefused)
	f.Warn(rest && unparsed > 0, "%d of %d replies of the judge have no verdict: they do not count", unparsed,
		len(f.Verdicts))
}

// Warned prints warnings below a result.
func Warned(warnings []string) string {
	text := ""
	for _, w := range warnings {
		text += "warning: " + w + "\n"
	}
	return text
}

// What becomes of the thoughts ahead of an answer, the values of options named think.
const (
	ThinkStrip = "strip" // nobody reads them but the model
	ThinkKeep  = "keep"  // they are read as the rest of the answer
)

// WithoutThoughts drops the think block that an output begins with, up to its end. opened says that the prompt ends
// inside the block; an output with the end alone shows that itself. A block that never closes leaves nothing.
func WithoutThoughts(output string, opened bool) (rest string, closed bool) {
	if _, after, found := strings.Cut(output, data.ThinkClose); found {
		return after, true
	}
	if opened || strings.HasPrefix(strings.TrimSpace(output), data.ThinkOpen) {
		return "", false
	}
	return output, true
}

// AnswerBlock is what CI-CoT asks for behind the thoughts.
var AnswerBlock = regexp.MustCompile(`(?s)<answer>(.*?)</answer>`)

// InTags is an output without its thoughts, and of that the inside of the first answer block, where there is one. Where
// the thoughts never end, at an answer block neither, closed is false, and nothing is left.
func InTags(output string, opened bool) (text string, closed bool) {
	text, closed = WithoutThoughts(output, opened)
	whole := text
	if !closed {
		whole = output
	}
	if m := AnswerBlock.FindStringSubmatch(whole); m != nil {
		return strings.TrimSpace(m[1]), true
	}
	return text, closed
}
