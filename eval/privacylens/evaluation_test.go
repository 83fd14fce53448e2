package privacylens_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/internal/embedded"
)

// Run counts the embedded example: recorded actions of twelve cases, judged by hand.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "privacylens")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	o := privacylens.Defaults()
	o.Data.Cases, o.Agent.Actions = embedded.Name, embedded.Name
	o.Judge.Kind, o.Judge.Verdicts, o.Judge.Helpfulness = privacylens.KindReplay, embedded.Name, embedded.Name

	place := bench.Place{Dir: filepath.Join(dir, "run")}
	result, err := privacylens.Run(context.Background(), o, place, nil) // nil: silent
	if err != nil {
		panic(err)
	}
	fmt.Println("leakage rate", result.Summary.All.Leakage)
	fmt.Println("adjusted    ", result.Summary.All.Adjusted)
	// Output:
	// leakage rate  41.7% (5/12, 95% interval 19.3 to 68.0)
	// adjusted      50.0% (4/8, 95% interval 21.5 to 78.5)
}
