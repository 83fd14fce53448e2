package ci

import (
	"reflect"
	"testing"
)

// TestDraw: the values share the seeds evenly, and the seed alone decides the order.
func TestDraw(t *testing.T) {
	plan := Plan{Domains: []string{"Finance", "Space"}, Principles: []string{consent, confidentiality, proportionality},
		Scenarios: []string{"email"}}
	seeds, got := plan.Draw(40, 3), map[string]int{}
	for _, s := range seeds {
		got[s.Domain]++
		got[s.TransmissionPrinciple]++
		got[s.Scenario]++
	}
	if got["Finance"] != 20 || got["Space"] != 20 || got["email"] != 40 ||
		got[consent]+got[confidentiality]+got[proportionality] != 40 || min(got[consent], got[confidentiality]) != 13 {
		t.Error(got)
	}
	if !reflect.DeepEqual(seeds, plan.Draw(40, 3)) || reflect.DeepEqual(seeds, plan.Draw(40, 4)) {
		t.Error("the seed does not decide")
	}
	for _, bad := range [][]string{nil, {"Work", " "}} {
		plan.Domains = bad
		if len(plan.Check()) != 1 {
			t.Errorf("%q: %v", bad, plan.Check())
		}
	}
}
