package losses_test

import (
	"fmt"

	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/losses"
)

// One pair on the host: the policy has raised the chosen response by 2 and lowered the rejected one by 1. Its reward
// gap of 0.5 halves the rejected response's gradient.
func ExampleOptions_Host() {
	out, err := losses.Defaults(losses.DPO).Host(losses.Batch{
		PolicyChosen: []float64{-10}, ReferenceChosen: []float64{-12}, ChosenLengths: []float64{4},
		PolicyRejected: []float64{-20}, ReferenceRejected: []float64{-19}, RejectedLengths: []float64{5},
		RewardGap: []float64{0.5},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("loss %.4f, gradients %.4f and %.4f\n", out.Loss[0], out.GradChosen[0], out.GradRejected[0])
	fmt.Printf("implicit rewards %.1f and %.1f\n", out.ChosenRewards[0], out.RejectedRewards[0])
	// Output:
	// loss 0.5759, gradients -0.0438 and 0.0219
	// implicit rewards 0.2 and -0.1
}

// The same kind of loss as a graph: log-probabilities of two pairs in, their losses out.
func ExampleOptions_Graph() {
	o := losses.Defaults(losses.SimPO)
	o.Prior = losses.None
	engine, err := gobackend.New("")
	if err != nil {
		fmt.Println(err)
		return
	}
	loss, err := graph.CallOnce(engine, func(chosen, rejected, lengths *graph.Node) *graph.Node {
		in := losses.Inputs{PolicyChosen: chosen, PolicyRejected: rejected, ChosenLengths: lengths,
			RejectedLengths: lengths}
		return o.Graph(in)
	}, []float32{-10, -8}, []float32{-20, -6}, []float32{4, 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.3f\n", loss.Value())
	// Output: [1.137 1.350]
}

func ExampleOptions_Describe() {
	fmt.Print(losses.Defaults(losses.DPO).Describe())
	// Output: objective: MaPPO-DPO, the mean over pairs of
	//   loss = -log σ(0.1·A - Δr·0.1·B)
	//   yw, yl: chosen and rejected response; |y|: its tokens; logπ(y): sum of their log-probabilities
	//   A = logπ(yw) - logπref(yw), B = logπ(yl) - logπref(yl)
	//   Δr = r(yw) - r(yl), the prior's reward gap; rewards in [0,1]
	//   as long as policy = reference every reward is 0 and the loss is 0.693147 (ln 2)
}
