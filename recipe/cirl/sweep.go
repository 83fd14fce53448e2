package cirl

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/sweep"
)

// Sweep is this recipe as a sweep sees it. Runs are compared by their test after training.
var Sweep = sweep.Register(sweep.Recipe[Options]{
	Spec: Spec,
	Dir:  func(o *Options) *recipe.RunDir { return &o.Dir },
	Run: func(ctx context.Context, o Options, r run.Reporter) error {
		_, err := Run(ctx, o, r)
		return err
	},
	Check: checkSweep,
	Read:  readTest,
})

func checkSweep(o *Options) error {
	if o.Data.hasTest() {
		return nil
	}
	return fault.Fault{Key: sweep.Flag, Value: "data.test_fraction 0",
		Problem: "runs are compared by their tests: want a number above 0, or data.test"}
}

// readTest reads the test after training from summary.json.
func readTest(dir string) (steps int, measures []sweep.Measure, err error) {
	path := filepath.Join(dir, "summary.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, nil, err
	}
	var s struct {
		Steps int
		Test  struct {
			After *struct {
				All struct{ Integrity, Utility, Complete, Reward sweep.Estimate }
			}
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return 0, nil, fmt.Errorf("%s: %w", path, err)
	}
	if s.Test.After == nil {
		return 0, nil, fmt.Errorf("%s: it has no test after training", path)
	}
	all := s.Test.After.All
	return s.Steps, []sweep.Measure{{Name: "integrity", Estimate: all.Integrity}, {Name: "utility",
		Estimate: all.Utility}, {Name: "complete", Estimate: all.Complete}, {Name: "reward", Estimate: all.Reward}}, nil
}
