package run

import (
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestRecordLine(t *testing.T) {
	cases := []struct {
		record Record
		want   string
	}{
		{Record{Step: 3, Epoch: 0.5, Values: map[string]float64{"loss": 0.1, "grad_norm": 2, "logps/chosen": -14.3}},
			`{"step":3,"epoch":0.5,"grad_norm":2,"logps/chosen":-14.3,"loss":0.1}`},
		{Record{Step: 1, Epoch: 1. / 3, Values: map[string]float64{"learning_rate": 5e-7, "num_tokens": 123456789}},
			`{"step":1,"epoch":0.3333333333333333,"learning_rate":5e-7,"num_tokens":123456789}`},
		{Record{Step: 2, Values: map[string]float64{"b": math.Inf(-1), "a": math.NaN()}},
			`{"step":2,"epoch":0,"a":null,"b":null,"note":"a is NaN, b is -Inf"}`},
		{Record{}, `{"step":0,"epoch":0}`},
	}
	for _, c := range cases {
		b, err := c.record.MarshalJSON()
		if err != nil || string(b) != c.want {
			t.Errorf("%s, %v, want %s", b, err, c.want)
		}
	}
	_, err := Record{Values: map[string]float64{"note": 1}}.MarshalJSON()
	wantError(t, err, `"note"`)
}

func TestMetricsRoundTrip(t *testing.T) {
	f := newFolder(t)
	if got, err := f.ReadMetrics(); err != nil || len(got) != 0 {
		t.Errorf("before the first record: %v, %v", got, err)
	}
	want := []Record{
		{Step: 1, Epoch: 0.25, Values: map[string]float64{"loss": math.Pi}},
		{Step: 1, Epoch: 0.25, Values: map[string]float64{"eval_loss": math.SmallestNonzeroFloat64}},
		{Step: 2, Epoch: 0.5, Values: map[string]float64{}},
		{Step: 3, Epoch: 0.5, Values: map[string]float64{"a": math.Inf(1), "b": 1, "c": math.Inf(-1)}},
	}
	for _, r := range want {
		expect.OK(t, f.Log(r))
	}
	got, err := f.ReadMetrics()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

// TestCutMetrics: a run stopped anywhere and resumed from step 4 ends with the file of a run that was never stopped.
func TestCutMetrics(t *testing.T) {
	log := func(f *Folder, from, to int) {
		for step := from; step <= to; step++ {
			expect.OK(t, f.Log(Record{Step: step, Values: map[string]float64{"loss": 1 / float64(step)}}))
		}
	}
	whole := newFolder(t)
	log(whole, 1, 9)
	stopped := newFolder(t)
	log(stopped, 1, 7)
	appendTo(t, stopped.Path(metricsName), `{"step":8,"epo`) // the crash was in the middle of a line
	stopped = reopen(t, stopped)
	cut, err := stopped.CutMetrics(4)
	if err != nil || cut != 3 {
		t.Fatalf("cut %d, %v, want 3", cut, err)
	}
	log(stopped, 5, 9)
	if a, b := expect.Read(t, whole.Path(metricsName)), expect.Read(t, stopped.Path(metricsName)); a != b {
		t.Errorf("whole:\n%sresumed:\n%s", a, b)
	}
}

func TestCutMetricsOfTheSameProcess(t *testing.T) {
	f := newFolder(t)
	for step := range 3 {
		expect.OK(t, f.Log(Record{Step: step}))
	}
	expect.Must(f.CutMetrics(0))(t)
	expect.OK(t, f.Log(Record{Step: 7}))
	want := "{\"step\":0,\"epoch\":0}\n{\"step\":7,\"epoch\":0}\n"
	if got := expect.Read(t, f.Path(metricsName)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if cut, err := newFolder(t).CutMetrics(3); cut != 0 || err != nil {
		t.Errorf("no file: %d, %v", cut, err)
	}
}

func TestReadMetricsNamesTheLine(t *testing.T) {
	f := newFolder(t)
	for bad, want := range map[string]string{
		`{"loss":1}`:              `no "step"`,
		`{"step":1.5}`:            "whole number",
		`{"step":1,"loss":"low"}`: `loss "low"`,
		`step 1`:                  "invalid character",
	} {
		expect.Write(t, f.Path(metricsName), "{\"step\":1}\n"+bad+"\n")
		_, err := f.ReadMetrics()
		wantError(t, err, metricsName+":2:", want)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f := expect.Must(os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0))(t)
	defer f.Close()
	expect.Must(f.WriteString(text))(t)
}

func FuzzRecord(f *testing.F) {
	f.Add(`{"step":1,"epoch":0.5,"loss":0.25,"x":null,"note":"x is NaN"}`)
	f.Add(`{"step":-1e3}`)
	f.Add(`{"step":1,"step":2,"a\u0000":1e-400}`)
	f.Fuzz(func(t *testing.T, line string) {
		var r, again Record
		if r.UnmarshalJSON([]byte(line)) != nil {
			return
		}
		b, err := r.MarshalJSON()
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if strings.ContainsRune(string(b), '\n') {
			t.Fatalf("%q became two lines: %q", line, b)
		}
		if err := again.UnmarshalJSON(b); err != nil {
			t.Fatalf("%q became %q: %v", line, b, err)
		}
		if c, _ := again.MarshalJSON(); string(c) != string(b) && !strings.Contains(string(b), "null") {
			t.Fatalf("%q became %q, then %q", line, b, c)
		}
	})
}
