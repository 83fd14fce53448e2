package federated

import (
	"fmt"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// With secure, what needs single updates is off by default, and refused where it was asked for.
func TestSecureOptions(t *testing.T) {
	parse := func(text string) (*Simulation, error) {
		return Spec.Parse("f.yaml", []byte("command: federated simulate\nsecure: true\n"+text), config.Input{})
	}
	s := expect.Must(parse("method: fednpg-admm\nprivacy: {clip: 1, noise: 4}\n"))(t)
	if s.Clip != 0 || *s.Absent != "drop" || *s.LineSearch != "off" || s.Privacy.Delta != 1e-5 {
		t.Errorf("%+v", s.Options.Options)
	}
	if s, err := parse("method: fedavg\nprivacy: {clip: 1, noise: 4}\n"); err != nil || *s.Weights != "equal" {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"method: fedpg\nclip: 3\n":             "f.yaml:4: clip 3: the server sees no single update",
		"method: afedpg\n":                     "f.yaml:2: secure true: afedpg steps on single updates",
		"method: fedpg\nprivacy: {noise: 4}\n": "privacy.clip 0: privacy.noise is in units of it",
		"method: fedpg\nprivacy: {delta: 1}\n": "want",
		"method: fednpg-admm\nabsent: hold\n":  "with secure the server has no single update to hold",
	} {
		_, err := parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Agents of a simulation can make secure sums, and equal seeds make equal messages.
func TestSimulatedSecrets(t *testing.T) {
	o := config.Default[Options]()
	o.Options, o.Workload = protocol.Defaults("fedpg"), Quadratic
	o.Secure, o.Clip = true, 0
	key := func(agent int, seed uint64) string {
		o.Seed = seed
		a := expect.Must(o.NewAgent(agent))(t)
		s, _, err := o.NewServer()
		expect.OK(t, err)
		_, sends := s.Join(agent)
		u := expect.Must(a.Do(t.Context(), sends[0].Task))(t)
		return string(u.Key)
	}
	if first := key(0, 1); first != key(0, 1) || first == key(1, 1) || first == key(0, 2) {
		t.Error("keys: want those of a seed and an agent")
	}
}

// The summary has the account of the sums, and explain says ahead what it will be.
func TestPrivacyIsSaid(t *testing.T) {
	s := tiny(t, protocol.FedPG, "secure=true", "privacy.clip=1", "privacy.noise=4", "privacy.delta=1e-5")
	// ρ = 5/32, ε = ρ + 2·√(ρ·11.513) = 0.1563 + 2.6824
	const want = "privacy of an agent: ε = 2.839 at δ = 1e-05 (ρ = 0.1562, 5 sums)"
	if text := s.Explain(); !strings.Contains(text, "at the end, "+want) || !strings.Contains(text, "secure sums: ") {
		t.Error(text)
	}
	r, err := Run(t.Context(), s, nil)
	if err != nil || !strings.Contains(r.Summary, want+". Steps, episodes, returns and validations are not "+
		"covered.\n") {
		t.Error(err, r)
	}
	d := parameters(t, &s)
	if sent := fmt.Sprintf("each agent sends %d bytes and is sent %d", 8*d, 4*d); !strings.Contains(s.Explain(), sent) {
		t.Errorf("%s\nwant: %s", s.Explain(), sent)
	}
}

// A simulation with secure sums reaches what it reaches without them, and agents send more bytes.
func TestSecureSimulation(t *testing.T) {
	for _, method := range []string{protocol.FedNPGADMM, protocol.FedAvg} {
		sets := []string{"clip=0"}
		if method == protocol.FedNPGADMM {
			sets = append(sets, "absent=drop")
		}
		plain := expect.Must(Run(t.Context(), tiny(t, method, sets...), nil))(t)
		secure := expect.Must(Run(t.Context(), tiny(t, method, append(sets, "secure=true")...), nil))(t)
		if a, b := plain.Sides[0], secure.Sides[0]; a.Return != b.Return || b.Up <= a.Up {
			t.Errorf("%s: %+v without secure sums, %+v with", method, a, b)
		}
	}
}
