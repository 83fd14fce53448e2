// Package alpaca reads what AlpacaEval 2 releases: judgements of a model's outputs against a baseline's, the baseline's
// outputs, and published weights.
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
	"github.com/posttrain/posttrain/data/internal/rows"
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

// ReadJudgements reads a file of judgements, .json, .jsonl or .parquet, each also with .gz. All are of one model, each
// of
// another instruction; those without a preference are counted as warts.
func ReadJudgements(path string) ([]Judgement, *data.Report, error) {
	seen := map[string]string{}
	var generator, baseline string
	of := func(r rows.Row, report *data.Report) (j Judgement, why string, err error) {
		if j, err = judgementOf(r); err != nil {
			return j, "", err
		}
		if at, again := seen[j.Instruction]; again {
			return j, "", fmt.Errorf("the instruction is in %s, too: want the judgements of one run", at)
		}
		if seen[j.Instruction] = r.Source; len(seen) == 1 {
			generator = j.Generator
		}
		if baseline = cmp.Or(baseline, j.Baseline); j.Baseline != "" && j.Baseline != baseline {
			return j, "", fmt.Errorf("generator_1 is %q, in rows before %q: want judgements against one baseline",
				j.Baseline, baseline)
		}
		if j.Generator != generator {
			return j, "", fmt.Errorf("generator_2 is %q, in the first row %q: want the judgements of one model",
				j.Generator,
				generator)
		}
		if !j.Judged {
			report.Wart("no preference", r.Source)
		}
		return j, "", nil
	}
	return data.Collect(path, rows.Read(nil, path), of)
}

func judgementOf(r rows.Row) (j Judgement, err error) {
	j.Source = r.Source
	for _, c := range []struct {
		column string
		to     *string
		must   bool
	}{{"instruction", &j.Instruction, true}, {"output_2", &j.Output, true}, {"generator_2", &j.Generator, false},
		{"generator_1", &j.Baseline, false}} {
		value, found := r.Fields[c.column]
		if !found && !c.must {
			continue
		}
		text, ok := value.(string)
		if !ok {
			return j, fmt.Errorf("%s is %s: want a string (columns of judgements: instruction, output_2, preference)",
				c.column, rows.KindOf(value))
		}
		*c.to = text
	}
	value, found := r.Fields["preference"]
	if !found {
		return j, fmt.Errorf("found columns %s: want preference, too", rows.List(r.Columns()))
	}
	if value == nil {
		return j, nil
	}
	j.Preference, err = data.Number(value)
	j.Judged = err == nil
	if err != nil || !(j.Preference == 0 || j.Preference >= 1 && j.Preference <= 2) {
		return j,
			fmt.Errorf("preference is %v: want a number from 1 (the baseline's output) to 2 (the model's), or null",
				value)
	}
	return j, nil
}

// Baseline is a model's outputs by instruction.
type Baseline struct {
	Generator    string
	Instructions []string // in the order of the file
	Outputs      map[string]string
}

// ReadBaseline reads the outputs of the baseline: rows with instruction and output_1, or output.
func ReadBaseline(path string) (*Baseline, error) { return readOutputs(path, "1") }

// ReadOutputs reads the outputs of the model: rows with instruction and output_2, or output.
func ReadOutputs(path string) (*Baseline, error) { return readOutputs(path, "2") }

// readOutputs reads columns that may end in a number.
func readOutputs(path, number string) (*Baseline, error) {
	b := &Baseline{Outputs: map[string]string{}}
	for r, err := range rows.Read(nil, path) {
		if err != nil {
			return nil, err
		}
		instruction, ok1 := r.Fields["instruction"].(string)
		output, ok2 := r.Fields["output_"+number].(string)
		if !ok2 {
			output, ok2 = r.Fields["output"].(string)
		}
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("%s: found columns %s: want instruction and output_%s, texts", r.Source,
				rows.List(r.Columns()), number)
		}
		if _, twice := b.Outputs[instruction]; twice {
			return nil, fmt.Errorf("%s: a second output for the instruction %q: want one", r.Source,
				data.OneLine(instruction, 60))
		}
		b.Instructions, b.Outputs[instruction] = append(b.Instructions, instruction), output
		for _, column := range []string{"generator_" + number, "generator"} {
			if name, ok := r.Fields[column].(string); ok {
				b.Generator = name
				break
			}
		}
	}
	if len(b.Outputs) == 0 {
		return nil, fmt.Errorf("%s: no rows: the file is empty", path)
	}
	return b, nil
}

// Weights are those of a model in the regression that controls for length.
type Weights struct {
	Length     float64 `json:"length"`     // of tanh of the standardised difference of lengths
	Difficulty float64 `json:"difficulty"` // of the instruction's
	Model      float64 `json:"model"`
}

// ReadTable reads a .csv file, whose first row names the columns.
func ReadTable(path string) ([][]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	table, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return table, nil
}

// ReadWeights reads published weights by model: a .csv file whose columns are the name, and those of Weights.
func ReadWeights(path string) (map[string]Weights, error) {
	table, err := ReadTable(path)
	if err != nil {
		return nil, err
	}
	all := map[string]Weights{}
	for i, row := range table[min(1, len(table)):] {
		var x [3]float64
		err := errors.New("want a name and three numbers")
		if len(row) == 4 {
			err = nil
			for k := range x {
				var bad error
				if x[k], bad = strconv.ParseFloat(row[k+1], 64); bad != nil || math.IsNaN(x[k]) || math.IsInf(x[k], 0) {
					err = fmt.Errorf("%q is no finite number", row[k+1])
				}
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+2, err)
		}
		all[row[0]] = Weights{x[0], x[1], x[2]}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no rows: the file is empty", path)
	}
	return all, nil
}
