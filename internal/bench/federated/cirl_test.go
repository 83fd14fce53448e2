package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
)

// TestComparison: a small E4 gives its table, and a second time from the file alone.
func TestComparison(t *testing.T) {
	c := comparison{Agents: 2, Budget: 64, Items: 4, Seeds: 1, Arms: []string{before, alone, protocol.AFedPG},
		Runs: filepath.Join(t.TempDir(), "runs.jsonl"), Setting: []string{"ci_rl.backend=go", "ci_rl.data.scenarios=200",
			"ci_rl.sampling.max_new_tokens=4", "ci_rl.grpo.prompts_per_step=2", "ci_rl.grpo.group_size=2"}}
	var first, second, progress bytes.Buffer
	if err := c.measure(t.Context(), &first, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := c.measure(t.Context(), &second, &progress); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() || progress.Len() > 0 {
		t.Errorf("%s\nand from the file\n%s%s", &first, &second, &progress)
	}
	for _, want := range []string{"| before | equal | 1–1 | 1 |", "| alone | equal", "| afedpg | dirichlet | 1–1",
		"| afedpg | equal | 1–4", "intervals apart: "} {
		if !strings.Contains(first.String(), want) {
			t.Errorf("%s\nwant %q", &first, want)
		}
	}
}

// TestComparisonSettings: every arm's settings are a run's, and all arms draw as many completions.
func TestComparisonSettings(t *testing.T) {
	c := comparison{Agents: 8, Budget: 7680, Seeds: 3, Arms: append(otherArms, mainArms...)}
	for _, r := range c.trainings() {
		o, err := c.options(r)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		drawn := o.CIRL.GRPO.Prompts * o.CIRL.GRPO.GroupSize
		if o.Rounds != nil {
			drawn *= *o.Rounds * o.Agents
		} else {
			drawn *= *o.Updates
		}
		if own := r.Arm == protocol.AFedPG || r.Arm == protocol.FedPG || r.Arm == protocol.Vanilla; own !=
			(o.Rule != nil && *o.Rule == protocol.Normalized) {
			t.Errorf("%+v: the rule %v", r, o.Rule)
		}
		if drawn != c.Budget {
			t.Errorf("%+v draws %d completions, want %d", r, drawn, c.Budget)
		}
	}
}

// TestInterval95: two models whose rewards are all 0 and all 1 have a mean of 0.5 and nothing certain.
func TestInterval95(t *testing.T) {
	low, high := interval95([]trained{{Rewards: [][]float64{{0, 0}, {1, 1}}}})
	if low != 0 || high != 1 {
		t.Errorf("interval %v to %v, want 0 to 1", low, high)
	}
	if low, high = interval95([]trained{{Rewards: [][]float64{{0.5}}}}); low != 0.5 || high != 0.5 {
		t.Errorf("interval %v to %v of equal rewards", low, high)
	}
}
