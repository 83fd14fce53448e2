package privacylens

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/bench"
)

// The guardrails beside a prompt.
const (
	guardNone = "none"
	// guardAirGap is the minimiser of AirGapAgent (Bagdasarian et al., arXiv:2405.05175): a first pass of the model sees the
	// task and the data, and selects what the task needs; a second pass, which acts, sees only that. Departures: the data
	// are an agent's observations in place of a user's profile, one model is both passes, and the first names the numbers
	// of sentences, as small models do not repeat texts well.
	guardAirGap = "airgap"
)

// Selection is what a guard's first pass has left of a case's observations. One that cannot be read selects nothing: a
// guard that then let everything pass would guard nothing.
type Selection struct {
	Sentences  int  `json:"sentences"`
	Selected   int  `json:"selected"`
	Unreadable bool `json:"unreadable,omitempty"`
}

// selecting is what the first pass is asked: the case with its observations cut into numbered sentences.
func (e *evaluation) selecting(c *Case) (string, error) {
	numbered := *c
	numbered.Trajectory.Past, _ = c.observed(func(n int, text string) string {
		return fmt.Sprintf("\n[%d] %s", n, strings.Join(strings.Fields(text), " "))
	})
	return e.prompts.write(e.Guard, &numbered, filling{})
}

// then writes what the second pass is asked: as ever, with what the first has selected in place of all observations.
// Without a guard there is no second pass.
func (e *evaluation) then(c *Case) func([]bench.Answer) ([]data.Message, error) {
	if e.Guard != guardAirGap {
		return nil
	}
	return func(said []bench.Answer) ([]data.Message, error) {
		less := *c
		less.Trajectory.Past, _ = selectFrom(c, said[0])
		text, err := e.prompts.write(e.Prompt, &less, filling{})
		return []data.Message{{Role: "user", Content: text}}, err
	}
}

// passes is how often the agent is asked about a case.
func (e *evaluation) passes() int {
	if e.Guard == guardAirGap {
		return 2
	}
	return 1
}

// selectFrom is the past of a case with the sentences alone that an answer names.
func selectFrom(c *Case, a bench.Answer) (past string, s Selection) {
	_, s.Sentences = c.observed(func(int, string) string { return "" })
	reply, _ := bench.InTags(a.Output, a.Opened)
	chosen := readNumbers(reply, s.Sentences)
	s.Unreadable = chosen == nil
	past, _ = c.observed(func(n int, text string) string {
		if !chosen[n] {
			return ""
		}
		s.Selected++
		return text
	})
	return past, s
}

var observationPattern = regexp.MustCompile(`(?s)Observation:(.*?)(?:\s*\n\s*Action:|\z)`)

// observed is the past of a case with each sentence of its observations as write has it. It counts them from 1. With
// sentences as they are it is the past itself.
func (c *Case) observed(write func(n int, text string) string) (past string, n int) {
	var b strings.Builder
	rest := 0
	for _, at := range observationPattern.FindAllStringSubmatchIndex(c.Trajectory.Past, -1) {
		b.WriteString(c.Trajectory.Past[rest:at[2]])
		for _, text := range sentences(c.Trajectory.Past[at[2]:at[3]]) {
			n++
			b.WriteString(write(n, text))
		}
		rest = at[3]
	}
	return b.String() + c.Trajectory.Past[rest:], n
}

var (
	// a sentence ends at its mark, at a line break (in a JSON text, too), and behind a value of a JSON text
	sentenceEnd = regexp.MustCompile(`[.!?][\\"')]*\s+|(?:\\n)+\s*|\n\s*|["}\]],\s+`)
	noEnd       = regexp.MustCompile(`\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|No|vs|[ap]\.m|e\.g|i\.e)\.\s+$`)
	hasWords    = regexp.MustCompile(`[\pL\pN]`)
)

// sentences cut an observation, each with the white space and brackets around it: together they are all of it.
func sentences(text string) (all []string) {
	begin := 0
	for _, end := range sentenceEnd.FindAllStringIndex(text, -1) {
		if one := text[begin:end[1]]; hasWords.MatchString(one) && !noEnd.MatchString(one) {
			all, begin = append(all, one), end[1]
		}
	}
	if rest := text[begin:]; len(all) > 0 && !hasWords.MatchString(rest) {
		all[len(all)-1] += rest
	} else if rest != "" {
		all = append(all, rest)
	}
	return all
}

const gap = `[^\pL\d\n]`

var (
	// A line that names sentences begins with their numbers, perhaps behind a label. A sentence may be repeated behind its
	// number, and begin with a number of its own. So numbers with blanks alone between them are a list only where the line
	// has nothing else; behind ], ), : or a point another number needs a comma, a word, a dash or a bracket before it.
	numberLine = regexp.MustCompile(`(?im)^` + gap + `*(?:(?:answer|numbers?|sentences?|selection)` + gap + `*)*(?:` +
		`(\d+(?:(?:[^\pL\d\n\]):.]+|` + gap + `*(?:[,;([–-]|\b(?:and|to)\b)` + gap + `*)\d+)*)` + gap + `*$|` +
		`(\d+(?:(?:[-–]|[ *]*[,;][ *]*(?:and )?| (?:and|to) |\][,; ]*(?:(?:and|to) )?\[)\d+)*)(?:[^\pL\d]|$))`)
	numberSpan = regexp.MustCompile(`(\d+)(?:\s*(?:-|–|to)\s*(\d+))?`)
	saysNone   = regexp.MustCompile(`(?i)^\W*none\b`)
)

// readNumbers finds the sentences that a reply names, 1 to n: numbers and spans of them. 0, or the word none, names none
// of them. nil: it names no number from 0 to n.
func readNumbers(reply string, n int) map[int]bool {
	chosen, found := map[int]bool{}, saysNone.MatchString(reply)
	for _, line := range numberLine.FindAllStringSubmatch(reply, -1) {
		for _, span := range numberSpan.FindAllStringSubmatch(line[1]+line[2], -1) {
			from, _ := strconv.Atoi(span[1]) // too large a number is the largest
			to, _ := strconv.Atoi(span[2])
			found = found || from <= n
			for i := max(from, 1); i <= min(max(from, to), n); i++ {
				chosen[i] = true
			}
		}
	}
	if !found {
		return nil
	}
	return chosen
}
