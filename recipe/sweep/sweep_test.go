package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// toy is a recipe that trains nothing.
type toy struct {
	Weight float64       `yaml:"weight" want:">0 <=4"`
	Steps  int           `yaml:"steps" want:">=1"`
	Name   string        `yaml:"name"`
	Dir    recipe.RunDir `yaml:"-"`
}

var toySpec = &config.Spec[toy]{Command: "toy", Defaults: func(*config.Given) toy { return toy{Weight: 1, Steps: 3} }}

// trainer counts what it is asked to run, and can fail or be interrupted at a weight.
type trainer struct {
	ran       []string
	interrupt float64
	fail      float64
	begin     bool // a run that fails has made its folder
}

func (tr *trainer) recipe() Recipe[toy] {
	r := toyRecipe
	r.Run = tr.train
	return r
}

var toyRecipe = Register(Recipe[toy]{
	Spec: toySpec, Dir: func(o *toy) *recipe.RunDir { return &o.Dir }, Read: readToy,
})

func (tr *trainer) train(_ context.Context, o toy, _ run.Reporter) error {
	how := "new"
	if o.Dir.Resume != "" {
		how = "continued"
	}
	tr.ran = append(tr.ran, fmt.Sprintf("%s %v %d %s", how, o.Weight, o.Steps, o.Name))
	if o.Weight == tr.fail && !tr.begin {
		return errors.New("no data")
	}
	f, err := o.Dir.Open("toy", toySpec.Resolve(&o))
	if err != nil {
		return err
	}
	defer f.Close()
	switch o.Weight {
	case tr.fail:
		return errors.New("no memory")
	case tr.interrupt:
		return &recipe.Stopped{Where: "at step 1 of 3, saved", Dir: f.Dir}
	}
	return errors.Join(f.Log(run.Record{Step: o.Steps, Values: map[string]float64{"step_time": o.Weight}}),
		f.WriteSummary("done"))
}

// readToy: i is 10·weight of 100, without an interval for u.
func readToy(dir string) (steps int, m []Measure, err error) {
	o, err := toySpec.Load(config.Input{Path: filepath.Join(dir, "config.yaml")})
	if err != nil {
		return 0, nil, err
	}
	return o.Steps, []Measure{
		{"i", Estimate{new(o.Weight / 10), new(o.Weight/10 - 0.05), new(o.Weight/10 + 0.05), int(10 * o.Weight), 100}},
		{"u", Estimate{Value: new(1 - o.Weight)}},
	}, nil
}

// start runs a new sweep.
func start(t *testing.T, tr *trainer, out string, axes ...string) (*Result, error) {
	t.Helper()
	in := config.Input{Overrides: []config.Override{{Flag: "--set", Key: "name", Value: "x"}}}
	s, err := tr.recipe().New(in, axes, out)
	if err != nil {
		t.Fatal(err)
	}
	return s.Run(t.Context(), nil)
}

// TestSweep: a run for each value, in order, and the table by hand: two steps of 0.5 seconds are 1, of 2 seconds 4.
func TestSweep(t *testing.T) {
	tr, out := &trainer{}, filepath.Join(t.TempDir(), "s")
	result, err := start(t, tr, out, "weight=0.5, 2", "steps=2")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"new 0.5 2 x", "new 2 2 x"}; !reflect.DeepEqual(tr.ran, want) {
		t.Errorf("%q, want %q", tr.ran, want)
	}
	lines := strings.Split(result.String(), "\n")
	for i, want := range []string{
		"weight  steps  i                            u       steps  time",
		"0.5     2      5.0% 5/100 (0.0 to 10.0)     0.500   2      1s",
		"2       2      20.0% 20/100 (15.0 to 25.0)  -1.000  2      4s",
	} {
		if lines[i] != want {
			t.Errorf("%q, want %q", lines[i], want)
		}
	}
	text, err := os.ReadFile(filepath.Join(out, tableName))
	if want := `{"measures":{"i":{"value":0.05,"low":0,"high":0.1,"count":5,"total":100},` +
		`"u":{"value":0.5,"low":null,"high":null}},"run":"weight=0.5,steps=2","seconds":1,"steps":2,` +
		`"values":{"steps":2,"weight":0.5}}` + "\n"; err != nil || !strings.HasPrefix(string(text), want) {
		t.Errorf("%s, want %s, %v", text, want, err)
	}
	summary, err := os.ReadFile(filepath.Join(out, "summary.txt"))
	if err != nil || string(summary) != result.String() {
		t.Errorf("%v: %s", err, summary)
	}
}

