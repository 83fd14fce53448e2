package ci

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// The values that seeds are drawn from.
var (
	Scenarios  = []string{"email", "chat messages"}
	Principles = []string{confidentiality, proportionality, consent}
	Domains    = []string{"Hospitality", "Healthcare", "Entertainment", "Finance", "eCommerce", "Education",
		"Government", "Family", "Friends", "Work"}
)

// Plan lists the values that seeds are drawn from. A value such as Finance=20 has a quota, its number of seeds. The
// values without one share the other seeds as evenly as whole numbers can.
type Plan struct {
	Domains    []string `yaml:"domains" words:"names, each with a quota (Finance=20) or without" flag:"domains" help:"domains of seeds, with quotas or without"`
	Principles []string `yaml:"principles" words:"names, each with a quota (Consent=20) or without" flag:"principles" help:"principles of seeds, as --domains"`
	Scenarios  []string `yaml:"scenarios" words:"email and chat messages, each with a quota (email=20) or without" flag:"scenarios" help:"scenarios of seeds, as --domains"`
}

// DefaultPlan has all values without quotas.
func DefaultPlan() Plan { return Plan{Domains, Principles, Scenarios} }

// Draw draws n seeds, with scenario, domain and principle alone. fits says which principles a domain can have; nil:
// all. An error is a fault of a field of the plan.
func (p Plan) Draw(n int, seed uint64, fits func(domain, principle string) bool) ([]Seed, error) {
	rng := rand.New(rand.NewPCG(seed, 0x7365656473))
	var drawn [3][]string
	for i, list := range []struct {
		key           string
		values, known []string
	}{{"domains", p.Domains, nil}, {"principles", p.Principles, Principles}, {"scenarios", p.Scenarios, Scenarios}} {
		var err error
		if drawn[i], err = deal(list.values, list.known, n, rng); err != nil {
			return nil, fault.Fault{Key: list.key, Value: strings.Join(list.values, ","), Problem: err.Error()}
		}
	}
	domains, principles, scenarios := drawn[0], drawn[1], drawn[2]
	for _, d := range domains {
		fitting := func(principle string) bool { return fits == nil || fits(d, principle) }
		if !slices.ContainsFunc(Principles, fitting) {
			return nil, fault.Fault{Key: "domains", Value: fmt.Sprintf("%q", d), Problem: "the templates have no " +
				"task of this domain: want some of " + strings.Join(Domains, ", ") + ", or a model that writes"}
		}
	}
	if fits != nil && !match(domains, principles, fits) {
		return nil, fault.Fault{Key: "principles", Value: strings.Join(p.Principles, ","), Problem: fmt.Sprintf(
			"the quotas cannot be met: of %d seeds, more have a principle than have domains with tasks for it (%s)", n,
			rare(domains, fits))}
	}
	seeds := make([]Seed, n)
	for i := range seeds {
		seeds[i] = Seed{Scenario: scenarios[i], Domain: domains[i], TransmissionPrinciple: principles[i]}
	}
	return seeds, nil
}

// rare lists the domains of the principles that do not fit every domain.
func rare(domains []string, fits func(domain, principle string) bool) string {
	var parts []string
	names := slices.Compact(slices.Sorted(slices.Values(domains)))
	for _, principle := range Principles {
		all := slices.DeleteFunc(slices.Clone(names), func(d string) bool { return !fits(d, principle) })
		if len(all) < len(names) {
			parts = append(parts, fmt.Sprintf("%s: %s", principle, cmp.Or(strings.Join(all, ", "), "nowhere")))
		}
	}
	return strings.Join(parts, "; ")
}

