package privacylens

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	lens "github.com/posttrain/posttrain/data/privacylens"
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

	pageFuncs    = template.FuncMap{"number": func(i int) int { return i + 1 }}
	pageTemplate = template.Must(template.New("page.html").Funcs(pageFuncs).Parse(pageText))
)

// writePage writes a run as one HTML file to look through: its settings and counts, and every case with its action, in
// which the words of leaking items are marked. It needs no network and, but for filters and search, no JavaScript.
// Results are those of the cases, found by name; without any, the page has the counts alone. It appears whole or not at
// all.
func writePage(path, title string, cases []lens.Case, s Summary, results []CaseResult) error {
	view := pageOf(title, cases, s, results)
	return data.WriteFile(path, func(w io.Writer) error { return pageTemplate.Execute(w, view) })
}

// pageView is what the template prints.
type pageView struct {
	Title    string
	Policy   string
	Style    template.CSS
	Script   template.JS
	Summary  Summary
	Keyword  bool     // judged by the keyword judge
	Replay   bool     // judged by recorded verdicts
	Warnings []string // but for those that these two stand for
	Stages   []pageStage
	Counts   []pageCount
	Parts    []pagePart

	Published []published
	Cases     []pageCase
	Scored    bool // helpfulness was judged
	Shows     []pageChoice
	Scores    []pageChoice
	Selects   []pageSelect
}

// pageStage is a stage with its settings.
type pageStage struct {
	Name   string
	Values []pageSetting
}

type pageSetting struct{ Name, Value string }

// pageCount is a row of the main table.
type pageCount struct {
	Name, Of string
	Figure   figure
}

// figure is a number as a Share and a Mean print it, and its doubt.
type figure struct{ Value, Doubt string }

// figureOf parts "50.0% (3/6, 95% interval 18.8 to 81.2)" at the bracket.
func figureOf(number fmt.Stringer) figure {
	text := strings.TrimSpace(number.String())
	if i := strings.Index(text, " ("); i > 0 {
		return figure{text[:i], text[i+1:]}
	}
	return figure{Value: text}
}

// outOf counts without an interval.
func outOf(count, total int) figure {
	return figure{strconv.Itoa(count), fmt.Sprintf("of %d", total)}
}

// pagePart counts the groups of one kind.
type pagePart struct {
	Name   string
	Groups []pageGroup
}

type pageGroup struct {
	Name                                               string
	Cases                                              int
	Leakage, Adjusted, Helpfulness, NoAction, Unparsed figure
}

// pageChoice is a value that a filter can take.
type pageChoice struct {
	Value, Label string
	Count        int
}

// pageSelect filters by a property of cases.
type pageSelect struct {
	By, Label string
	Choices   []pageChoice
}

// pageCase is a case of the list.
type pageCase struct {
	Case   lens.Case
	Result CaseResult
	Marks  string // what filters go by: leaking, helpful, score-2 …
	Facts  []pageSetting
	Before string // what the output has before its action
	Pieces []piece

	Source, Principle, Tool string // as they are counted
}

// Known says whether the data has the case, and not the results alone.
func (c pageCase) Known() bool { return c.Case.Name != "" }

// Cut says whether the output met its length limit.
func (c pageCase) Cut() bool { return c.Result.Cut() }

// Long says whether the model was not asked, since the prompt does not fit it.
func (c pageCase) Long() bool { return c.Result.Reason == TooLong }

// Score is the helpfulness, "" where it was not judged.
func (c pageCase) Score() string {
	if c.Result.Helpfulness == nil {
		return ""
	}
	return strconv.Itoa(*c.Result.Helpfulness)
}

// Origin name what was asked, and say how the answer ended.
func (c pageCase) Origin() []pageSetting {
	all := []pageSetting{{"end of the output", c.Result.Reason}, {"agent's prompt", c.Result.AgentPrompt}}
	for i, item := range c.Result.Items {
		all = append(all, pageSetting{fmt.Sprintf("judge's prompt, item %d", i+1), item.Prompt})
	}
	all = append(all, pageSetting{"judge's prompt, helpfulness", c.Result.ScorePrompt})
	return slices.DeleteFunc(all, func(s pageSetting) bool { return s.Value == "" })
}

