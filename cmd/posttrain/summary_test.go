package main

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// TestVerdict reads the two curves in words.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		chosen, rejected float64 // at the end; both began at -10
		says             string
	}{
		{-12, -15, "Both sank: the squeezing effect."},
		{-9, -15, "more likely and the rejected ones less"},
		{-9, -8, "Both rose"},
		{-10, -10, "Neither moved"},
		{-12, -8, "sank while the rejected rose"},
	} {
		got := verdict(change{first: -10, last: c.chosen}, change{first: -10, last: c.rejected})
		if !strings.Contains(got, c.says) {
			t.Errorf("chosen to %v, rejected to %v: %q, want %q", c.chosen, c.rejected, got, c.says)
		}
	}
}

// TestChangeOf: held-out measurements win over batches, whose ends are means of a tenth of the run.
func TestChangeOf(t *testing.T) {
	var records []run.Record
	for step := range 20 {
		records = append(records, run.Record{Step: step + 1, Values: map[string]float64{"loss": float64(step)}})
	}
	if c := changeOf(records, "loss"); !c.known || c.held || c.first != 0.5 || c.last != 18.5 || c.direction() != "rose" {
		t.Errorf("%+v, want 0.5 to 18.5", c)
	}
	for _, v := range []float64{3, 9, 2} {
		records = append(records, run.Record{Values: map[string]float64{"eval_loss": v}})
	}
	if c := changeOf(records, "loss"); !c.held || c.first != 3 || c.last != 2 || c.direction() != "sank" {
		t.Errorf("%+v, want 3 to 2 on held-out examples", c)
	}
	if c := changeOf(records, "logps/chosen"); c.known {
		t.Errorf("%+v of nothing", c)
	}
}

func TestOnTraining(t *testing.T) {
	var records []run.Record
	for step := 1; step <= 20; step++ { // the last two steps count: chosen 0.3 and 0.5, rejected -1 and -2
		v := map[string]float64{"rewards/chosen": -9, "rewards/rejected": 9}
		if step == 19 {
			v = map[string]float64{"rewards/chosen": 0.3, "rewards/rejected": -1}
		} else if step == 20 {
			v = map[string]float64{"rewards/chosen": 0.5, "rewards/rejected": -2}
		}
		records = append(records, run.Record{Step: step, Values: v})
	}
	want := "log p(chosen) rose by 4.00, log p(rejected) sank by 15.00 on the training pairs (last tenth of the steps).\n"
	if got := onTraining(records, 0.1); !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := onTraining(records, 0) + onTraining(records[:19], 0.1); got != "" {
		t.Errorf("%q without a reference or with few steps, want nothing", got)
	}
}

// TestAccuracy: of held-out pairs the counts and the Wilson interval (by hand 46.0 to 84.6), of batches the mean.
func TestAccuracy(t *testing.T) {
	heldOut := &train.Examples{Groups: make([]batch.Group, 19)}
	c := change{last: 13.0 / 19, held: true}
	if got, want := accuracy(c, heldOut), "68.4% (13/19, 95% interval 46.0 to 84.6)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.held = false
	if got := accuracy(c, heldOut); got != "0.684" {
		t.Errorf("%q of batches, want 0.684", got)
	}
}
