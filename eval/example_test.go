package eval_test

import (
	"fmt"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/reward"
)

// Two scenarios are answered ideally, and one of them once more without the format.
func ExampleNewReport() {
	items := ci.Synthesize(2, 1)
	var samples []eval.Sample
	for i := range items {
		answer := ci.Reference(items[i], 0)
		samples = append(samples, eval.Score(i, &items[i], answer, false, reward.DefaultOptions()))
	}
	samples = append(samples, eval.Score(1, &items[1], "I would rather not say.", false, reward.DefaultOptions()))
	all := eval.NewReport(samples).All
	fmt.Println("complete   ", all.Complete.Share())
	fmt.Println("format kept", all.Format.Share())
	// Output:
	// complete     66.7% (2/3, 95% interval 20.8 to 93.9)
	// format kept  66.7% (2/3, 95% interval 20.8 to 93.9)
}
