package arena

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/internal/rows"
)

// Question is what a user asks.
type Question struct {
	ID      string
	Cluster string // of questions that resemble each other; "": the file does not say
	Prompt  string
	Source  string // "question.jsonl:41"
}

// ReadQuestions reads questions from .jsonl, .json or .parquet, each also with .gz: {uid, cluster, prompt}, or, as
// older files have it, {question_id, cluster, turns: [{content}]}.
func ReadQuestions(path string) ([]Question, *data.Report, error) { return readQuestions(nil, path) }

func readQuestions(fsys fs.FS, path string) ([]Question, *data.Report, error) {
	return readUnique(fsys, path, func(r rows.Row) (Question, string, error) {
		var row struct {
			UID      string `json:"uid"`
			ID       string `json:"question_id"`
			Cluster  string `json:"cluster"`
			Prompt   string `json:"prompt"`
			OldTurns []turn `json:"turns"`
		}
		if err := rows.Unmarshal(r.Text, &row); err != nil {
			return Question{}, "", err
		}
		q := Question{ID: cmp.Or(row.UID, row.ID), Cluster: row.Cluster, Prompt: row.Prompt, Source: r.Source}
		if q.Prompt == "" && len(row.OldTurns) == 1 {
			q.Prompt = row.OldTurns[0].Content
		}
		if strings.TrimSpace(q.ID) == "" || strings.TrimSpace(q.Prompt) == "" {
			return q, "", fmt.Errorf("uid or prompt is missing: want uid and prompt, or question_id and turns " +
				"[{content}] with one turn")
		}
		return q, q.ID, nil
	}, "uid", "question_id", "cluster", "prompt", "turns")
}

// turn is a turn of the older files.
type turn struct {
	Content string `json:"content"`
}

// Answer is a model's answer to a question.
type Answer struct {
	Question string
	Model    string
	Text     string
	Source   string
}

// ReadAnswers reads the answers of one model, such as the baseline: {uid, model, messages}, whose last message is the
// assistant's, a text or {answer}; or, as older files have it, {question_id, model_id, choices}.
func ReadAnswers(path string) ([]Answer, *data.Report, error) { return readAnswers(nil, path) }

func readAnswers(fsys fs.FS, path string) ([]Answer, *data.Report, error) {
	model := ""
	return readUnique(fsys, path, func(r rows.Row) (Answer, string, error) {
		var row struct {
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
		if err := rows.Unmarshal(r.Text, &row); err != nil {
			return Answer{}, "", err
		}
		a := Answer{Question: cmp.Or(row.UID, row.ID), Model: cmp.Or(row.Model, row.OldModel), Source: r.Source}
		found := false
		if n := len(row.Messages); n > 0 && row.Messages[n-1].Role == "assistant" {
			a.Text, found = string(row.Messages[n-1].Content), true
		} else if len(row.Choices) > 0 && len(row.Choices[0].Turns) == 1 {
			a.Text, found = row.Choices[0].Turns[0].Content, true
		}
		switch model = cmp.Or(model, a.Model); {
		case a.Question == "" || a.Model == "" || !found:
			return a, "", fmt.Errorf("uid, model or the assistant's message is missing: want uid, model and " +
				"messages, or question_id, model_id and choices")
		case a.Model != model:
			return a, "", fmt.Errorf("model is %q, in the first row %q: want the answers of one model", a.Model, model)
		}
		return a, a.Question, nil
	}, "uid", "question_id", "model", "model_id", "messages", "choices")
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

// readUnique reads rows, each of another question.
func readUnique[T any](fsys fs.FS, path string, of func(rows.Row) (record T, id string, err error),
	columns ...string) ([]T, *data.Report, error) {
	seen := map[string]string{}
	return data.Collect(path, rows.ReadJSON(fsys, path, columns...),
		func(r rows.Row, _ *data.Report) (T, string, error) {
			record, id, err := of(r)
			if first, twice := seen[id]; err == nil && twice {
				err = fmt.Errorf("question %s is at %s already: want it once", id, first)
			}
			seen[id] = r.Source
			return record, "", err
		})
}
