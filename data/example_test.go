package data_test

import (
	"fmt"
	"testing/fstest"

	"github.com/posttrain/posttrain/data"
)

// The prompt that stands inside both answers is split off; the scores become the prior gap.
func Example() {
	files := fstest.MapFS{"pairs.jsonl": {Data: []byte(
		`{"chosen": "Q: Is it far?\nA: No.", "rejected": "Q: Is it far?\nA: Go away.", "chosen_score": 0.75, "rejected_score": 0.25}`)}}
	pairs, report, err := data.ReadPreferencesFS(files, "pairs.jsonl", data.PreferenceOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report)
	fmt.Printf("%q | %q | %q\n", pairs[0].Prompt.Plain, pairs[0].Chosen.Plain, pairs[0].Rejected.Plain)
	_, gaps, prior, _ := data.Prior(pairs, data.DefaultRewardOptions())
	fmt.Println(prior)
	fmt.Println(gaps)
	// Output:
	// pairs.jsonl: 1 rows read, 1 kept, 1 scored (chosen_score, rejected_score)
	// "Q: Is it far?\nA:" | " No." | " Go away."
	// prior: 1 of 1 pairs, gap mean 0.500 (0.500 to 0.500)
	// [0.5]
}

// A synthetic scenario with its prompt and its ideal completion, both in the attribute order of seed 5.
func ExampleSynthesize() {
	item := data.Synthesize(8, 1)[7]
	fmt.Println(data.Prompt(item, 5)[0].Content)
	fmt.Println(data.Reference(item, 5))
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
