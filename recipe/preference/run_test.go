package preference

import (
	"context"
	"strings"
	"testing"
)

// Options that a program makes are checked as those of a user are.
func TestRunChecksItsOptions(t *testing.T) {
	o := Defaults("dpo")
	o.Loss.Type, o.Train.LearningRate = "dop", -1
	_, err := Run(context.Background(), o, nil)
	for _, want := range []string{"options: model is missing", "options: data.train is missing",
		"options: loss.type dop: want dpo, ipo, simpo or cpo",
		"options: train.learning_rate -1: want a number above 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
