package ci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// counts counts the values of seeds.
func counts(seeds []Seed) map[string]int {
	all := map[string]int{}
	for _, s := range seeds {
		all[s.Domain]++
		all[s.TransmissionPrinciple]++
		all[s.Scenario]++
	}
	return all
}

// TestDraw: quotas are met exactly, the other values share what is left, and the seed alone decides the order.
func TestDraw(t *testing.T) {
	plan := Plan{Domains: []string{"Work=30", "Finance", "Space", "Family = 0"}, Principles: []string{"Consent=7",
		"Confidentiality"}, Scenarios: []string{"email"}}
	seeds, err := plan.Draw(41, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := counts(seeds)
	if got["Work"] != 30 || got["Finance"]+got["Space"] != 11 || max(got["Finance"], got["Space"]) != 6 ||
		got["Family"] != 0 || got["Consent"] != 7 || got["Confidentiality"] != 34 || got["email"] != 41 {
		t.Error(got)
	}
	again, _ := plan.Draw(41, 3, nil)
	other, _ := plan.Draw(41, 4, nil)
	if !reflect.DeepEqual(seeds, again) || reflect.DeepEqual(seeds, other) {
		t.Error("the seed does not decide")
	}
	seeds, err = DefaultPlan().Draw(60, 1, CanCompose)
	if err != nil {
		t.Fatal(err)
	}
	for value, n := range counts(seeds) {
		if want := map[int]bool{6: true, 20: true, 30: true}; !want[n] {
			t.Errorf("%s: %d", value, n)
		}
	}
	for _, s := range seeds {
		if !CanCompose(s.Domain, s.TransmissionPrinciple) {
			t.Errorf("%+v", s)
		}
	}
}

// TestQuotasThatCannotBeMet: one line each, with the field, the numbers and what is accepted.
func TestQuotasThatCannotBeMet(t *testing.T) {
	for _, c := range []struct {
		change func(p *Plan)
		says   []string
	}{
		{func(p *Plan) { p.Domains = []string{"Work=30", "Family=11", "Finance"} },
			[]string{"domains Work=30,Family=11,Finance: the quotas cannot be met: up to Family they are 41 seeds, and n is 40"}},
		{func(p *Plan) { p.Principles = []string{"Consent=30"} },
			[]string{"principles Consent=30: the quotas cannot be met: they are 30 seeds, and n is 40"}},
		{func(p *Plan) { p.Scenarios = []string{"letter"} }, []string{`scenarios letter: "letter": want some of email`}},
		{func(p *Plan) { p.Domains = []string{"Work", "Work=2"} }, []string{"Work is there twice"}},
		{func(p *Plan) { p.Domains = []string{"Work=many"} }, []string{`Work has the quota "many": want a whole number`}},
		{func(p *Plan) { p.Domains = []string{"Work=-1"} }, []string{`Work has the quota "-1"`}},
		{func(p *Plan) { p.Domains = []string{"=3"} }, []string{`"=3": want a name`}},
		{func(p *Plan) { p.Domains = nil }, []string{"want one value at least"}},
		{func(p *Plan) { p.Domains = []string{"Space"} }, []string{`domains "Space": the templates have no task`}},
		{func(p *Plan) {
			p.Domains, p.Principles = []string{"Work=9", "Finance"}, []string{"Consent=10", "Proportionality"}
		},
			[]string{"the quotas cannot be met: of 40 seeds, more have a principle than have domains with tasks for it " +
				"(Consent: Work)"}},
	} {
		plan := DefaultPlan()
		c.change(&plan)
		_, err := plan.Draw(40, 1, CanCompose)
		wantError(t, err, c.says...)
	}
	if _, err := (Plan{[]string{"Work=9", "Finance"}, []string{"Consent=9", "Proportionality"}, Scenarios}).Draw(40, 1,
		CanCompose); err != nil {
		t.Errorf("quotas that can just be met: %v", err)
	}
}

// TestCompose: an item has the seed's scenario, domain and principle, and is the same for the same number.
func TestCompose(t *testing.T) {
	for i, domain := range Domains {
		for _, principle := range Principles {
			for j, scenario := range Scenarios {
				s := Seed{Scenario: scenario, Domain: domain, TransmissionPrinciple: principle}
				item, ok := Compose(s, uint64(i), j == 1)
				if ok != CanCompose(domain, principle) {
					t.Fatalf("%+v: %v", s, ok)
				}
				if !ok {
					continue
				}
				again, _ := Compose(item.Seed, uint64(i), j == 1)
				if got := item.Seed; got.Scenario != scenario || got.Domain != domain ||
					got.TransmissionPrinciple != principle || len(item.Oddities()) > 0 || !reflect.DeepEqual(item, again) {
					t.Errorf("%+v %v", item, item.Oddities())
				}
			}
		}
	}
}

func TestReadSeeds(t *testing.T) {
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	items := Synthesize(3, 1)
	whole, _ := json.Marshal(items[0].Seed)
	bare := `{"scenario":"email","domain":"Work","transmission_principle":"Consent"}`
	seeds, report, err := ReadSeeds(write("seeds.json", fmt.Sprintf("[%s,%s]", whole, bare)))
	if err != nil || report.Kept != 2 || !reflect.DeepEqual(seeds[0], items[0].Seed) || !seeds[0].IsVignette() ||
		seeds[1].IsVignette() || seeds[1].Domain != "Work" {
		t.Errorf("%+v, %v", seeds, err)
	}
	for _, name := range []string{"items.jsonl", "items.parquet"} {
		path := filepath.Join(t.TempDir(), name)
		if err := Write(path, items); err != nil {
			t.Fatal(err)
		}
		if seeds, _, err = ReadSeeds(path); err != nil || len(seeds) != 3 || !reflect.DeepEqual(seeds[2], items[2].Seed) {
			t.Errorf("%s: %+v, %v", name, seeds, err)
		}
	}
	for text, says := range map[string]string{
		strings.Replace(bare, "domain", "field", 1):                             "domain is missing or empty",
		strings.Replace(bare, "}", `,"information_type":{"allowed":["a"]}}`, 1): "data_subject is missing or empty",
		strings.Replace(string(whole), `"disallowed"`, `"neither"`, 1):          "one of allowed and disallowed: want both",
		strings.Replace(bare, `"Work"`, `["Work"]`, 1):                          "domain",
	} {
		_, _, err := ReadSeeds(write("seeds.jsonl", bare+"\n"+text+"\n"))
		wantError(t, err, "seeds.jsonl:2: ", says)
	}
}
