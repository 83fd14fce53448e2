package data

import (
	"regexp"
	"strings"
)

// Converse makes a conversation of a plain prompt and its plain answers: the prompt is the user's message, each answer
// the assistant's, without the one blank that glues it to the prompt. Of a dialogue with the marks "Human:" and
// "Assistant:" (HH-RLHF) each turn is a message.
func Converse(prompt Text, answers ...Text) (Text, []Text) {
	turns := dialogue(prompt.Plain)
	said := make([]Text, len(answers))
	for i, a := range answers {
		if turns != nil {
			said[i].Messages = dialogue(assistantMark + a.Plain)
		}
		if said[i].Messages == nil {
			said[i].Messages = []Message{{Role: "assistant", Content: unglued(a.Plain)}}
		}
	}
	if turns == nil {
		turns = []Message{{Role: "user", Content: prompt.Plain}}
	}
	return Text{Messages: turns}, said
}

// unglued cuts off the single blank that a text begins with.
func unglued(text string) string {
	if rest, is := strings.CutPrefix(text, " "); is && !strings.HasPrefix(rest, " ") {
		return rest
	}
	return text
}

var turnMark = regexp.MustCompile(`(?:^|\n\n)(Human|Assistant):`)

// dialogue splits a text that begins with a mark into its turns; nil for another text, and for one without a turn of
// the user or the assistant. The last turn is left out where it is an empty one.
func dialogue(text string) (turns []Message) {
	marks := turnMark.FindAllStringSubmatchIndex(text, -1)
	if len(marks) == 0 || marks[0][0] > 0 {
		return nil
	}
	for i, at := range marks {
		end := len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		role := map[string]string{"Human": "user", "Assistant": "assistant"}[text[at[2]:at[3]]]
		if said := strings.TrimSpace(text[at[1]:end]); said != "" || i+1 < len(marks) {
			turns = append(turns, Message{Role: role, Content: said})
		}
	}
	return turns
}
