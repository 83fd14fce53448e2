package protocol

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// number reads "nan" and "inf" too.
type anyNumber float64

func (n *anyNumber) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		x, err := strconv.ParseFloat(text, 64)
		*n = anyNumber(x)
		return err
	}
	return json.Unmarshal(b, (*float64)(n))
}

func floats(v []anyNumber) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// near fails where a vector is not the oracle's.
func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i, x := range want {
		if !(math.Abs(got[i]-x) <= 1e-9*max(1, math.Abs(x))) {
			t.Fatalf("%s[%d] = %v, want %v", what, i, got[i], x)
		}
	}
}

type constants struct{ Alpha, Eta float64 }

// momentumOptions are the options of an oracle's schedule.
func momentumOptions(method, kind string, agents int, c constants) Options {
	o := Defaults(method)
	o.Agents, o.Wire, o.Rate, o.LR, o.Schedule = agents, "float64", new("published"), &c.Eta, &kind
	if o.Alpha = nil; kind == "constant" {
		o.Alpha = &c.Alpha
	}
	return o
}

// TestOracleAFedPG gives the server the oracle's gradients in its order.
func TestOracleAFedPG(t *testing.T) {
	var cases []struct {
		Kind     string
		Const    constants
		Theta0   []float64
		Arrivals []struct {
			K, Version, Delay  int
			Alpha, Eta, Norm   float64
			D, G, Theta, Tilde []float64
		}
	}
	need.Oracle(t, "federated.json", "afedpg", &cases)
	for _, c := range cases {
		o := momentumOptions(AFedPG, c.Kind, 100, c.Const)
		o.Clip = 0
		s := expect.Must(NewServer(o, c.Theta0, 0))(t)
		for i, a := range c.Arrivals {
			if maxAbs(a.G) == 0 {
				break // the guard refuses such a gradient
			}
			s.Join(i)
			r, sends := s.Receive(Update{Agent: i, Kind: Gradient, Version: a.Version, Vectors: [][]float64{a.G}})
			if !r.Stepped || r.Metrics["delay"] != float64(a.Delay) {
				t.Fatalf("%s, arrival %d: %+v", c.Kind, i, r)
			}
			near(t, c.Kind+" theta", s.Params(), a.Theta)
			near(t, c.Kind+" tilde", sends[0].Task.Params, a.Tilde)
		}
	}
}

func maxAbs(v []float64) (m float64) {
	for _, x := range v {
		m = max(m, math.Abs(x))
	}
	return m
}

// TestOracleGuard: every refusal, bound and step.
func TestOracleGuard(t *testing.T) {
	var cases []struct {
		Clip     float64
		MaxDelay int `json:"max_delay"`
		Const    constants
		Updates  []struct {
			Agent, Version, K int
			G                 []anyNumber
			Refused           string
			Bound             *float64
			Theta, Tilde      []float64
		}
	}
	need.Oracle(t, "federated.json", "guard", &cases)
	for _, c := range cases {
		o := momentumOptions(AFedPG, "constant", 10, c.Const)
		o.Clip, o.MaxDelay = c.Clip, &c.MaxDelay
		s := expect.Must(NewServer(o, make([]float64, len(c.Updates[0].G)), 0))(t)
		for i, u := range c.Updates {
			s.Join(u.Agent)
			r, _ := s.Receive(Update{Agent: u.Agent, Kind: Gradient, Version: u.Version,
				Vectors: [][]float64{floats(u.G)}})
			if r.Reason != u.Refused || s.Version() != u.K || r.Accepted != (u.Refused == "") {
				t.Fatalf("update %d: %+v at %d, want %q at %d", i, r, s.Version(), u.Refused, u.K)
			}
			if r.Bound > 0 {
				near(t, "bound", []float64{r.Bound}, []float64{*u.Bound})
			}
			near(t, "theta", s.Params(), u.Theta)
		}
	}
}
