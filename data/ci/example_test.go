package ci_test

import (
	"fmt"

	"github.com/posttrain/posttrain/data/ci"
)

// A synthetic scenario with its prompt and its ideal completion, both in the attribute order of seed 5.
func ExampleSynthesize() {
	item := ci.Synthesize(2, 1)[1]
	fmt.Println(ci.Prompt(item, ci.PromptCompact, 5)[0].Content)
	fmt.Println(ci.Reference(item, 5))
	fmt.Printf("required %q, restricted %q\n", item.Required(), item.Restricted())
	// Output:
	// Hospitality. Message the hotel desk to book a room.
	// - my PIN is 4929
	// - the amount is $980
	// - this is Bedra Holden
	// - my phone is 34-9061
	// Think about what fits, then answer.
	// <think> 4929 does not fit; $980 fits; Bedra Holden fits; 34-9061 fits.</think>
	// <answer> Hello, I want to book a room: the amount is $980, this is Bedra Holden, my phone is 34-9061.</answer>
	// required ["Bedra Holden" "34-9061" "$980"], restricted ["4929"]
}