// TestContinues: an interrupted sweep continues with the run that was interrupted, even if the config that it was
// started with has gone, and does no finished run again.
func TestContinues(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "toy.yaml"), filepath.Join(dir, "s")
	if err := os.WriteFile(file, []byte("command: toy\nname: mine\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	tr := &trainer{interrupt: 2}
	s, err := tr.recipe().New(config.Input{Path: file}, []string{"weight=1,2,3"}, out)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	var stopped *recipe.Stopped
	if _, err = s.Run(t.Context(), nil); !errors.As(err, &stopped) || stopped.Dir != out ||
		stopped.Where != "in run 2 of 3, weight=2, at step 1 of 3, saved" {
		t.Fatalf("%v, %+v", err, stopped)
	}
	if text, _ := os.ReadFile(filepath.Join(out, tableName)); strings.Count(string(text), "\n") != 1 {
		t.Errorf("the table of the first run: %s", text)
	}
	for _, want := range [][]string{{"continued 2 3 mine", "new 3 3 mine"}, nil} {
		tr.ran, tr.interrupt = nil, 0
		if s, err = tr.recipe().Open(out); err != nil {
			t.Fatal(err)
		}
		result, err := s.Run(t.Context(), nil)
		if err != nil || len(result.Rows) != 3 || !reflect.DeepEqual(tr.ran, want) {
			t.Errorf("%v: ran %q, want %q", err, tr.ran, want)
		}
	}
	if !Is(out) || Is(dir) || Is("") || Is(filepath.Join(out, "weight=1")) {
		t.Error("Is")
	}
}

// TestFails: a sweep whose first run cannot begin leaves nothing; one that fails later continues.
func TestFails(t *testing.T) {
	out := filepath.Join(t.TempDir(), "s")
	if _, err := start(t, &trainer{fail: 1}, out, "weight=1,2"); err == nil || err.Error() != "no data" || exists(out) {
		t.Errorf("%v, the folder exists: %v", err, exists(out))
	}
	tr := &trainer{fail: 2, begin: true}
	if _, err := start(t, tr, out, "weight=1,2"); err == nil || err.Error() !=
		"in run 2 of 2, weight=2: no memory (the sweep continues with --resume "+out+")" {
		t.Error(err)
	}
	tr.fail = 0
	s, err := tr.recipe().Open(out)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := s.Run(t.Context(), nil); err != nil || len(result.Rows) != 2 {
		t.Error(err)
	}
	s, _ = (&trainer{}).recipe().New(config.Input{}, []string{"weight=1"}, out)
	if _, err := s.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "--resume "+out) {
		t.Errorf("a folder in use: %v", err)
	}
}

// TestCancelled: an interruption before the run says where it is.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tr, out := &trainer{fail: 1}, filepath.Join(t.TempDir(), "s")
	s, err := tr.recipe().New(config.Input{}, []string{"weight=1,2"}, out)
	if err != nil {
		t.Fatal(err)
	}
	var stopped *recipe.Stopped
	if _, err := s.Run(ctx, nil); !errors.As(err, &stopped) || stopped.Where != "in run 1 of 2, weight=1" || !Is(out) {
		t.Error(err)
	}
}

// TestRefuses: one line for each bad sweep, before anything is made.
func TestRefuses(t *testing.T) {
	set := []config.Override{{Flag: "--steps", Key: "steps", Value: "4"}}
	for _, c := range []struct {
		axes []string
		want string
	}{
		{[]string{"weight"}, "--sweep weight: want a key and its numbers, such as --sweep reward.restricted_weight="},
		{[]string{"=1"}, "--sweep =1: want a key and its numbers"},
		{[]string{"weight="}, "--sweep weight=: there are no values: want numbers with commas between"},
		{[]string{"weight=1,,2"}, `--sweep weight=1,,2: "" is not a number`},
		{[]string{"weight=1,x"}, `--sweep weight=1,x: "x" is not a number`},
		{[]string{"weight=1/2"}, `"1/2" is not a number`},
		{[]string{"weight=nan"}, `"nan" is not a number`},
		{[]string{"weight=.5"}, `".5" is not a number`}, // of JSON, in which the table is written
		{[]string{"weight=05"}, `"05" is not a number`},
		{[]string{"weight=1_000"}, `"1_000" is not a number`},
		{[]string{"weight=1,2,1.0"}, "--sweep weight=1,2,1.0: 1.0 is there twice (1): want each value once"},
		{[]string{"weight=1", "weight=2"}, "--sweep weight=2: another --sweep has this key"},
		{[]string{"weigth=1"}, `--sweep: unknown key "weigth": did you mean weight?`},
		{[]string{"name=1"}, "--sweep name=1: name is not a number (its type is string)"},
		{[]string{"weight=1,5"}, "--sweep: weight 5: want a number above 0 and at most 4"},
		{[]string{"weight=1,-1"}, "--sweep: weight -1: want a number above 0 and at most 4"},
		{[]string{"steps=1"}, "--sweep steps=1: --steps sets steps, too: remove one of the two"},
	} {
		_, err := (&trainer{}).recipe().New(config.Input{Overrides: set}, c.axes, "")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %s", c.axes, err, c.want)
		}
	}
	if _, err := (&trainer{}).recipe().New(config.Input{}, []string{"steps=1,1.5"}, ""); err == nil ||
		!strings.Contains(err.Error(), "steps 1.5: want a whole number") {
		t.Error(err)
	}
}

// TestOpenRefuses: a folder of another command's sweep, and one whose values were changed by hand to nonsense.
func TestOpenRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"command: other --sweep\nsweep: [weight=1]\n": `command "other --sweep": want toy --sweep`,
		"command: toy --sweep\nsweep: [weight=a]\n":   `"a" is not a number`,
		"command: toy --sweep\nsweep: []\n":           "sweep is missing",
		"command: toy --sweep\nswep: [weight=1]\n":    `unknown key "swep": did you mean sweep?`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, configName), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := (&trainer{}).recipe().Open(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestGrid: the last axis changes fastest, and no point shares memory with another.
func TestGrid(t *testing.T) {
	var names []string
	for _, p := range Grid([]Axis{{"a", []string{"1", "2"}}, {"b", []string{"3", "4"}}, {"c", []string{"5", "6"}}}) {
		names = append(names, p.Name())
	}
	if got := strings.Join(names, " "); got != "a=1,b=3,c=5 a=1,b=3,c=6 a=1,b=4,c=5 a=1,b=4,c=6 "+
		"a=2,b=3,c=5 a=2,b=3,c=6 a=2,b=4,c=5 a=2,b=4,c=6" {
		t.Error(got)
	}
}
