package eval_test

import (
	"fmt"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
)

// Two scenarios are answered ideally, and one of them once more without the format.
func ExampleReport() {
	items := ci.Synthesize(2, 1)
	var report eval.Report
	add := func(i int, text string) {
		a := ask.Answer{To: &ask.Question{Item: &items[i]}, Completion: rollout.Completion{Text: text}}
		report.Add(eval.SampleOf(i, a, reward.DefaultOptions()))
	}
	for i := range items {
		add(i, ci.Reference(items[i], 0))
	}
	add(1, "I would rather not say.")
	all := report.All
	fmt.Println("complete   ", all.Complete.Share())
	fmt.Println("format kept", all.Format.Share())
	// Output:
	// complete     66.7% (2/3, 95% interval 20.8 to 93.9)
	// format kept  66.7% (2/3, 95% interval 20.8 to 93.9)
}
