package data_test

import (
	"fmt"
	"testing/fstest"

	"github.com/posttrain/posttrain/data"
)

// The prompt inside both answers is split off; the scores become the prior gap.
func Example() {
	files := fstest.MapFS{"pairs.jsonl": {Data: []byte(
		`{"chosen": "Q: Is it far?\nA: No.", "rejected": "Q: Is it far?\nA: Go away.", "chosen_score": 0.75,` +
			` "rejected_score": 0.25}`)}}
	pairs, report, err := data.StreamPreferences(files, "pairs.jsonl", data.PreferenceOptions{}).Collect()
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
	// prior: 1 of 1 pairs, gap median 0.500, mean 0.500 (0.500 to 0.500)
	//   gaps by tenths, from 0 to 1: ▁▁▁▁▁█▁▁▁▁  (0, 0, 0, 0, 0, 100, 0, 0, 0, 0 %)
	//   reward_transform none: scores are in [0, 1]: rewards are the scores
	// [0.5]
}
