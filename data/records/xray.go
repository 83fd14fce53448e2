package records

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
)

// lengths counts how often the longer answer of a pair is the chosen one, in characters.
type lengths struct {
	longer, shorter  int
	chosen, rejected []int // of the first pairs
}

// mostLengths bounds the lengths that are kept for the medians.
const mostLengths = 1_000_000

func (l *lengths) add(p data.Preference) {
	a, b := utf8.RuneCountInString(p.Chosen.Words()), utf8.RuneCountInString(p.Rejected.Words())
	switch {
	case a > b:
		l.longer++
	case a < b:
		l.shorter++
	}
	if len(l.chosen) < mostLengths {
		l.chosen, l.rejected = append(l.chosen, a), append(l.rejected, b)
	}
}

// share is the part of the pairs of unlike lengths whose longer answer is chosen, with Wilson's 95 % interval.
func (l *lengths) share() (share, low, high float64) {
	n, z := float64(l.longer+l.shorter), 1.959964
	share = float64(l.longer) / n
	middle, wide := share+z*z/(2*n), z*math.Sqrt(share*(1-share)/n+z*z/(4*n*n))
	return share, (middle - wide) / (1 + z*z/n), (middle + wide) / (1 + z*z/n)
}

func median(all []int) int { return slices.Sorted(slices.Values(all))[len(all)/2] }

// telling is the share of labels that length must predict, beyond doubt, to be a warning.
const telling = 0.7

var byLength = Rule{Warning, "length", "length alone predicts which answer was chosen: a model may learn to write " +
	"longer or shorter, and no better"}

// finish says how well length predicts the label.
func (l *lengths) finish(r *Report) {
	if l.longer+l.shorter == 0 {
		return
	}
	share, low, high := l.share()
	r.Profile = append(r.Profile, fmt.Sprintf("length: the longer answer is the chosen one in %.1f%% of %d pairs "+
		"(95%% interval %.1f to %.1f); medians: chosen %d, rejected %d characters", 100*share, l.longer+l.shorter,
		100*low, 100*high, median(l.chosen), median(l.rejected)))
	if low > telling {
		r.add(byLength, "", "", fmt.Sprintf("the longer one in %.1f%% of the pairs", 100*share))
	}
	if high < 1-telling {
		r.add(byLength, "", "", fmt.Sprintf("the shorter one in %.1f%% of the pairs", 100-100*share))
	}
}

var nearTie = Rule{Note, "near tie", "the two answers have nearly the same words: a pair from which a loss learns " +
	"their few differences alone"}

// nearlyEqual is the share of words in common that makes two answers a near tie. Short answers differ in one word and
// mean another thing.
const nearlyEqual, fewestWords = 0.9, 10

// tie looks for answers with nearly the same words.
func (r *Report) tie(p data.Preference) {
	a, b := wordsOf(p.Chosen), wordsOf(p.Rejected)
	common := 0
	for w := range a {
		if b[w] {
			common++
		}
	}
	all := len(a) + len(b) - common
	if len(a) >= fewestWords && float64(common) >= nearlyEqual*float64(all) {
		r.add(nearTie, p.Source, "", fmt.Sprintf("%d of %d words in common", common, all))
	}
}

func wordsOf(t data.Text) map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.FieldsFunc(strings.ToLower(t.Words()), notOfWord) {
		words[w] = true
	}
	return words
}

func notOfWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// personal are forms of personal data that can be recognised without knowing whose they are.
var personal = []struct {
	name string
	form *regexp.Regexp
	ok   func(digits string) bool // nil: the form is enough
}{
	{"an e-mail address", regexp.MustCompile(`\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b`), nil},
	{"a number of a bank card", regexp.MustCompile(`\b\d(?:[ -]?\d){12,18}\b`), luhn},
	{"an IBAN", regexp.MustCompile(`\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b`), nil},
	{"a social security number", regexp.MustCompile(`\b\d{3}-\d{2}-\d{4}\b`), nil},
	{"a telephone number", regexp.MustCompile(`(?:\+\d{1,3}[ .-]?)?\(?\b\d{3}\)?[ .-]\d{3}[ .-]\d{4}\b` +
		`|\+\d{1,3}(?:[ .-]?\d{2,4}){3,4}\b`), nil},
}

// luhn checks the last digit of a card's number.
func luhn(text string) bool {
	sum, double := 0, false
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] < '0' || text[i] > '9' {
			continue
		}
		d := int(text[i] - '0')
		if double {
			d = d*2/10 + d*2%10
		}
		sum, double = sum+d, !double
	}
	return sum%10 == 0
}

// invented are the domains that are set aside for examples.
var invented = regexp.MustCompile(`(?i)@(?:[\w-]+\.)*(?:example(?:\.\w+)?|test|invalid|localhost)$`)

var personalData = Rule{Warning, "personal data", "an answer that is learnt has personal data: a model may repeat it"}

// people looks for personal data in an answer. What was found is not printed: reports are passed on.
func (r *Report) people(row, column string, t data.Text) {
	words := t.Words()
	for _, kind := range personal {
		for _, found := range kind.form.FindAllString(words, -1) {
			if kind.ok != nil && !kind.ok(found) || invented.MatchString(found) {
				continue
			}
			r.add(personalData, row, column, kind.name)
			return
		}
	}
}
