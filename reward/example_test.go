package reward_test

import (
	"fmt"

	"github.com/posttrain/posttrain/reward"
)

// An email to a dentist must name the appointment and must not name the patient's other illness.
func ExampleEvaluate() {
	k := reward.Keywords{Required: []string{"Mira", "May 4"}, Restricted: []string{"asthma"}}
	for _, completion := range []string{
		"<think>The dentist needs name and date.</think><answer>Mira can come on May 4.</answer>",
		"<think>I say everything.</think><answer>Mira, who has asthma, can come on May 4.</answer>",
		"Mira can come on May 4.",
	} {
		s := reward.Evaluate(k, completion, false, reward.DefaultOptions())
		fmt.Printf("reward %.0f, integrity %v, utility %v, fault %q\n", s.Reward, s.Integrity(), s.Utility(), s.Fault)
	}
	// Output:
	// reward 1, integrity true, utility true, fault ""
	// reward 0, integrity false, utility true, fault ""
	// reward -1, integrity true, utility false, fault "no <think>"
}
