package scorer

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout/remote"
)

//go:embed rubric.txt
var builtIn string

// leakRubric asks whether .Answer gives away .Prompt.
//
//go:embed leak.txt
var leakRubric string

// rubricJudge is a model that scores by a rubric.
type rubricJudge struct {
	model interface {
		Ask(ctx context.Context, prompt string) (reply string, err error)
	}
	rubric          *template.Template
	lowest, highest float64
	parallel        int
	close           func() error
}

// leak names the built-in rubric of [OpenLeaks].
const leak = "\x00leak"

// OpenLeaks opens a judge of leaks: its score is above the middle of the range where an answer's response gives away
// what its prompt says.
func OpenLeaks(o JudgeOptions, p Caller) (ask.Judge, error) {
	all := Defaults()
	all.Kind, all.Judge = Judge, o
	all.Judge.Rubric = cmp.Or(o.Rubric, leak)
	return Open(all, p)
}

// judgeBatch is how many answers are judged before their scores count. The replies are kept one by one.
const judgeBatch = 64

func (*rubricJudge) Batch() int     { return judgeBatch }
func (j *rubricJudge) Close() error { return j.close() }

// readRubric reads a template, and refuses one that has no place for the answer.
func readRubric(path string) (*template.Template, error) {
	text, name := builtIn, "rubric"
	if path == leak {
		text = leakRubric
	} else if path != "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reward: judge.rubric: %w", err)
		}
		text, name = string(b), path
	}
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reward: judge.rubric: %w", err)
	}
	const mark = "\x00answer\x00"
	var s strings.Builder
	if err := t.Execute(&s, question{Answer: mark, Lowest: 1, Highest: 10}); err != nil {
		return nil, fmt.Errorf("reward: judge.rubric: %w", err)
	}
	if !strings.Contains(s.String(), mark) {
		return nil, fmt.Errorf("reward: judge.rubric %s: it has no {{.Answer}}, so that all answers score the same",
			path)
	}
	return t, nil
}

// question is what a rubric is filled with.
type question struct {
	Prompt, Answer  string
	Lowest, Highest float64
}

func (j *rubricJudge) Score(ctx context.Context, answers []ask.Answer) ([]ask.Score, error) {
	scores := make([]ask.Score, len(answers))
	err := remote.InParallel(ctx, j.parallel, len(answers), func(ctx context.Context, i int) (err error) {
		scores[i], err = j.score(ctx, &answers[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	return scores, nil
}

// score asks once, and once more where the reply has no score.
func (j *rubricJudge) score(ctx context.Context, a *ask.Answer) (ask.Score, error) {
	var s strings.Builder
	q := question{transcript(a.To.Prompt), transcript(a.Response()), j.lowest, j.highest}
	if err := j.rubric.Execute(&s, q); err != nil {
		return ask.Score{}, fmt.Errorf("reward: judge.rubric: %w", err)
	}
	var why string
	for _, prompt := range []string{s.String(), s.String() + fmt.Sprintf(reminder, j.lowest, j.highest)} {
		reply, err := j.model.Ask(ctx, prompt)
		if failed, ok := errors.AsType[*remote.Error](err); ok && failed.Kind == remote.Filtered {
			return ask.Score{Missing: failed.Error()}, nil
		}
		if err != nil {
			return ask.Score{}, err
		}
		var x float64
		if x, why = j.read(reply); why == "" {
			return ask.Score{Value: x}, nil
		}
	}
	return ask.Score{Missing: why}, nil
}

// reminder makes the second question a different one, so that no cache repeats the first reply.
const reminder = "\n\nClose with one line: \"Score: \" and a number from %v to %v."

var scoreLine = regexp.MustCompile(`^[ \t*]*Score:[ \t*]*(-?[0-9]+(?:\.[0-9]+)?)[ \t*]*$`)

// read takes the score from the last line of a reply.
func (j *rubricJudge) read(reply string) (x float64, why string) {
	_, after, thought := strings.Cut(reply, "</think>")
	if thought {
		reply = after
	}
	reply = strings.TrimSpace(reply)
	last := reply[strings.LastIndexByte(reply, '\n')+1:]
	found := scoreLine.FindStringSubmatch(last)
	if found == nil {
		return 0, fmt.Sprintf("the judge's last line is %q: want \"Score: \" and a number", data.OneLine(last, 60))
	}
	x, err := strconv.ParseFloat(found[1], 64)
	if err != nil || x < j.lowest || x > j.highest {
		return 0, fmt.Sprintf("the judge's score is %s: want one from %v to %v", found[1], j.lowest, j.highest)
	}
	return x, ""
}

// transcript writes a text, or a conversation with its roles.
func transcript(t data.Text) string {
	if !t.IsChat() {
		return t.Plain
	}
	if len(t.Messages) == 1 {
		return said(t.Messages[0])
	}
	var parts []string
	for _, m := range t.Messages {
		parts = append(parts, m.Role+": "+said(m))
	}
	return strings.Join(parts, "\n\n")
}

// said is what a message says, and the tools that it calls.
func said(m data.Message) string {
	calls := m.Calls()
	if m.Content == "" || calls == "" {
		return m.Content + calls
	}
	return m.Content + "\n" + calls
}
