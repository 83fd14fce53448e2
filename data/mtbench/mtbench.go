// Package mtbench reads the files of MT-Bench: questions of two turns, answers and reference answers to them, the
// prompts of its judge, and judgements.
package mtbench

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/internal/rows"
)

// Turns is the number of turns of a question.
const Turns = 2

// Question is what a user asks, and then asks further.
type Question struct {
	ID        string
	Category  string
	Turns     [Turns]string
	Reference []string // notes on right answers, which the benchmark does not show to its judge; may be nil
	Source    string   // "question.jsonl:41"
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

// ReadQuestions reads questions from .jsonl, .json or .parquet, each also with .gz.
func ReadQuestions(path string) ([]Question, *data.Report, error) { return readQuestions(nil, path) }

func readQuestions(fsys fs.FS, path string) ([]Question, *data.Report, error) {
	places := seen{}
	return collect(fsys, path, func(r rows.Row, _ *data.Report) (Question, error) {
		var row struct {
			ID        id       `json:"question_id"`
			Category  string   `json:"category"`
			Turns     []string `json:"turns"`
			Reference []string `json:"reference"`
		}
		if err := rows.Unmarshal(r.Text, &row); err != nil {
			return Question{}, err
		}
		q := Question{ID: string(row.ID), Category: row.Category, Reference: row.Reference, Source: r.Source}
		if blank(q.ID) || blank(q.Category) {
			return q, fmt.Errorf("question_id or category is missing: want question_id, category and turns")
		}
		var err error
		if q.Turns, err = twoTexts("turns", row.Turns); err != nil {
			return q, err
		}
		return q, places.add("question "+q.ID, r.Source)
	}, "question_id", "category", "turns", "reference")
}

// Answer is a model's answer to both turns of a question.
type Answer struct {
	Question string
	Model    string
	Turns    [Turns]string
	Source   string
}

// ReadAnswers reads the answers or reference answers of one model in the benchmark's own form: the first of the choices
// of each row.
func ReadAnswers(path string) ([]Answer, *data.Report, error) { return readAnswers(nil, path) }

func readAnswers(fsys fs.FS, path string) ([]Answer, *data.Report, error) {
	places := seen{}
	return collect(fsys, path, func(r rows.Row, report *data.Report) (Answer, error) {
		var row struct {
			ID      id     `json:"question_id"`
			Model   string `json:"model_id"`
			Choices []struct {
				Turns []string `json:"turns"`
			} `json:"choices"`
		}
		if err := rows.Unmarshal(r.Text, &row); err != nil {
			return Answer{}, err
		}
		a := Answer{Question: string(row.ID), Model: row.Model, Source: r.Source}
		if blank(a.Question) || len(row.Choices) == 0 {
			return a, fmt.Errorf("question_id or choices is missing: want question_id, model_id and choices [{turns}]")
		}
		if len(row.Choices) > 1 {
			report.Wart("several choices, of which the first is taken", r.Source)
		}
		if len(row.Choices[0].Turns) != Turns {
			return a, fmt.Errorf("choices[0].turns is a list of %d: want %d texts", len(row.Choices[0].Turns), Turns)
		}
		a.Turns = [Turns]string(row.Choices[0].Turns) // a model may answer nothing
		return a, places.add("question "+a.Question, r.Source)
	}, "question_id", "model_id", "choices")
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

// ReadPrompts reads templates of judges by name.
func ReadPrompts(path string) (map[string]Prompt, error) { return ReadPromptsFS(nil, path) }

// ReadPromptsFS is ReadPrompts from a file system, such as an embedded one.
func ReadPromptsFS(fsys fs.FS, path string) (map[string]Prompt, error) {
	places, all := seen{}, map[string]Prompt{}
	_, _, err := collect(fsys, path, func(r rows.Row, _ *data.Report) (p Prompt, err error) {
		if err = rows.Unmarshal(r.Text, &p); err != nil {
			return p, err
		}
		if p.Source = r.Source; blank(p.Name) || blank(p.Type) || blank(p.Template) {
			return p, fmt.Errorf("name, type or prompt_template is missing: want name, type, system_prompt, " +
				"prompt_template and output_format")
		}
		all[p.Name] = p
		return p, places.add("prompt "+p.Name, r.Source)
	}, "name", "type", "system_prompt", "prompt_template", "output_format")
	if err != nil {
		return nil, err
	}
	return all, nil
}

// NoScore is the score of a judge's reply without one, as the benchmark writes it.
const NoScore = -1

// Judgement is a judge's score of a model's answer in a turn.
type Judgement struct {
	Question string
	Model    string
	Turn     int // from 1
	Score    float64
	Source   string
}

// ReadJudgements reads single scores in the benchmark's own form; those of several models may be in a file. A question
// with only one of its turns, and one that some model lacks, are errors: the file is cut short.
func ReadJudgements(path string) ([]Judgement, *data.Report, error) { return readJudgements(nil, path) }

func readJudgements(fsys fs.FS, path string) ([]Judgement, *data.Report, error) {
	places := seen{}
	all, report, err := collect(fsys, path, func(r rows.Row, report *data.Report) (Judgement, error) {
		j, err := judgementOf(r)
		if err != nil {
			return j, err
		}
		if j.Score == NoScore {
			report.Wart("no score", r.Source)
		}
		return j, places.add(fmt.Sprintf("question %s, turn %d of %s", j.Question, j.Turn, j.Model), r.Source)
	}, "question_id", "model", "turn", "score")
	if err == nil {
		err = whole(path, all)
	}
	if err != nil {
		return nil, nil, err
	}
	return all, report, nil
}

func judgementOf(r rows.Row) (Judgement, error) {
	var row struct {
		ID    id       `json:"question_id"`
		Model string   `json:"model"`
		Turn  int      `json:"turn"`
		Score *float64 `json:"score"`
	}
	if err := rows.Unmarshal(r.Text, &row); err != nil {
		return Judgement{}, err
	}
	j := Judgement{Question: string(row.ID), Model: row.Model, Turn: row.Turn, Source: r.Source}
	switch {
	case blank(j.Question) || blank(j.Model) || row.Score == nil:
		return j, fmt.Errorf("question_id, model or score is missing: want question_id, model, turn and score")
	case j.Turn < 1 || j.Turn > Turns:
		return j, fmt.Errorf("turn is %d: want 1 or 2", j.Turn)
	case *row.Score != NoScore && (*row.Score < 0 || *row.Score > 10):
		return j, fmt.Errorf("score is %v: want a number from 1 to 10, or %d for a reply without a score", *row.Score,
			NoScore)
	}
	j.Score = *row.Score
	return j, nil
}

// whole wants both turns of every question of every model.
func whole(path string, all []Judgement) error {
	there := map[Judgement]bool{}
	mark := func(model, question string, turn int) Judgement {
		return Judgement{Model: model, Question: question, Turn: turn}
	}
	var models, questions []string
	known := map[string]bool{}
	for _, j := range all {
		there[mark(j.Model, j.Question, j.Turn)] = true
		if !known["model "+j.Model] {
			models = append(models, j.Model)
		}
		if !known["question "+j.Question] {
			questions = append(questions, j.Question)
		}
		known["model "+j.Model], known["question "+j.Question] = true, true
	}
	for _, model := range models {
		for _, question := range questions {
			for turn := 1; turn <= Turns; turn++ {
				if !there[mark(model, question, turn)] {
					return fmt.Errorf("%s: %s has no judgement of turn %d of question %s: want both turns of every "+
						"question; the file is cut short", path, model, turn, question)
				}
			}
		}
	}
	return nil
}

// seen are the places of what may come once.
type seen map[string]string

func (s seen) add(what, place string) error {
	if first, twice := s[what]; twice {
		return fmt.Errorf("%s is at %s already: want it once", what, first)
	}
	s[what] = place
	return nil
}

// collect reads the rows of a file, of which none is dropped.
func collect[T any](fsys fs.FS, path string, of func(rows.Row, *data.Report) (T, error), columns ...string) ([]T,
	*data.Report, error) {
	return data.Collect(path, rows.ReadJSON(fsys, path, columns...),
		func(r rows.Row, report *data.Report) (T, string, error) {
			record, err := of(r, report)
			return record, "", err
		})
}

// twoTexts wants a text for each turn.
func twoTexts(field string, list []string) (texts [Turns]string, err error) {
	if len(list) != Turns {
		return texts, fmt.Errorf("%s is a list of %d: want %d texts", field, len(list), Turns)
	}
	for i, text := range list {
		if blank(text) {
			return texts, fmt.Errorf("%s[%d] is empty: want a text", field, i)
		}
	}
	return [Turns]string(list), nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
