package recipe

import (
	"context"
	"errors"
	"testing"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
)

// TestChangeOf: held-out measurements win over batches, whose ends are means of a tenth of the run.
func TestChangeOf(t *testing.T) {
	var records []run.Record
	for step := range 20 {
		records = append(records, run.Record{Step: step + 1, Values: map[string]float64{"loss": float64(step)}})
	}
	if c, known := ChangeOf(records, "loss"); !known || c.Held || c.First != 0.5 || c.Last != 18.5 ||
		c.Direction() != "rose" {
		t.Errorf("%+v, want 0.5 to 18.5", c)
	}
	for _, v := range []float64{3, 9, 2} {
		records = append(records, run.Record{Values: map[string]float64{"eval_loss": v}})
	}
	if c, _ := ChangeOf(records, "loss"); !c.Held || c.First != 3 || c.Last != 2 || c.Direction() != "sank" {
		t.Errorf("%+v, want 3 to 2 on held-out examples", c)
	}
	if c, known := ChangeOf(records, "logps/chosen"); known {
		t.Errorf("%+v of nothing", c)
	}
}

// TestEncodeIsInterrupted: Ctrl-C while data is tokenised is exit code 130, not a failure.
func TestEncodeIsInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	groups, err := Encode(ctx, &batch.Encoder{}, []int{1}, func(*batch.Encoder, int) (batch.Group, error) {
		return batch.Group{}, nil
	})
	if groups != nil || !errors.Is(err, ErrInterrupted) {
		t.Errorf("%v, error %v: want ErrInterrupted", groups, err)
	}
}

// TestAccuracy: held-out pairs give the counts and the Wilson interval (by hand 46.0 to 84.6), batches the mean.
func TestAccuracy(t *testing.T) {
	if got, want := Accuracy(13.0/19, 19), "68.4% (13/19, 95% interval 46.0 to 84.6)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Accuracy(13.0/19, 0); got != "0.684" {
		t.Errorf("%q of batches, want 0.684", got)
	}
}
