package alpaca

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestReadJudgements(t *testing.T) {
	path := expect.File(t, "a.json",
		`[{"instruction":"Q","output_2":"A","generator_2":"m","generator_1":"b","preference":1.25},
		{"instruction":"R","output_2":"","generator_2":"m","preference":null}]`)
	all, report, err := ReadJudgements(path)
	if err != nil || len(all) != 2 || all[0].Preference != 1.25 || !all[0].Judged ||
		all[1].Judged {
		t.Errorf("%+v, %v", all, err)
	}
	if len(report.Remarks) != 1 || report.Remarks[0].What != "no preference" {
		t.Error(report)
	}
	const good = `{"instruction":"Q","output_2":"A","generator_2":"m","preference":1}` + "\n"
	for text, want := range map[string]string{
		"": "no rows: the file is empty",
		good + strings.Replace(good, "1}", "2}",
			1): `a.jsonl:2: the instruction "Q" is at `,
		good +
			strings.NewReplacer(`"Q"`, `"R"`, `"m"`, `"n"`).Replace(good): `generator_2 is "n", in the first row "m"`,
		strings.Replace(good, "1}", "3}",
			1): "preference is 3: want a number from 1 (the baseline's output) to 2",
		strings.Replace(good, "1}", `"1"}`, 1): "preference is of JSON type string: want float64",
		strings.Replace(good, `"A"`, "7",
			1): "output_2 is of JSON type number: want string",
		strings.Replace(good, `"output_2":"A",`, "", 1):       "instruction or output_2 is missing: want",
		good + `{"instruction":"R","output_2":"A","generator`: "a.jsonl:2",
	} {
		_, _, err := ReadJudgements(expect.File(t, "a.jsonl", text))
		expect.Error(t, err, want)
	}
}

func TestReadBaselineAndWeights(t *testing.T) {
	b, err := ReadOutputs(expect.File(t, "b.jsonl", `{"instruction":"Q","output_1":"A","generator_1":"g"}`+"\n"+
		`{"instruction":"R","output":"B"}`), 1)
	if err != nil || b.Generator != "g" || b.Of["Q"] != "A" || b.Of["R"] != "B" {
		t.Errorf("%+v, %v", b, err)
	}
	_, err = ReadOutputs(expect.File(t, "b.jsonl", `{"instruction":"Q"}`), 1)
	expect.Error(t, err, "instruction or output_1 is missing: want both, texts")
	w, err := ReadWeights(expect.File(t, "w.csv", ",length,difficulty,model\nm,-1.5,1,0.25\n"))
	if err != nil || w["m"] != (Weights{-1.5, 1, 0.25}) {
		t.Errorf("%+v, %v", w, err)
	}
	for text, want := range map[string]string{
		"":                   "no rows",
		"a,b,c,d\nm,1,2,x\n": `w.csv:2: "x" is no finite number`,
		"a,b\nm,1\n":         "w.csv:2: want a name and three numbers",
		"a,b,c,d\nm,1\n":     "wrong number of fields",
	} {
		if _, err := ReadWeights(expect.File(t, "w.csv", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v: want %s", text, err, want)
		}
	}
}
