package data

// BestWorst makes a pair of the best and the worst of several completions of one prompt, with their scores. Of equal
// scores the first counts. ok is false where there is nothing to learn: all scores equal, or both texts equal. A
// completion of a conversation becomes a message of the assistant.
func BestWorst(prompt Text, completions []string, scores []float64, source string) (pair Preference, ok bool) {
	best, worst := 0, 0
	for i := range min(len(completions), len(scores)) {
		if scores[i] > scores[best] {
			best = i
		}
		if scores[i] < scores[worst] {
			worst = i
		}
	}
	if best == worst || completions[best] == completions[worst] {
		return Preference{}, false
	}
	return Preference{
		Prompt: prompt, Chosen: prompt.reply(completions[best]), Rejected: prompt.reply(completions[worst]),
		ChosenScore: scores[best], RejectedScore: scores[worst], Scored: true, Source: source,
	}, true
}

// reply is a completion in the form of the prompt.
func (t Text) reply(completion string) Text {
	if t.IsChat() {
		return Text{Messages: []Message{{Role: "assistant", Content: completion}}}
	}
	return Text{Plain: completion}
}
