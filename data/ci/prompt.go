package ci

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/posttrain/posttrain/data"
)

// The forms of a prompt.
const (
	PromptCompact  = "compact"  // the miniature that the embedded model knows: what compact writes
	PromptPlain    = "plain"    // the scenario, the task, the information, and a request for the format
	PromptCoT      = "cot"      // the same with the CI-CoT instruction of the dissertation's figure
	PromptReleased = "released" // the whole text that CI-RL's release trains with
	PromptAnswer   = "answer"   // as plain with a request for the answer alone: CI-RL without chain of thought
)

// PromptKinds are the forms of Prompt.
var PromptKinds = []string{PromptCompact, PromptPlain, PromptCoT, PromptReleased, PromptAnswer}

// accepted are the forms, in words.
const accepted = "compact, plain, cot, released, answer or a file with a template"

// ThinkPrefill follows the generation prompt in CI-RL, so that every completion begins inside a think block.
const ThinkPrefill = data.ThinkOpen + "\n"

// Prompt writes the prompt of a scenario in one of the forms, as one message of the user (some chat templates refuse a
// message of the system). It lists the annotated pieces of information, without their labels, in an order drawn by the
// seed order: the same order in every form and on every machine. An unknown form is a programming error: see Form.
//
//	Scenario: email; domain: Hospitality; intention: book a room; sender: user;
//	recipient: hotel desk; subject of the information: user.
//
//	Task: Email the hotel desk to book a room.
//
//	Information at hand:
//	- Name: my name is Kato Holden
//	- Medicine: I take Levopam
//	- ArrivalDate: arriving on May 14
//
//	<what the form asks for>
//
// The first two lines are one.
func Prompt(item Item, kind string, order uint64) []data.Message {
	switch kind {
	case PromptCompact:
		return compact(item, order)
	case PromptPlain:
		return []data.Message{{Role: "user", Content: item.taskText(order) + plainInstruction}}
	case PromptAnswer:
		return []data.Message{{Role: "user", Content: item.taskText(order) + answerInstruction}}
	case PromptCoT:
		return []data.Message{{Role: "user", Content: item.taskText(order) + strings.TrimSpace(CoT)}}
	case PromptReleased:
		messages, err := released.fill(item.fields(order, true))
		if err != nil {
			panic(err) // the template is part of the program
		}
		return messages
	}
	panic(fmt.Sprintf("prompt %q: want one of %v", kind, PromptKinds))
}

// plainInstruction asks for the format alone: the reward cannot judge an answer without it.
const plainInstruction = "Think first, inside <think> and </think>; then write the final message, and nothing else, " +
	"inside <answer> and </answer>."

// answerInstruction asks for no thoughts.
const answerInstruction = "Write the final message, and nothing else, inside <answer> and </answer>."

// releasedTemplate is the prompt of CI-RL's release as a template (released/README.md): Apache-2.0.
//
//go:embed released/prompt.tmpl
var releasedTemplate string

var released = promptTemplate{template.Must(template.New(PromptReleased).Parse(releasedTemplate))}

// CoT is the instruction of the dissertation's CI-CoT figure, word for word, and a line end.
//
//go:embed cot.txt
var CoT string

// taskText is the scenario, the task and the information.
func (c *Item) taskText(order uint64) string {
	var b strings.Builder
	b.WriteString(c.scenarioLine() + "Task: " + c.DatasetItem.UserTask + "\n\n")
	if list := c.promptOrder(order); len(list) > 0 {
		b.WriteString("Information at hand:\n")
		for _, a := range list {
			b.WriteString("- " + a.Key + ": " + a.Text + "\n")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// scenarioLine names the context, without the fields that the item lacks.
func (c *Item) scenarioLine() string {
	var parts []string
	for _, f := range []struct{ name, text string }{
		{"scenario", c.Seed.Scenario}, {"domain", c.Seed.Domain}, {"intention", c.Seed.UserIntention},
		{"sender", c.Seed.Sender}, {"recipient", c.Seed.Recipient}, {"subject of the information", c.Seed.DataSubject},
	} {
		if f.text != "" {
			parts = append(parts, f.name+": "+f.text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	line := strings.Join(parts, "; ") + ".\n\n"
	return strings.ToUpper(line[:1]) + line[1:]
}
