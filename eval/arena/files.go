package arena

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/bench"
)

// Question is what a user asks.
type Question struct {
	ID      string
	Cluster string // of questions that resemble each other; "": the file does not say
	Prompt  string
	Source  string // "question.jsonl:41"
}

// turn is a turn of the older files.
type turn struct {
	Content string `json:"content"`
}

type questionRow struct {
	UID      string `json:"uid"`
	ID       string `json:"question_id"`
	Cluster  string `json:"cluster"`
	Prompt   string `json:"prompt"`
	OldTurns []turn `json:"turns"`
}

// readQuestions reads questions from .jsonl, .json or .parquet, each also with .gz: {uid, cluster, prompt}, or, as
// older files have it, {question_id, cluster, turns: [{content}]}.
func readQuestions(fsys fs.FS, path string) ([]Question, *data.Report, error) {
	return data.ReadTable(fsys, path, func(r *questionRow, source string, _ *data.Report) (Question, string, error) {
		q := Question{ID: cmp.Or(r.UID, r.ID), Cluster: r.Cluster, Prompt: r.Prompt, Source: source}
		if q.Prompt == "" && len(r.OldTurns) == 1 {
			q.Prompt = r.OldTurns[0].Content
		}
		if strings.TrimSpace(q.ID) == "" || strings.TrimSpace(q.Prompt) == "" {
			return q, "", errors.New("uid or prompt is missing: want uid and prompt, or question_id and turns " +
				"[{content}] with one turn")
		}
		return q, "question " + q.ID, nil
	})
}

// Answer is a model's answer to a question.
type Answer struct {
	Question string
	Model    string
	Text     string
	Source   string
}

type answerRow struct {
	UID      string `json:"uid"`
	ID       string `json:"question_id"`
	Model    string `json:"model"`
	OldModel string `json:"model_id"`
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	Choices []struct {
		Turns []turn `json:"turns"`
	} `json:"choices"`
}

// readAnswers reads the answers of one model, such as the baseline: {uid, model, messages}, whose last message is the
// assistant's, a text or {answer}; or, as older files have it, {question_id, model_id, choices}.
func readAnswers(fsys fs.FS, path string) ([]Answer, *data.Report, error) {
	model := ""
	return data.ReadTable(fsys, path, func(r *answerRow, source string, _ *data.Report) (Answer, string, error) {
		a := Answer{Question: cmp.Or(r.UID, r.ID), Model: cmp.Or(r.Model, r.OldModel), Source: source}
		found := false
		if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == "assistant" {
			a.Text, found = string(r.Messages[n-1].Content), true
		} else if len(r.Choices) > 0 && len(r.Choices[0].Turns) == 1 {
			a.Text, found = r.Choices[0].Turns[0].Content, true
		}
		switch model = cmp.Or(model, a.Model); {
		case a.Question == "" || a.Model == "" || !found:
			return a, "", errors.New("uid, model or the assistant's message is missing: want uid, model and messages, " +
				"or question_id, model_id and choices")
		case a.Model != model:
			return a, "", fmt.Errorf("model is %q, in the first row %q: want the answers of one model", a.Model, model)
		}
		return a, "question " + a.Question, nil
	})
}

// content is a message's text, or the answer in its object.
type content string

func (c *content) UnmarshalJSON(text []byte) error {
	var plain string
	var object struct {
		Answer *string `json:"answer"`
	}
	switch {
	case json.Unmarshal(text, &plain) == nil:
	case json.Unmarshal(text, &object) == nil && object.Answer != nil:
		plain = *object.Answer
	default:
		return fmt.Errorf("messages: content is %.40s: want a text, or an object with answer", text)
	}
	*c = content(plain)
	return nil
}

type judgementRow struct {
	UID      string `json:"uid"`
	ID       string `json:"question_id"`
	Model    string `json:"model"`
	Baseline string `json:"baseline"` // the newer files have it
	Games    []struct {
		Asked string  `json:"user_prompt"`
		Score *string `json:"score"` // null: no verdict
		// of the newer files, what the judge was asked
		Messages []struct {
			Content string `json:"content"`
		} `json:"prompt"`
	} `json:"games"`
}

// readJudgements reads the judgements of one model as the benchmark's tools write them: of the answers that are
// recorded, against the baseline of the run.
func (e *comparing) readJudgements(path string) (rows []bench.Verdict, err error) {
	_, _, err = data.ReadTable(nil, path, func(r *judgementRow, _ string, _ *data.Report) (_ bool, _ string, err error) {
		id := cmp.Or(r.ID, r.UID)
		if id == "" || len(r.Games) != len(games) {
			return false, "", errors.New("question_id or games is missing: want question_id or uid, and games, a list of " +
				"two with score")
		}
		err = cmp.Or(bench.CheckName("model", r.Model, e.subject), bench.CheckName("baseline", r.Baseline, e.model))
		if err != nil {
			return false, "", err
		}
		for i, g := range r.Games {
			for _, m := range g.Messages {
				g.Asked += m.Content + "\n"
			}
			v := bench.Verdict{ID: id, Key: games[i], Prompt: []data.Message{{Content: g.Asked}}}
			if g.Score != nil && *g.Score != "" {
				v.Said, v.Parsed = verdictOf(*g.Score), true
			}
			if v.Parsed && v.Said == "" {
				return false, "", fmt.Errorf("games[%d].score is %q: want %s, or null for a game without a verdict", i,
					*g.Score, strings.Join(Verdicts, ", "))
			}
			rows = append(rows, v)
		}
		return true, "question " + id, nil
	})
	return rows, err
}

// Verdicts from best to worst for the answer that the judge sees first.
var Verdicts = []string{"A>>B", "A>B", "A=B", "B>A", "B>>A"}

// Games are the verdicts on a question, each one of Verdicts; "": the judge gave none. In the first game the baseline's
// answer is A, in the second the model's.
type Games [2]string

// verdictOf takes the forms that the benchmark's judges write; "": it is no verdict.
func verdictOf(text string) string {
	text = strings.NewReplacer("A<<B", "B>>A", "A<B", "B>A", "B=A", "A=B", "B<<A", "A>>B", "B<A", "A>B").Replace(text)
	if slices.Contains(Verdicts, text) {
		return text
	}
	return ""
}
