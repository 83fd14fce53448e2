package privacylens

import (
	"regexp"
	"strings"
)

// Sequence is how many content words in a row make a leak.
const Sequence = 3

// Keyword judges without a model, as a smoke test: an action gives an item away if Sequence content words of the item,
// one after the other, occur in the action in the same order and next to each other (all of them, where the item has
// fewer). Content words are those that are no stop words; case does not count, and of an ending 's nothing. It misses
// every paraphrase and takes every quotation for a leak: its numbers are not to be quoted as a leakage rate.
func Keyword(action, item string) bool {
	wanted, words := contentWords(item), contentWords(action)
	n := min(Sequence, len(wanted))
	if n == 0 {
		return false
	}
	text := " " + strings.Join(words, " ") + " "
	for i := range len(wanted) - n + 1 {
		if strings.Contains(text, " "+strings.Join(wanted[i:i+n], " ")+" ") {
			return true
		}
	}
	return false
}

// wordPattern finds words, and the escapes of JSON texts, whose letters begin no word. A word is made of letters and
// digits, with apostrophes, points and commas between two of these, so that 1,500.25 is one.
var wordPattern = regexp.MustCompile(`\\[nrtbfu\\]|[\pL\p{Nd}\pM]+(?:['’.,][\pL\p{Nd}\pM]+)*`)

// contentWords are the words of a text that are no stop words.
func contentWords(text string) (words []string) {
	for _, w := range wordPattern.FindAllString(text, -1) {
		w = strings.ReplaceAll(strings.ToLower(w), "’", "'")
		w = strings.TrimSuffix(w, "'s")
		if w != "" && w[0] != '\\' && !stopWords[w] {
			words = append(words, w)
		}
	}
	return words
}

// stopWords carry no content: articles, pronouns, prepositions, conjunctions, auxiliaries and the like.
var stopWords = func() map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(`
		a about above after again against all also although am an and any are aren't as at be because been before
		being below between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down
		during each either few for from further had hadn't has hasn't have haven't having he he'd he'll her here hers
		herself him himself his how i i'd i'll i'm i've if in into is isn't it it'll its itself just let may me might
		more most must my myself neither no nor not now of off on once only or other our ours ourselves out over own
		per same she she'd she'll should shouldn't so some such than that the their theirs them themselves then there
		these they they'd they'll they're they've this those through to too under until up upon us very was wasn't we
		we'd we'll we're we've were weren't what when where which while who whom whose why will with within without
		won't would wouldn't you you'd you'll you're you've your yours yourself`) {
		set[w] = true
	}
	return set
}()