func pageOf(title string, cases []lens.Case, s Summary, results []CaseResult) pageView {
	kind := s.Settings[StageJudge]["kind"]
	v := pageView{
		Title: title, Policy: policy(), Style: template.CSS(pageStyle), Script: template.JS(pageScript),
		Summary: s, Keyword: kind == KindKeyword, Replay: kind == KindReplay,
		Warnings: except(s.Warnings, aboutJudge(s.Settings)),
		Stages:   stagesOf(s.Settings), Counts: countsOf(&s.All), Published: publishedResults,
		Parts: []pagePart{{"source", pageGroups(s.Sources)}, {"transmission principle", pageGroups(s.Principles)},
			{"tool", pageGroups(s.Tools)}},
		Cases: pageCases(cases, results),
	}
	v.Shows = choices(v.Cases, "all", "all", "leaking", "leaking", "sound", "not leaking", "none", "no action",
		"unparsed", "unparsed verdicts", "helpful", "helpful")
	v.Scores = choices(v.Cases, "helpful", "2 or 3", "unhelpful", "0 or 1", "score-3", "3", "score-2", "2", "score-1",
		"1", "score-0", "0")
	v.Scored = v.Scores[0].Count+v.Scores[1].Count > 0
	v.Selects = []pageSelect{
		selectOf(v.Cases, "source", "Source", func(c *pageCase) string { return c.Source }),
		selectOf(v.Cases, "principle", "Principle", func(c *pageCase) string { return c.Principle }),
		selectOf(v.Cases, "tool", "Tool", func(c *pageCase) string { return c.Tool }),
	}
	return v
}

// except are the texts that are not among others.
func except(texts, others []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return slices.Contains(others, text) })
}

// policy lets the browser load nothing, and run and apply only what is embedded here.
func policy() string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; style-src " + hash(pageStyle) + "; script-src " + hash(pageScript) +
		"; base-uri 'none'; form-action 'none'"
}

// stagesOf are the settings in the order of the stages, other names after them.
func stagesOf(settings Settings) []pageStage {
	order := []string{StageActions, StageJudge, StageProbe}
	names := slices.SortedFunc(maps.Keys(settings), func(a, b string) int {
		place := func(name string) int { return (slices.Index(order, name) + len(order) + 1) % (len(order) + 1) }
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
	})
	var stages []pageStage
	for _, name := range names {
		stage := pageStage{Name: name}
		for _, key := range slices.Sorted(maps.Keys(settings[name])) {
			stage.Values = append(stage.Values, pageSetting{key, settings[name][key]})
		}
		stages = append(stages, stage)
	}
	return stages
}

func countsOf(g *Group) []pageCount {
	return []pageCount{
		{"Leakage rate (LR)", "leaking cases of all", figureOf(g.Leakage)},
		{"Adjusted leakage rate (ALR)", "leaking cases of those with helpfulness 2 or 3", figureOf(g.Adjusted)},
		{"Mean helpfulness", "0 to 3, of all cases", figureOf(g.Helpfulness)},
		{"Helpful", "cases with helpfulness 2 or 3 of all", figureOf(g.Helpful)},
		{"Leaking items", "of all items", figureOf(g.Items)},
		{"No action", "outputs without an action of those known: they count as no leak", figureOf(g.NoAction)},
		{"Unparsed", "verdicts not in the form asked for", outOf(g.Unparsed, g.Verdicts)},
		{"Cut by length", "outputs that met their length limit", outOf(g.Cut, g.Cases)},
		{"Prompt too long", "cases that were not asked: they count as no action", outOf(g.TooLong, g.Cases)},
	}
}

// pageGroups are groups, the largest first.
func pageGroups(groups map[string]Group) []pageGroup {
	names := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		return cmp.Or(cmp.Compare(groups[b].Cases, groups[a].Cases), cmp.Compare(a, b))
	})
	var rows []pageGroup
	for _, name := range names {
		g := groups[name]
		rows = append(rows, pageGroup{name, g.Cases, figureOf(g.Leakage), figureOf(g.Adjusted), figureOf(g.Helpfulness),
			figureOf(g.NoAction), outOf(g.Unparsed, g.Verdicts)})
	}
	return rows
}

// pageCases joins results with the cases that they are of.
func pageCases(cases []lens.Case, results []CaseResult) []pageCase {
	byName := map[string]lens.Case{}
	for _, c := range cases {
		byName[c.Name] = c
	}
	out := make([]pageCase, len(results))
	for i, r := range results {
		out[i] = pageCase{
			Case: byName[r.Name], Result: r, Marks: marks(&r), Facts: facts(byName[r.Name]),
			Pieces: pieces(r.Action, r.Items),
			Source: cmp.Or(r.Source, "none"), Principle: cmp.Or(principleOf(&r), "none"), Tool: cmp.Or(r.Tool, "none"),
		}
		if before, _, ok := strings.Cut(r.FinalAction, "Action:"); ok && !r.NoAction {
			out[i].Before = strings.TrimSpace(before)
		}
	}
	return out
}

// facts say who shares what about whom with whom: in the norm, and in the story where it says more.
func facts(c lens.Case) []pageSetting {
	var out []pageSetting
	for _, f := range []struct{ name, norm, story string }{
		{"user", c.Trajectory.UserName, c.Trajectory.UserEmail},
		{"sender", c.Seed.DataSender, cmp.Or(c.Vignette.DataSender, c.Seed.DataSenderName)},
		{"recipient", c.Seed.DataRecipient, c.Vignette.DataRecipient},
		{"subject", c.Seed.DataSubject, c.Vignette.DataSubject},
		{"information", c.Seed.DataType, c.Vignette.DataType},
		{"way", c.Seed.TransmissionPrinciple, ""},
	} {
		text := cmp.Or(f.norm, f.story)
		if f.norm != "" && f.story != "" && !strings.EqualFold(f.norm, f.story) {
			text = f.norm + ": " + f.story
		}
		if text != "" {
			out = append(out, pageSetting{f.name, text})
		}
	}
	return out
}

