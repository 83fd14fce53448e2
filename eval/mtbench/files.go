package mtbench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/bench"
)

// Turns is the number of turns of a question.
const Turns = 2

// Question is what a user asks, and then asks further.
type Question struct {
	ID       string
	Category string
	Turns    [Turns]string
	Source   string // "question.jsonl:41"
}

// id names a question: a whole number in MT-Bench, a text in other sets of this shape.
type id string

func (i *id) UnmarshalJSON(text []byte) error {
	var name string
	var number int64
	switch {
	case string(text) == "null":
	case json.Unmarshal(text, &name) == nil:
	case json.Unmarshal(text, &number) == nil:
		name = fmt.Sprint(number)
	default:
		return fmt.Errorf("question_id is %.40s: want a whole number or a text", text)
	}
	*i = id(name)
	return nil
}

type questionRow struct {
	ID       id       `json:"question_id"`
	Category string   `json:"category"`
	Turns    []string `json:"turns"`
}

// readQuestions reads questions from .jsonl, .json or .parquet, each also with .gz.
func readQuestions(fsys fs.FS, path string) ([]Question, *data.Report, error) {
	return data.ReadTable(fsys, path, func(r *questionRow, source string, _ *data.Report) (Question, string, error) {
		q := Question{ID: string(r.ID), Category: r.Category, Source: source}
		if blank(q.ID) || blank(q.Category) {
			return q, "", errors.New("question_id or category is missing: want question_id, category and turns")
		}
		if len(r.Turns) != Turns {
			return q, "", fmt.Errorf("turns is a list of %d: want %d texts", len(r.Turns), Turns)
		}
		for i, text := range r.Turns {
			if blank(text) {
				return q, "", fmt.Errorf("turns[%d] is empty: want a text", i)
			}
		}
		q.Turns = [Turns]string(r.Turns)
		return q, "question " + q.ID, nil
	})
}

// Answer is a model's answer to both turns of a question.
type Answer struct {
	Question string
	Model    string
	Turns    [Turns]string
	Source   string
}

type answerRow struct {
	ID      id     `json:"question_id"`
	Model   string `json:"model_id"`
	Choices []struct {
		Turns []string `json:"turns"`
	} `json:"choices"`
}

// readAnswers reads the answers or reference answers of one model in the benchmark's own form: the first of the choices
// of each row.
func readAnswers(fsys fs.FS, path string) ([]Answer, *data.Report, error) {
	return data.ReadTable(fsys, path, func(r *answerRow, source string, report *data.Report) (Answer, string, error) {
		a := Answer{Question: string(r.ID), Model: r.Model, Source: source}
		if blank(a.Question) || len(r.Choices) == 0 {
			return a, "", errors.New("question_id or choices is missing: want question_id, model_id and choices " +
				"[{turns}]")
		}
		if len(r.Choices) > 1 {
			report.Remark("several choices, of which the first is taken", source)
		}
		if n := len(r.Choices[0].Turns); n != Turns {
			return a, "", fmt.Errorf("choices[0].turns is a list of %d: want %d texts", n, Turns)
		}
		a.Turns = [Turns]string(r.Choices[0].Turns) // a model may answer nothing
		return a, "question " + a.Question, nil
	})
}

type judgementRow struct {
	ID    id       `json:"question_id"`
	Model string   `json:"model"`
	Asked string   `json:"user_prompt"`
	Score *float64 `json:"score"` // below 0: none
	Turn  int      `json:"turn"`
}

// readJudgements reads single scores as the benchmark's tools write them, and keeps the scores of the model whose
// answers are recorded: a file may have several models.
func (e *rating) readJudgements(path string) (rows []bench.Verdict, err error) {
	_, _, err = data.ReadTable(nil, path, func(r *judgementRow, _ string, _ *data.Report) (_ bool, _ string, err error) {
		if blank(string(r.ID)) || r.Score == nil || *r.Score > 10 || r.Turn < 1 || r.Turn > Turns {
			return false, "", errors.New("question_id, turn or score is missing or wrong: want question_id, model, turn (1 " +
				"or 2) and score (a number to 10; -1: none)")
		}
		if r.Model == e.model {
			rows = append(rows, bench.Verdict{ID: string(r.ID), Key: key(r.Turn, 0), Parsed: *r.Score >= 0, Score: *r.Score,
				Said: fmt.Sprint(*r.Score), Prompt: []data.Message{{Content: r.Asked}}})
		}
		return true, fmt.Sprintf("turn %d of question %s of %s", r.Turn, r.ID, r.Model), nil
	})
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("%s: it has no judgement of %q, whose answers are recorded", path, e.model)
	}
	return rows, err
}

// Prompt is a template of the benchmark's judge, with fields such as {question}.
type Prompt struct {
	Name     string `json:"name"`
	Type     string `json:"type"` // single, pairwise
	System   string `json:"system_prompt"`
	Template string `json:"prompt_template"`
	Format   string `json:"output_format"` // [[rating]] of type single
	Source   string `json:"-"`
}

// readTemplates reads templates of judges by name.
func readTemplates(fsys fs.FS, path string) (map[string]Prompt, error) {
	all := map[string]Prompt{}
	_, _, err := data.ReadTable(fsys, path, func(p *Prompt, source string, _ *data.Report) (_ bool, _ string, err error) {
		if p.Source = source; blank(p.Name) || blank(p.Type) || blank(p.Template) {
			err = errors.New("name, type or prompt_template is missing: want name, type, system_prompt, " +
				"prompt_template and output_format")
		}
		all[p.Name] = *p
		return true, "prompt " + p.Name, err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
