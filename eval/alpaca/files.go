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
	Output      string  // of the model (output_2)
	Generator   string  // the model (generator_2)
	Baseline    string  // the other model (generator_1); "": the file does not say
	Preference  float64 // 1: the baseline's, 2: the model's, between: by probability; 0 or 1.5: a draw
	Judged      bool    // there is a preference
	Source      string
}

// annotation is a judgement in the benchmark's own form.
type annotation struct {
	Instruction *string  `json:"instruction"`
	Output1     string   `json:"output_1"`
	Generator1  string   `json:"generator_1"`
	Output2     *string  `json:"output_2"`
	Generator2  string   `json:"generator_2"`
	Annotator   string   `json:"annotator"`
	Preference  *float64 `json:"preference"`
}

// ReadJudgements reads a file of judgements, .json, .jsonl or .parquet, each also with .gz. All are of one model, each
// of another instruction; those without a preference are counted as warts.
func ReadJudgements(path string) ([]Judgement, *data.Report, error) {
	var first *Judgement
	baseline := ""
	return data.ReadTable(nil, path, func(r *annotation, source string, report *data.Report) (j Judgement, _ string,
		err error) {
		if r.Instruction == nil || r.Output2 == nil {
			return j, "", errors.New("instruction or output_2 is missing: want instruction, output_2 and preference")
		}
		j = Judgement{Instruction: *r.Instruction, Output: *r.Output2, Generator: r.Generator2, Baseline: r.Generator1,
			Judged: r.Preference != nil, Source: source}
		if !j.Judged {
			report.Wart("no preference", source)
		} else if j.Preference = *r.Preference; !(j.Preference == 0 || j.Preference >= 1 && j.Preference <= 2) {
			return j, "", fmt.Errorf("preference is %v: want a number from 1 (the baseline's output) to 2 (the "+
				"model's), or null", j.Preference)
		}
		if first == nil {
			first = &j
		}
		if baseline = cmp.Or(baseline, j.Baseline); j.Baseline != "" && j.Baseline != baseline {
			err = fmt.Errorf("generator_1 is %q, in rows before %q: want judgements against one baseline", j.Baseline,
				baseline)
		}
		if j.Generator != first.Generator {
			err = fmt.Errorf("generator_2 is %q, in the first row %q: want the judgements of one model", j.Generator,
				first.Generator)
		}
		return j, fmt.Sprintf("the instruction %q", j.Instruction), err
	})
}

// Baseline is a model's outputs by instruction.
type Baseline struct {
	Generator    string
	Instructions []string // in the order of the file
	Outputs      map[string]string
}

// output is a row of a file of outputs: of the baseline (1), or of the model (2).
type output struct {
	Instruction *string `json:"instruction"`
	Output      *string `json:"output"`
	Output1     *string `json:"output_1"`
	Output2     *string `json:"output_2"`
	Generator   string  `json:"generator"`
	Generator1  string  `json:"generator_1"`
	Generator2  string  `json:"generator_2"`
}

// ReadBaseline reads the outputs of the baseline: rows with instruction and output_1, or output.
func ReadBaseline(path string) (*Baseline, error) {
	return readOutputs(path, "output_1", func(r *output) (*string, string) { return r.Output1, r.Generator1 })
}

// ReadOutputs reads the outputs of the model: rows with instruction and output_2, or output.
func ReadOutputs(path string) (*Baseline, error) {
	return readOutputs(path, "output_2", func(r *output) (*string, string) { return r.Output2, r.Generator2 })
}

// readOutputs reads outputs; of gives those of a column with their generator.
func readOutputs(path, column string, of func(*output) (*string, string)) (*Baseline, error) {
	b := &Baseline{Outputs: map[string]string{}}
	_, _, err := data.ReadTable(nil, path, func(r *output, _ string, _ *data.Report) (_ bool, once string, _ error) {
		text, generator := of(r)
		if text = cmp.Or(text, r.Output); r.Instruction == nil || text == nil {
			return false, "", fmt.Errorf("instruction or %s is missing: want both, texts", column)
		}
		b.Instructions = append(b.Instructions, *r.Instruction)
		b.Outputs[*r.Instruction] = *text
		b.Generator = cmp.Or(generator, r.Generator, b.Generator)
		return true, fmt.Sprintf("the instruction %q", *r.Instruction), nil
	})
	return b, err
}

// Weights are those of a model in the regression that controls for length.
type Weights struct {
	Length     float64 `json:"length"`     // of tanh of the standardised difference of lengths
	Difficulty float64 `json:"difficulty"` // of the instruction's
	Model      float64 `json:"model"`
}

// readCSV reads a .csv file, whose first row names the columns.
func readCSV(path string) ([][]string, error) {
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
	return table, nil
}

// ReadWeights reads published weights by model: a .csv file whose columns are the name, and those of Weights.
func ReadWeights(path string) (map[string]Weights, error) {
	table, err := readCSV(path)
	if err != nil {
		return nil, err
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
