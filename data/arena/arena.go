// Package arena reads judgements of Arena-Hard v0.1: of each question two games, in which the judge sees the answers of
// the baseline and of the model in both orders.
package arena

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/internal/rows"
)

// Verdicts from best to worst for the answer that the judge sees first.
var Verdicts = []string{"A>>B", "A>B", "A=B", "B>A", "B>>A"}

// Judgement is what the judge said about a question. In the first game the baseline's answer is A, in the second the
// model's.
type Judgement struct {
	Question string
	Model    string
	Games    [2]string // one of Verdicts; "": the judge gave none
	Source   string
}

// ReadJudgements reads the judgements of one model, .jsonl, .json or .parquet, each also with .gz, as the benchmark's
// tools write them. A question that comes twice is an error, a game without a verdict a wart.
func ReadJudgements(path string) ([]Judgement, *data.Report, error) {
	seen, model := map[string]string{}, ""
	of := func(r rows.Row, report *data.Report) (j Judgement, why string, err error) {
		if j, err = judgementOf(r); err != nil {
			return j, "", err
		}
		if at, again := seen[j.Question]; again {
			return j, "", fmt.Errorf("question %s is in %s, too", j.Question, at)
		}
		if seen[j.Question] = r.Source; len(seen) == 1 {
			model = j.Model
		}
		if j.Model != model {
			return j, "", fmt.Errorf("model is %q, in the first row %q: want the judgements of one model", j.Model,
				model)
		}
		for _, verdict := range j.Games {
			if verdict == "" {
				report.Wart("a game without a verdict", r.Source)
			}
		}
		return j, "", nil
	}
	return data.Collect(path, rows.Read(nil, path), of)
}

func judgementOf(r rows.Row) (j Judgement, err error) {
	j.Source = r.Source
	if j.Question, _ = r.Fields["question_id"].(string); j.Question == "" {
		j.Question, _ = r.Fields["uid"].(string)
	}
	j.Model, _ = r.Fields["model"].(string)
	games, ok := r.Fields["games"].([]any)
	if j.Question == "" || !ok || len(games) != 2 {
		return j, fmt.Errorf("found columns %s: want question_id or uid, a text, and games, a list of two",
			rows.List(r.Columns()))
	}
	for i, game := range games {
		object, _ := game.(map[string]any)
		text, _ := object["score"].(string)
		if j.Games[i], err = verdictOf(text); err != nil {
			return j, fmt.Errorf("games[%d].score is %w", i, err)
		}
	}
	return j, nil
}

// verdictOf takes the forms that the benchmark's judges write.
func verdictOf(text string) (string, error) {
	text = strings.NewReplacer("A<<B", "B>>A", "A<B", "B>A", "B=A", "A=B", "B<<A", "A>>B", "B<A", "A>B").Replace(text)
	if text == "" || slices.Contains(Verdicts, text) {
		return text, nil
	}
	return "", fmt.Errorf("%q: want %s, or null for a game without a verdict", text, strings.Join(Verdicts, ", "))
}
