package federated

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// oracle reads one section of federated.json.
func oracle[T any](t *testing.T, section string) []T {
	t.Helper()
	dir := os.Getenv("POSTTRAIN_ORACLE_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "oracle")
	}
	text, err := os.ReadFile(filepath.Join(dir, "federated.json"))
	if err != nil {
		t.Skipf("no oracle: %v; set POSTTRAIN_ORACLE_DIR to the folder that holds federated.json", err)
	}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(text, &sections); err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := json.Unmarshal(sections[section], &cases); err != nil || len(cases) == 0 {
		t.Fatalf("section %s: %d cases, %v", section, len(cases), err)
	}
	return cases
}

// near compares got with want within 1e-9·max(1, |want|).
func near(t *testing.T, name string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-9*max(1, math.Abs(want))) {
		t.Errorf("%s = %.12g, want %.12g", name, got, want)
	}
}

func nearAll(t *testing.T, name string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d numbers, want %d", name, len(got), len(want))
		return
	}
	for j := range want {
		near(t, name+"["+strconv.Itoa(j)+"]", got[j], want[j])
	}
}

type oracleSchedule struct {
	Kind  ScheduleKind
	Const struct{ Alpha, Eta float64 }
}

func (o oracleSchedule) schedule() Schedule { return Schedule{o.Kind, o.Const.Alpha, o.Const.Eta} }

type oracleStep struct {
	Time               float64
	Agent              int
	K, Version, Delay  int
	Alpha, Eta, Norm   float64
	D, Theta, Tilde, G []float64
}

func (o oracleStep) compare(t *testing.T, name string, s *AFedPG, step AFedPGStep) {
	t.Helper()
	if s.K != o.K || o.Delay > 0 && step.Delay != o.Delay {
		t.Errorf("%s: version %d, delay %d, want %d, %d", name, s.K, step.Delay, o.K, o.Delay)
	}
	nearAll(t, name+" alpha, eta", []float64{step.Alpha, step.Eta}, []float64{o.Alpha, o.Eta})
	nearAll(t, name+" theta", s.Theta, o.Theta)
	nearAll(t, name+" tilde", s.Tilde, o.Tilde)
	if o.D != nil {
		nearAll(t, name+" d", s.D, o.D)
		near(t, name+" norm", step.Norm, o.Norm)
	}
}

func TestOracleAFedPG(t *testing.T) {
	type testCase struct {
		oracleSchedule
		Theta0   []float64
		Arrivals []oracleStep
	}
	for i, c := range oracle[testCase](t, "afedpg") {
		s := NewAFedPG(c.Theta0, c.schedule())
		for _, a := range c.Arrivals {
			a.compare(t, "case "+strconv.Itoa(i)+" k "+strconv.Itoa(a.K), s, s.Step(a.G, a.Version))
		}
	}
}

func TestOracleGuard(t *testing.T) {
	type update struct {
		Agent, Version, K  int
		G                  []json.RawMessage
		Refused            string
		Bound              *float64
		Used, Theta, Tilde []float64
	}
	type testCase struct {
		Clip     float64
		MaxDelay int `json:"max_delay"`
		Const    struct{ Alpha, Eta float64 }
		Updates  []update
	}
	for _, c := range oracle[testCase](t, "guard") {
		s := NewAFedPG(make([]float64, 3), Schedule{Constant, c.Const.Alpha, c.Const.Eta})
		guard := &Guard{Length: 3, Clip: c.Clip, MaxDelay: c.MaxDelay}
		for i, u := range c.Updates {
			name := "update " + strconv.Itoa(i)
			v := guard.Check(u.Agent, u.Version, s.K, parseNumbers(t, u.G))
			if v.Reason != u.Refused {
				t.Fatalf("%s: refused for %q (%s), want %q", name, v.Reason, v.Detail, u.Refused)
			}
			if u.Refused == "" {
				guard.Record(u.Agent, u.Version, s.K, v.Norm)
				s.Step(v.Used, u.Version)
				nearAll(t, name+" used", v.Used, u.Used)
			}
			if (u.Bound != nil) != (v.Bound > 0) {
				t.Errorf("%s: bound %g, want %v", name, v.Bound, u.Bound)
			} else if u.Bound != nil {
				near(t, name+" bound", v.Bound, *u.Bound)
			}
			if s.K != u.K {
				t.Errorf("%s: version %d, want %d", name, s.K, u.K)
			}
			nearAll(t, name+" theta", s.Theta, u.Theta)
			nearAll(t, name+" tilde", s.Tilde, u.Tilde)
		}
	}
}

// parseNumbers reads numbers, and the strings "nan" and "inf".
func parseNumbers(t *testing.T, raw []json.RawMessage) []float64 {
	t.Helper()
	out := make([]float64, len(raw))
	for j, r := range raw {
		text := string(r)
		if text[0] == '"' {
			text = text[1 : len(text)-1]
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		out[j] = x
	}
	return out
}
