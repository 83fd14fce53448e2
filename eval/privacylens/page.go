package privacylens

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/data"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/bench"
)

// The parts of the page. Style and script are in it as they are here, so that its policy can name them by their hashes
// and the browser runs nothing else, whatever a model has written.
var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string

	pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
		"number": func(i int) int { return i + 1 }, "figure": figureOf, "pieces": Pieces,
		"published": func() []Published { return PublishedRows }, "source": func() string { return PublishedSource },
	}).Parse(pageText))
)

// writePage writes a run as one HTML file to look through: its settings and counts, and every case with its action, in
// which the words of leaking items are marked. It needs no network and, but for filters and search, no JavaScript.
// Results are those of the cases, found by name; without any, the page has the counts alone. It appears whole or not at
// all.
func writePage(path, title string, cases []lens.Case, s Summary) error {
	// The page says of the keyword judge in its own words what this warning says.
	s.Warnings = slices.DeleteFunc(slices.Clone(s.Warnings), func(text string) bool { return text == keywordWarning })
	view := pageView{
		Summary: s, Title: title, Policy: policy(), Style: template.CSS(pageStyle), Script: template.JS(pageScript),
		Parts: s.parts(), Cases: pageCases(cases, s.Results),
	}
	return data.WriteFile(path, func(w io.Writer) error { return pageTemplate.Execute(w, &view) })
}

// pageView is what the template prints.
type pageView struct {
	Summary
	Title, Policy string
	Style         template.CSS
	Script        template.JS
	Parts         []part
	Cases         []*pageCase
}

// figure is a number as a Share and a Mean print it, and its doubt.
type figure struct{ Value, Doubt string }

// figureOf parts "50.0% (3/6, 95% interval 18.8 to 81.2)" at the bracket.
func figureOf(number fmt.Stringer) figure {
	value, doubt, found := strings.Cut(strings.TrimSpace(number.String()), " (")
	if found {
		doubt = "(" + doubt
	}
	return figure{value, doubt}
}

// policy lets the browser load nothing, and run and apply only what is embedded here.
func policy() string {
	return fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'",
		sourceOf(pageStyle), sourceOf(pageScript))
}

// sourceOf names the text of an element in a policy.
func sourceOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// choice is a value that a filter can take, with the number of cases that have it.
type choice struct {
	Value, Label string
	Count        int
}

// Choices takes pairs of a mark and its label.
func (v *pageView) Choices(pairs ...string) (all []choice) {
	count := map[string]int{}
	for _, c := range v.Cases {
		for _, mark := range strings.Fields(c.Marks()) {
			count[mark]++
		}
	}
	for pair := range slices.Chunk(pairs, 2) {
		all = append(all, choice{pair[0], pair[1], count[pair[0]]})
	}
	return all
}

// pageCase is a case of the list.
type pageCase struct {
	CaseResult
	Case lens.Case // without a name where only the results have the case
}

// pageCases joins results with the cases that they are of.
func pageCases(cases []lens.Case, results []CaseResult) []*pageCase {
	byName := map[string]lens.Case{}
	for _, c := range cases {
		byName[c.Name] = c
	}
	out := make([]*pageCase, len(results))
	for i, r := range results {
		out[i] = &pageCase{r, byName[r.Name]}
	}
	return out
}

// Marks are the words that filters go by.
func (c *pageCase) Marks() string {
	words := []string{"all", "sound"}
	if c.Leaks {
		words[1] = "leaking"
	}
	if c.NoAction {
		words = append(words, "none")
	}
	if c.UnparsedSeen > 0 {
		words = append(words, "unparsed")
	}
	if c.Helpfulness != nil {
		word := "unhelpful"
		if c.Helpful() {
			word = "helpful"
		}
		words = append(words, word, "score-"+strconv.Itoa(*c.Helpfulness))
	}
	return strings.Join(words, " ")
}

// Long says whether the model was not asked, since the prompt does not fit it.
func (c *pageCase) Long() bool { return c.Reason == bench.TooLong }

// Fact is something that a page says about a case.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Origin names what was asked, and says how the answer ended.
func (c *pageCase) Origin() []Fact {
	return withValues([]Fact{{"end of the output", c.Reason}, {"agent's prompt", c.AgentPrompt}})
}

// Facts say who shares what about whom with whom.
func (c *pageCase) Facts() []Fact { return Facts(c.Case) }

// Facts say who shares what about whom with whom in a case: in the norm, and in the story where it says more.
func Facts(c lens.Case) []Fact {
	both := func(norm, story string) string {
		if norm == "" || story == "" || strings.EqualFold(norm, story) {
			return cmp.Or(norm, story)
		}
		return norm + ": " + story
	}
	s, v, t := &c.Seed, &c.Vignette, &c.Trajectory
	return withValues([]Fact{
		{"user", both(t.UserName, t.UserEmail)},
		{"sender", both(s.DataSender, cmp.Or(v.DataSender, s.DataSenderName))},
		{"recipient", both(s.DataRecipient, v.DataRecipient)},
		{"subject", both(s.DataSubject, v.DataSubject)},
		{"information", both(s.DataType, v.DataType)},
		{"way", s.TransmissionPrinciple},
	})
}

// withValues leaves out facts without a value.
func withValues(facts []Fact) []Fact {
	return slices.DeleteFunc(facts, func(f Fact) bool { return f.Value == "" })
}

// Pieces cut an action where the items that speak of it change.
func Pieces(action string, items []ItemResult) []Piece {
	spans := make([][]Span, len(items))
	for i, item := range items {
		spans[i] = item.Spans
	}
	return Cut(action, spans)
}