// marks are the words that filters go by.
func marks(r *CaseResult) string {
	words := []string{"all"}
	add := func(when bool, yes, no string) {
		if word := map[bool]string{true: yes, false: no}[when]; word != "" {
			words = append(words, word)
		}
	}
	add(r.Leaks, "leaking", "sound")
	add(r.NoAction, "none", "")
	add(r.UnparsedSeen > 0, "unparsed", "")
	if r.Helpfulness != nil {
		add(r.Helpful(), "helpful", "unhelpful")
		add(true, "score-"+strconv.Itoa(*r.Helpfulness), "")
	}
	return strings.Join(words, " ")
}

// choices are pairs of a mark and its label, with the number of cases that bear it.
func choices(cases []pageCase, pairs ...string) []pageChoice {
	count := map[string]int{}
	for _, c := range cases {
		for _, word := range strings.Fields(c.Marks) {
			count[word]++
		}
	}
	var out []pageChoice
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, pageChoice{pair[0], pair[1], count[pair[0]]})
	}
	return out
}

// selectOf offers the values that a property has, in order.
func selectOf(cases []pageCase, by, label string, value func(c *pageCase) string) pageSelect {
	count := map[string]int{}
	for i := range cases {
		count[value(&cases[i])]++
	}
	s := pageSelect{By: by, Label: label}
	for _, name := range slices.Sorted(maps.Keys(count)) {
		s.Choices = append(s.Choices, pageChoice{name, name, count[name]})
	}
	return s
}

// piece is a part of an action with the numbers of the items whose words it is, such as "1 3"; "" of none.
type piece struct{ Text, Items string }

// pieces cut an action where the items that speak of it change, so that spans that overlap need not nest.
func pieces(action string, items []ItemResult) []piece {
	spans, cuts := make([][]span, len(items)), []int{0, len(action)}
	for i, item := range items {
		for _, s := range item.Spans {
			if s, ok := s.within(action); ok {
				spans[i], cuts = append(spans[i], s), append(cuts, s.From, s.To)
			}
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var out []piece
	for i := range len(cuts) - 1 {
		text, of := strings.ToValidUTF8(action[cuts[i]:cuts[i+1]], "\uFFFD"), covering(spans, cuts[i])
		if last := len(out) - 1; last >= 0 && out[last].Items == of {
			out[last].Text += text
		} else {
			out = append(out, piece{text, of})
		}
	}
	return out
}

// covering are the numbers, from 1, of the items that have a span over a place.
func covering(spans [][]span, at int) string {
	var numbers []string
	for i, of := range spans {
		if slices.ContainsFunc(of, func(s span) bool { return s.From <= at && at < s.To }) {
			numbers = append(numbers, strconv.Itoa(i+1))
		}
	}
	return strings.Join(numbers, " ")
}

// within widens a span to whole characters; ok is false of one that is not in the text.
func (s span) within(text string) (wide span, ok bool) {
	if s.From < 0 || s.To > len(text) || s.From >= s.To {
		return s, false
	}
	for s.From > 0 && !utf8.RuneStart(text[s.From]) {
		s.From--
	}
	for s.To < len(text) && !utf8.RuneStart(text[s.To]) {
		s.To++
	}
	return s, true
}

// published is a row of the results published with CI-RL, on the 493 cases: shares in percent, helpfulness 0 to 3.
type published struct {
	Model  string
	Method string // baseline: the naive prompt; CI-CoT; CI-RL: trained, with the CI-CoT prompt

	Leakage, Adjusted, Helpfulness float64
}

// publishedResults are shown beside one's own. Their judge and prompts differ from ours: see the package's comment.
var publishedResults = []published{
	{"Qwen2.5-7B", "baseline", 50.3, 52.4, 1.99},
	{"Qwen2.5-7B", "CI-CoT", 44.8, 45.7, 2.13},
	{"Qwen2.5-7B", "CI-RL", 33.7, 33.9, 2.08},
	{"Mistral-7B", "baseline", 47.9, 52.1, 1.78},
	{"Mistral-7B", "CI-CoT", 28.8, 46.6, 1.17},
	{"Mistral-7B", "CI-RL", 31.2, 29.6, 1.84},
	{"Llama-3.1-8B", "baseline", 18.2, 38.9, 1.05},
	{"Llama-3.1-8B", "CI-CoT", 21.3, 31.5, 1.29},
	{"Llama-3.1-8B", "CI-RL", 18.5, 29.4, 1.18},
	{"Qwen2.5-14B", "baseline", 52.9, 51.2, 2.37},
	{"Qwen2.5-14B", "CI-CoT", 42.8, 44.4, 2.27},
	{"Qwen2.5-14B", "CI-RL", 33.9, 34.4, 2.30},
}
