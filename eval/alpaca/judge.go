package alpaca

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"unicode"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
)

// The names under which a judge sees the output shown first, and the one shown second.
const (
	first  = "m"
	second = "M"
)

//go:embed prompts.jsonl
var promptFile embed.FS

// Prompts are the messages to a judge, with the fields instruction, output_1 (shown first) and output_2.
type Prompts struct {
	messages []data.Message
	Hash     string
}

// ReadPrompts reads messages from JSON lines {role, content}, as scripts/alignment/export_prompts.py writes the
// benchmark's; "" names the embedded ones, which are in our own words.
func ReadPrompts(path string) (*Prompts, error) {
	var files fs.FS
	if path == "" {
		files, path = promptFile, "prompts.jsonl"
	}
	p, sum, whole := &Prompts{}, sha256.New(), ""
	err := data.ReadLinesFS(files, path, func(line int, m data.Message) error {
		if m.Role != "system" && m.Role != "user" && m.Role != "assistant" || m.Content == "" {
			return fmt.Errorf("%s:%d: want role (system, user or assistant) and content", path, line)
		}
		p.messages = append(p.messages, m)
		whole += m.Content
		fmt.Fprintf(sum, "%q%q", m.Role, m.Content)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if n := len(p.messages); n == 0 || p.messages[n-1].Role != "user" {
		return nil, fmt.Errorf("%s: the last message is not the user's: want one that the judge replies to", path)
	}
	if err := eval.Template(whole).Check([]string{"instruction", "output_1", "output_2"}, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p.Hash = fmt.Sprintf("sha256 %x", sum.Sum(nil)[:8])
	return p, nil
}

// Messages put two outputs to the judge.
func (p *Prompts) Messages(instruction, firstOutput, secondOutput string) []data.Message {
	all := make([]data.Message, len(p.messages))
	for i, m := range p.messages {
		all[i] = data.Message{Role: m.Role, Content: eval.Template(m.Content).Fill(map[string]string{
			"instruction": instruction, "output_1": firstOutput, "output_2": secondOutput})}
	}
	return all
}

// ModelFirst draws which output a judge sees first: the model's, or the baseline's. Judges like one place better.
func ModelFirst(seed uint64, instruction string) bool {
	return rand.New(rand.NewPCG(bench.SeedOf(seed, instruction), 0)).IntN(2) == 0
}

// Choice is what a judge says of two outputs.
type Choice struct {
	Second float64 // probability that the output shown second is better
	Said   string  // m, M or tie, or the probability
	Parsed bool
}

// HasChoice says that m or M is among the likeliest first tokens of a reply. Some servers give one token alone: it says
// nothing of the other letter, which would count as just as likely.
func HasChoice(top map[string]float64) bool {
	_, hasFirst := top[first]
	_, hasSecond := top[second]
	return len(top) > 1 && (hasFirst || hasSecond)
}

// ReadChoice reads a judge's reply. Where the server gives the log-probabilities of the first token, it is the
// probability of M among m and M; one of them that is not among the likeliest counts as the least likely of these, as
// in the benchmark. Elsewhere the words say 0, 1 or, for a tie, 1/2.
func ReadChoice(reply string, top map[string]float64) Choice {
	if !HasChoice(top) {
		return choiceOf(reply)
	}
	a, hasFirst := top[first]
	b, hasSecond := top[second]
	least := math.Inf(1)
	for _, logp := range top {
		least = min(least, logp)
	}
	if !hasFirst {
		a = least
	}
	if !hasSecond {
		b = least
	}
	p := 1 / (1 + math.Exp(a-b))
	return Choice{p, fmt.Sprintf("%.4f", p), true}
}

var tie = regexp.MustCompile(`(?i)\btie\b`)

// choiceOf finds the one letter that a reply names. Thoughts at its beginning are not part of it.
func choiceOf(reply string) Choice {
	reply, _ = bench.WithoutThoughts(reply, false)
	inWord := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_'’", r)
	}
	said := map[string]bool{}
	for _, word := range strings.FieldsFunc(reply, func(r rune) bool { return !inWord(r) }) {
		if word == first || word == second {
			said[word] = true
		}
	}
	switch {
	case said[first] && said[second]:
		return Choice{}
	case said[first]:
		return Choice{0, first, true}
	case said[second]:
		return Choice{1, second, true}
	case tie.MatchString(reply):
		return Choice{0.5, "tie", true}
	}
	return Choice{}
}
