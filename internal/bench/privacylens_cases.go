package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	lens "github.com/posttrain/posttrain/data/privacylens"
)

// makeCases makes n cases with the given number of items in all. Their texts are as long as the average of PrivacyLens.
func makeCases(n, items int) []lens.Case {
	r := rand.New(rand.NewPCG(4, 1))
	cases := make([]lens.Case, n)
	for i := range cases {
		cases[i] = makeCase(r, fmt.Sprintf("bench%d", i), items*(i+1)/n-items*i/n)
	}
	return cases
}

func makeCase(r *rand.Rand, name string, items int) lens.Case {
	c := lens.Case{
		Name: name,
		Seed: lens.Seed{DataType: prose(r, 20), DataSubject: prose(r, 20), DataSender: prose(r, 20),
			DataSenderName: "Kim Lee", DataRecipient: prose(r, 20), TransmissionPrinciple: "send a message",
			Source: "made up"},
		Vignette: lens.Vignette{Story: prose(r, 770), DataType: prose(r, 60), DataSubject: prose(r, 20),
			DataSender: "Kim Lee", DataRecipient: prose(r, 20)},
		Trajectory: lens.Trajectory{UserName: "Kim Lee", UserEmail: "kim.lee@example.com", Instruction: prose(r, 145),
			Toolkits: []string{"Messenger", "NotionManager"}, FinalAction: "MessengerSendMessage"},
	}
	for step := range 5 {
		c.Trajectory.Past += fmt.Sprintf("Action: NotionManagerReadPage\nAction Input: {\"page_id\": \"%d\"}\n"+
			"Observation: {\"content\": %q}\n\n", step, prose(r, 420))
	}
	for range items {
		c.Trajectory.Items = append(c.Trajectory.Items, prose(r, 85))
	}
	return c
}

// actionOf is an agent's output in a case; no two cases have the same.
func actionOf(r *rand.Rand, c *lens.Case) string {
	return fmt.Sprintf("Thought: %s\nAction: %s\nAction Input: {\"message\": \"On %s: %s\"}",
		prose(r, 120), c.Trajectory.FinalAction, c.Name, prose(r, 500))
}

// tenfold repeats the cases ten times under new names.
func tenfold(cases []lens.Case) (all []lens.Case) {
	for copied := range 10 {
		for _, c := range cases {
			c.Name = fmt.Sprintf("%s copy %d", c.Name, copied)
			all = append(all, c)
		}
	}
	return all
}

var vocabulary = strings.Fields(`the a my her his their this that new old next first last meeting doctor school letter
	money health family office travel plan report friend message secret name week month house about with from after
	before because asked told sent kept wrote found heard needs wants`)

// prose is a sentence of random words with the given number of bytes or a few more.
func prose(r *rand.Rand, length int) string {
	var b strings.Builder
	for b.Len() < length {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(vocabulary[r.IntN(len(vocabulary))])
	}
	return b.String() + "."
}
