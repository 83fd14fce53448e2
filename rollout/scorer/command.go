package scorer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

// program is a program of the user. It is started for each batch. It reads one JSON object {"prompt", "response",
// "row"} a line, and writes for each, in the same order, a line with a number or {"score": number}, or null for an
// answer that is not for it. Prompt and response are a string or a list of {role, content}, with tool_calls and what
// else a message has; row has the other columns of the row, where there are any.
type program struct {
	name    string
	args    []string
	timeout time.Duration
}

// commandBatch is how many answers a program gets at a time: enough to start it seldom, few enough to lose little.
const commandBatch = 256

func (program) Batch() int   { return commandBatch }
func (program) Close() error { return nil }

func (p program) Score(ctx context.Context, answers []ask.Answer) ([]ask.Score, error) {
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, p.name, p.args...)
	in, err := lines(answers)
	if err != nil {
		return nil, err
	}
	out, complaints := &bounded{most: outputBytes * (1 + len(answers)), stop: cancel}, &tail{}
	cmd.Stdin = bytes.NewReader(in)
	err = execute(cmd, out, complaints)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case out.over:
		return nil, fmt.Errorf("reward command %s: it wrote more than %d bytes: want a line with a number for each "+
			"answer", p.name, out.most)
	case limited.Err() != nil:
		return nil, fmt.Errorf("reward command %s: it took longer than %v for %d answers from %s on, and was ended",
			p.name, p.timeout, len(answers), answers[0].To.Source)
	case err != nil:
		return nil, fmt.Errorf("reward command %s: %w", p.name, explain(err, string(*complaints)))
	}
	scores, err := readScores(out.text, answers)
	if err != nil {
		return nil, fmt.Errorf("reward command %s: %w", p.name, err)
	}
	return scores, nil
}

// Try lets the program score one answer to a question, where there is a program: what is wrong with it shows before
// anything that takes long.
func (o Options) Try(ctx context.Context, q ask.Question) error {
	if !o.Has(Command) {
		return nil
	}
	j, err := openKind(Command, o, Caller{})
	if err == nil {
		_, err = ask.Judged(ctx, j, []ask.Answer{{To: &q, Completion: rollout.Completion{Text: "An answer to try."}}})
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w (tried with one answer ahead of the run)", err)
	}
	return err
}

// outputBytes are the most that a program may write for an answer.
const outputBytes = 4096

// bounded keeps what a program writes, at most that many bytes. At more, it stops the program.
type bounded struct {
	text []byte
	most int
	stop func()
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > b.most {
		b.over = true
		b.stop()
	} else {
		b.text = append(b.text, p...)
	}
	return len(p), nil
}

// tail keeps the end of what is written.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-outputBytes):]
	return len(p), nil
}

// explain adds the last line of a program's complaints to its error.
func explain(err error, complaints string) error {
	if missing, is := errors.AsType[*exec.Error](err); is {
		return missing.Err
	}
	if _, is := errors.AsType[*exec.ExitError](err); is {
		text := strings.TrimSpace(complaints)
		if text = text[strings.LastIndexByte(text, '\n')+1:]; text != "" {
			return fmt.Errorf("%w: %s", err, data.OneLine(text, 200))
		}
	}
	return err
}

// lines writes answers as JSON, one a line.
func lines(answers []ask.Answer) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i := range answers {
		a, q := &answers[i], answers[i].To
		line := struct {
			Prompt   any `json:"prompt"`
			Response any `json:"response"`
			Row      any `json:"row,omitempty"`
		}{Prompt: value(q.Prompt), Response: value(a.Response())}
		if len(q.Row) > 0 {
			line.Row = q.Row
		}
		if err := enc.Encode(line); err != nil {
			return nil, fmt.Errorf("%s: a column cannot be written for a reward program: %w", q.Source, err)
		}
	}
	return b.Bytes(), nil
}

// value is a text as a program gets it: messages are whole, with their calls and thoughts, and their content is text.
func value(t data.Text) any {
	if !t.IsChat() {
		return t.Plain
	}
	all := make([]data.Object, len(t.Messages))
	for i, m := range t.Messages {
		whole, _ := data.Decode([]byte(m.Whole)) // nothing without further keys
		more, _ := whole.(data.Object)
		more = slices.DeleteFunc(more, func(e data.Entry) bool { return e.Key == "role" || e.Key == "content" })
		all[i] = append(data.Object{{Key: "role", Value: m.Role}, {Key: "content", Value: m.Content}}, more...)
	}
	return all
}

// readScores reads a number for each answer.
func readScores(out []byte, answers []ask.Answer) (scores []ask.Score, err error) {
	for n, line := range bytes.Split(bytes.TrimSuffix(out, []byte("\n")), []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 && len(out) == 0 {
			break
		}
		score, ok := readScore(line)
		if !ok {
			return nil,
				fmt.Errorf("line %d of its output is %q: want a finite number, {\"score\": number}, or null where "+
					"the answer is not for it", n+1, data.OneLine(string(line), 60))
		}
		scores = append(scores, score)
	}
	if len(scores) != len(answers) {
		return nil, fmt.Errorf("it wrote %d scores for %d answers from %s on: want one a line for each", len(scores),
			len(answers), answers[0].To.Source)
	}
	return scores, nil
}

// readScore reads a line of output. JSON has no NaN and no infinite numbers.
func readScore(line []byte) (s ask.Score, ok bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(line, &object) == nil && object != nil {
		line, ok = object["score"]
	} else {
		ok = true
	}
	if string(line) == "null" {
		s.Missing = ask.NotItsOwn
		return s, ok
	}
	return s, ok && json.Unmarshal(line, &s.Value) == nil && !math.IsInf(s.Value, 0)
}
