package ci

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// The values of the release.
var (
	Scenarios  = []string{"email", "chat messages"}
	Principles = []string{confidentiality, proportionality, consent}
)

// Plan lists the values that seeds are drawn from, as evenly as whole numbers can.
type Plan struct {
	Domains    []string `yaml:"domains" default:"Hospitality,Healthcare,Entertainment,Finance,eCommerce,Education,Government,Family,Friends,Work" words:"names, each once" flag:"domains" help:"domains of seeds"`
	Principles []string `yaml:"principles" want:"Confidentiality|Proportionality|Consent" default:"Confidentiality,Proportionality,Consent" flag:"principles" help:"transmission principles of seeds"`
	Scenarios  []string `yaml:"scenarios" want:"email|chat messages" default:"email,chat messages" flag:"scenarios" help:"scenarios of seeds"`
}

// Check names every fault of the plan.
func (p Plan) Check() (faults fault.Faults) {
	for _, d := range p.Domains {
		if strings.TrimSpace(d) == "" {
			faults.Add("domains", p.Domains, "want names that are not empty")
		}
	}
	if len(p.Domains) == 0 {
		faults.Add("domains", p.Domains, "want one at least")
	}
	return faults
}

// Draw draws n seeds, with scenario, domain and principle alone.
func (p Plan) Draw(n int, seed uint64) []Seed {
	rng, seeds := rand.New(rand.NewPCG(seed, 0x7365656473)), make([]Seed, n)
	deal := func(values []string, set func(s *Seed, value string)) {
		values, list := slices.Clone(values), make([]string, n)
		rng.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
		for i := range list {
			list[i] = values[i%len(values)]
		}
		rng.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
		for i, value := range list {
			set(&seeds[i], value)
		}
	}
	deal(p.Domains, func(s *Seed, value string) { s.Domain = value })
	deal(p.Principles, func(s *Seed, value string) { s.TransmissionPrinciple = value })
	deal(p.Scenarios, func(s *Seed, value string) { s.Scenario = value })
	return seeds
}