// deal lists n values in random order, by their quotas. known are the values accepted; nil: any.
func deal(values, known []string, n int, rng *rand.Rand) (list []string, err error) {
	var open []string
	seen := map[string]bool{}
	for _, value := range values {
		name, quota, limited := strings.Cut(value, "=")
		name = strings.TrimSpace(name)
		number, err := strconv.Atoi(strings.TrimSpace(quota))
		switch {
		case name == "":
			return nil, fmt.Errorf("%q: want a name, or a name with a quota, such as %s=20", value, Domains[0])
		case known != nil && !slices.Contains(known, name):
			return nil, fmt.Errorf("%q: want some of %s", name, strings.Join(known, ", "))
		case seen[name]:
			return nil, fmt.Errorf("%s is there twice", name)
		case limited && (err != nil || number < 0):
			return nil, fmt.Errorf("%s has the quota %q: want a whole number, 0 or more", name, quota)
		case !limited:
			open = append(open, name)
		case len(list)+number > n:
			return nil, fmt.Errorf("the quotas cannot be met: up to %s they are %d seeds, and n is %d", name,
				len(list)+number, n)
		}
		seen[name] = true
		list = append(list, slices.Repeat([]string{name}, number)...)
	}
	rest := n - len(list)
	switch {
	case len(values) == 0:
		return nil, errors.New("want one value at least")
	case rest > 0 && len(open) == 0:
		return nil, fmt.Errorf("the quotas cannot be met: they are %d seeds, and n is %d: want a value without a "+
			"quota, which gets the others", len(list), n)
	}
	rng.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for i := range rest {
		list = append(list, open[i%len(open)])
	}
	rng.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list, nil
}

// match exchanges principles until each fits its domain, and says whether that succeeded. One exchange at a time is
// enough where a single principle does not fit everywhere.
func match(domains, principles []string, fits func(domain, principle string) bool) bool {
	for i := range domains {
		if fits(domains[i], principles[i]) {
			continue
		}
		j := 0
		for j < len(domains) && !(fits(domains[i], principles[j]) && fits(domains[j], principles[i])) {
			j++
		}
		if j == len(domains) {
			return false
		}
		principles[i], principles[j] = principles[j], principles[i]
	}
	return true
}

// ReadSeeds reads seeds from a .json, .jsonl or .parquet file, each also with .gz: objects with the fields of a Seed,
// as in the seeds of the release, or items, whose field seed is taken. A seed has scenario, domain and
// transmission_principle at least. One with all of its fields is a whole vignette; information_type without the others
// is an error.
func ReadSeeds(path string) ([]Seed, *data.Report, error) {
	columns := slices.Sorted(maps.Keys(seedFields(Seed{})))
	in := data.JSONRows(nil, path, append(columns, "information_type", "seed")...)
	return data.Collect(path, in, func(r data.Row, _ *data.Report) (Seed, string, error) {
		var row struct {
			Seed
			Inner *Seed `json:"seed"`
		}
		if err := data.Unmarshal(r.Text, &row); err != nil {
			return Seed{}, "", err
		}
		if row.Inner != nil {
			row.Seed = *row.Inner
		}
		return row.Seed, "", row.Seed.check()
	})
}

// seedFields are the texts of a seed by their names.
func seedFields(s Seed) map[string]string {
	return map[string]string{"scenario": s.Scenario, "domain": s.Domain, "user_intention": s.UserIntention,
		"sender": s.Sender, "recipient": s.Recipient, "data_subject": s.DataSubject,
		"transmission_principle": s.TransmissionPrinciple}
}

// check names a field that is missing.
func (s Seed) check() error {
	fields := seedFields(s)
	need := []string{"scenario", "domain", "transmission_principle"}
	if len(s.InformationType.Allowed)+len(s.InformationType.Disallowed) > 0 {
		need = slices.Sorted(maps.Keys(fields))
	}
	for _, name := range need {
		if strings.TrimSpace(fields[name]) == "" {
			return fmt.Errorf("%s is missing or empty: want scenario, domain and transmission_principle, and with "+
				"information_type all fields of a seed", name)
		}
	}
	if !s.IsVignette() && len(need) > 3 {
		return errors.New("information_type has one of allowed and disallowed: want both, or neither")
	}
	return nil
}

// IsVignette reports whether a seed has both lists of information, so that an item can be written from it.
func (s Seed) IsVignette() bool {
	return len(s.InformationType.Allowed) > 0 && len(s.InformationType.Disallowed) > 0
}
