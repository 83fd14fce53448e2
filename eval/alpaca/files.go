package alpaca

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/posttrain/posttrain/data"
)

// Judgement is a judge's preference between two outputs for an instruction.
type Judgement struct {
	Instruction string
	Output      string  // of the model
	Generator   string  // the model
	Preference  float64 // 1: the baseline's, 2: the model's, between: by probability; 0 or 1.5: a draw
	Judged      bool    // there is a preference
	Source      string
	Baseline    string  // the other output's model; "": the file does not say
	Base        *string // the other output; nil: the same
}

// ReadJudgements reads a file of another model's judgements in the benchmark's own form, .json, .jsonl or .parquet, each
// also with .gz. All are of one model, each of another instruction; those without a preference are counted as remarks.
func ReadJudgements(path string) ([]Judgement, *data.Report, error) {
	type annotation struct {
		Instruction *string  `json:"instruction"`
		Output2     *string  `json:"output_2"`
		Generator2  string   `json:"generator_2"`
		Output1     *string  `json:"output_1"`
		Generator1  string   `json:"generator_1"`
		Preference  *float64 `json:"preference"`
	}
	var first *annotation
	return data.ReadTable(nil, path, func(r *annotation, source string, report *data.Report) (j Judgement, _ string,
		err error) {
		if r.Instruction == nil || r.Output2 == nil {
			return j, "", errors.New("instruction or output_2 is missing: want instruction, output_2 and preference")
		}
		j = Judgement{*r.Instruction, *r.Output2, r.Generator2, 0, r.Preference != nil, source, r.Generator1,
			r.Output1}
		if !j.Judged {
			report.Remark("no preference", source)
		} else if j.Preference = *r.Preference; !(j.Preference == 0 || j.Preference >= 1 && j.Preference <= 2) {
			return j, "", fmt.Errorf("preference is %v: want a number from 1 (the baseline's output) to 2 (the "+
				"model's), or null", j.Preference)
		}
		if first = cmp.Or(first, r); j.Generator != first.Generator2 {
			err = fmt.Errorf("generator_2 is %q, in the first row %q: want the judgements of one model", j.Generator,
				first.Generator2)
		}
		return j, fmt.Sprintf("the instruction %q", j.Instruction), err
	})
}

// Outputs are a model's outputs by instruction.
type Outputs struct {
	Generator    string
	Instructions []string // in the order of the file
	Of           map[string]string
}

// ReadOutputs reads the outputs of the baseline (1) or of the model (2): rows with instruction and output_1 or output_2,
// or output.
func ReadOutputs(path string, number int) (*Outputs, error) {
	type row struct {
		Instruction *string `json:"instruction"`
		Output      *string `json:"output"`
		Output1     *string `json:"output_1"`
		Output2     *string `json:"output_2"`
		Generator   string  `json:"generator"`
		Generator1  string  `json:"generator_1"`
		Generator2  string  `json:"generator_2"`
	}
	b := &Outputs{Of: map[string]string{}}
	_, _, err := data.ReadTable(nil, path, func(r *row, _ string, _ *data.Report) (_ bool, once string, _ error) {
		text, generator := r.Output1, r.Generator1
		if number == 2 {
			text, generator = r.Output2, r.Generator2
		}
		if text = cmp.Or(text, r.Output); r.Instruction == nil || text == nil {
			return false, "", fmt.Errorf("instruction or output_%d is missing: want both, texts", number)
		}
		b.Instructions = append(b.Instructions, *r.Instruction)
		b.Of[*r.Instruction] = *text
		b.Generator = cmp.Or(generator, r.Generator, b.Generator)
		return true, fmt.Sprintf("the instruction %q", *r.Instruction), nil
	})
	return b, err
}

// Weights are the weights of a model in the regression that controls for length.
type Weights struct {
	Length     float64 `json:"length"`     // of tanh of the standardised difference of lengths
	Difficulty float64 `json:"difficulty"` // of the instruction's
	Model      float64 `json:"model"`
}

// ReadWeights reads published weights by model: a .csv file whose columns are the name, and the fields of Weights.
func ReadWeights(path string) (map[string]Weights, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	table, err := csv.NewReader(file).ReadAll()
	if err == nil && len(table) < 2 {
		err = errors.New("no rows: the file is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	all := map[string]Weights{}
	for i, row := range table[1:] {
		if len(row) != 4 {
			return nil, fmt.Errorf("%s:%d: want a name and three numbers", path, i+2)
		}
		var x [3]float64
		for k := range x {
			x[k], err = strconv.ParseFloat(row[k+1], 64)
			if err != nil || math.IsNaN(x[k]) || math.IsInf(x[k], 0) {
				return nil, fmt.Errorf("%s:%d: %q is no finite number", path, i+2, row[k+1])
			}
		}
		all[row[0]] = Weights{x[0], x[1], x[2]}
	}
	return all, nil
}
