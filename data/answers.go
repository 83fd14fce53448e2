package data

import (
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/data/internal/rows"
)

// Answers are several completions of a prompt, with a score each.
type Answers struct {
	Prompt Text
	Texts  []string
	Scores []float64
}

type answersJSON struct {
	Prompt any       `json:"prompt"`
	Texts  []string  `json:"all_generated_responses"`
	Scores []float64 `json:"all_rm_scores"`
}

// WriteAnswers writes answers with the columns prompt, all_generated_responses and all_rm_scores, in the forms of
// [WritePreferences]. [ReadPreferences] makes pairs of the best and the worst of them.
func WriteAnswers(path string, all []Answers) error {
	return rows.Table{
		Values: each(Values(all), func(a Answers) (any, error) {
			return answersJSON{a.Prompt.value(), a.Texts, a.Scores}, nil
		}),
		Parquet: func(w io.Writer) error { return answersParquet(w, all) },
	}.Write(path)
}

func answersParquet(w io.Writer, all []Answers) error {
	var prompts forms
	for _, a := range all {
		prompts.add(a.Prompt)
	}
	column, err := prompts.column()
	if err != nil {
		return err
	}
	cells := func(a Answers) (any, error) {
		return map[string]any{"prompt": a.Prompt.cell(), KnownAnswerColumns[0][0]: a.Texts,
			KnownAnswerColumns[0][1]: a.Scores}, nil
	}
	return rows.WriteParquet(w, each(Values(all), cells), parquet.NewSchema("answers", parquet.Group{"prompt": column,
		KnownAnswerColumns[0][0]: parquet.List(parquet.String()),
		KnownAnswerColumns[0][1]: parquet.List(parquet.Leaf(parquet.DoubleType))}))
}
