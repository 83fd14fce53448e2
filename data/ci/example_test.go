package ci_test

import (
	"fmt"

	"github.com/posttrain/posttrain/data/ci"
)

// A synthetic scenario with its prompt and its ideal completion, both in the attribute order of seed 5.
func ExampleSynthesize() {
	item := ci.Synthesize(8, 1)[7]
	fmt.Println(ci.Prompt(item, ci.PromptCompact, 5)[0].Content)
	fmt.Println(ci.Reference(item, 5))
	fmt.Printf("required %q, restricted %q\n", item.Required(), item.Restricted())
	// Output:
	// Finance. Email the card service to report a lost card.
	// - my phone is 36-4572
	// - best on March 22
	// - I had a fight with Dalo
	// - my account is FH-587
	// - the card PIN is 7833
	// Think about what fits, then answer.
	// <think> 36-4572 fits; March 22 fits; Dalo does not fit; FH-587 fits; 7833 does not fit.</think>
	// <answer> Hello, I want to report a lost card: my phone is 36-4572, best on March 22, my account is FH-587.</answer>
	// required ["FH-587" "March 22" "36-4572"], restricted ["7833" "Dalo"]
}
