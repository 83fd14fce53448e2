package records

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/reward"
)

// gates are the rules of contextual-integrity items as training data, in the order of findings. Keywords are looked for
// as the reward does it: as substrings, upper or lower case.
var gates = []Rule{
	{Warning, "schema", "a field is missing, or has a value that the release does not have"},
	{Note, "label", "a piece of information has several keywords or no keyword, or a keyword has no information"},
	{Note, "short", fmt.Sprintf("a keyword has more than %d words", MaxWords)},
	{Warning, "verbatim", "a keyword does not occur in its information value"},
	{Warning, "task", "the user task contains a restricted keyword: an answer that repeats the task leaks"},
	{Warning, "elsewhere", "a restricted keyword occurs in the context or in required information"},
	{Error, "sides", "a keyword is on both sides"},
	{Error, "inside", "a restricted keyword is part of a required one: the full reward cannot be reached"},
	{Error, "document", "a keyword occurs in no document of the scene, or in its norm"},
	{Note, "neutral key", "a key gives the label of its information away"},
	{Error, "attainable", "the ideal answer has a reward below 1"},
	{Warning, "discriminates", "repeating all information has a reward above 0"},
	{Warning, "duplicate", "nearly the same as an earlier item"},
}

// gateNumber is the place of a gate.
func gateNumber(name string) int {
	return slices.IndexFunc(gates, func(r Rule) bool { return r.Name == name })
}

// Finding is a gate that is not passed.
type Finding struct {
	Gate   string `json:"kind"`  // the rule's name
	Place  string `json:"place"` // a field, such as dataset_item.annotation.disallowed.Notes
	Reason string `json:"reason"`
}

// String is the finding in one line.
func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Gate, f.Place, f.Reason) }

// DefaultNear is the share of word triples in common that makes items duplicates where nobody says otherwise.
const DefaultNear = 0.7

// Duplicates finds the items that have a share near of their triples of words in common with an earlier one, by their
// places in the list.
func Duplicates(items []ci.Item, share float64) map[int]Finding {
	index, all := newIndex(share), map[int]Finding{}
	for i := range items {
		if earlier, common, found := index.add(uint32(i), itemTexts(&items[i])...); found {
			name := cmp.Or(items[earlier].Source, fmt.Sprintf("item %d", earlier+1))
			all[i] = Finding{"duplicate", "dataset_item",
				fmt.Sprintf("%.0f %% of its triples of words are those of %s", 100*common, name)}
		}
	}
	return all
}

// itemTexts are what duplicates have in common: the task and each piece of information.
func itemTexts(item *ci.Item) []string {
	texts := []string{item.DatasetItem.UserTask}
	for _, f := range item.DatasetItem.Information {
		texts = append(texts, f.Text)
	}
	return texts
}

// DescribeGates writes how many items fail which gates, in their order.
func DescribeGates(counts map[string]int) string {
	var parts []string
	for _, g := range gates {
		if n := counts[g.Name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", g.Name, n))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}

// MaxWords is how many words a keyword has at most: more would hardly be repeated verbatim.
const MaxWords = 4

// Gates lists the findings of the gates about one item.
func Gates(item *ci.Item) []Finding {
	c := &checking{Item: item, information: map[string]string{}}
	for _, f := range item.DatasetItem.Information {
		c.information[f.Key] = f.Text
	}
	c.schema()
	c.labels()
	c.keywords()
	c.sides()
	c.documents()
	c.keys()
	c.reward()
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		return gateNumber(a.Gate) - gateNumber(b.Gate)
	})
	return c.found
}

// checking is an item with what was found so far.
type checking struct {
	*ci.Item
	information map[string]string
	found       []Finding
}

func (c *checking) add(gate, place, format string, values ...any) {
	c.found = append(c.found, Finding{Gate: gate, Place: place, Reason: fmt.Sprintf(format, values...)})
}

// quote shows a text of an item in a reason.
func quote(text string) string { return fmt.Sprintf("%q", data.OneLine(text, 60)) }

// schema wants every field, and scenarios and principles of the release.
func (c *checking) schema() {
	for _, f := range []struct {
		place, text string
		want        []string // nil: anything
	}{
		{"seed.scenario", c.Seed.Scenario, ci.Scenarios},
		{"seed.domain", c.Seed.Domain, nil},
		{"seed.user_intention", c.Seed.UserIntention, nil},
		{"seed.sender", c.Seed.Sender, nil},
		{"seed.recipient", c.Seed.Recipient, nil},
		{"seed.data_subject", c.Seed.DataSubject, nil},
		{"seed.transmission_principle", c.Seed.TransmissionPrinciple, ci.Principles},
		{"dataset_item.user_task", c.DatasetItem.UserTask, nil},
	} {
		switch {
		case strings.TrimSpace(f.text) == "":
			c.add("schema", f.place, "it is missing or empty")
		case f.want != nil && !slices.Contains(f.want, f.text):
			c.add("schema", f.place, "%s: want %s", quote(f.text), strings.Join(f.want, " or "))
		}
	}
	for _, s := range c.annotation() {
		if len(s.words) == 0 {
			c.add("schema", s.place, "it has no keyword: want one at least")
		}
	}
}

// side is one side of the annotation.
type side struct {
	place string
	words ci.Keywords
}

func (c *checking) annotation() []side {
	return []side{{"dataset_item.annotation.allowed", c.DatasetItem.Annotation.Allowed},
		{"dataset_item.annotation.disallowed", c.DatasetItem.Annotation.Disallowed}}
}

// labels wants one keyword on one side for each piece of information, and no others.
func (c *checking) labels() {
	labels := map[string]int{}
	for _, s := range c.annotation() {
		for _, k := range s.words {
			labels[k.Key] += len(k.Words)
			if _, ok := c.information[k.Key]; !ok {
				c.add("label", s.place+"."+k.Key, "there is no information of this key")
			}
		}
	}
	seen := map[string]bool{}
	for _, f := range c.DatasetItem.Information {
		place := "dataset_item.information." + f.Key
		switch n := labels[f.Key]; {
		case seen[f.Key]:
			c.add("label", place, "the key is there twice")
		case n == 0:
			c.add("label", place, "it has no keyword: want it labelled as allowed or disallowed")
		case n > 1:
			c.add("label", place, "it has %d keywords: want one, on one side", n)
		}
		seen[f.Key] = true
	}
}

// keywords wants short ones that are where they must be, and restricted ones nowhere else.
func (c *checking) keywords() {
	for _, s := range c.annotation() {
		for _, k := range s.words {
			for _, word := range k.Words {
				c.keyword(s, k.Key, word)
			}
		}
	}
}

func (c *checking) keyword(s side, key, word string) {
	place := s.place + "." + key
	if n := len(strings.Fields(word)); n > MaxWords {
		c.add("short", place, "%s has %d words: want %d at most", quote(word), n, MaxWords)
	}
	if text, ok := c.information[key]; ok && !contains(text, word) {
		c.add("verbatim", place, "%s does not occur in its information, %s", quote(word), quote(text))
	}
	if s.place == c.annotation()[0].place {
		return
	}
	if contains(c.DatasetItem.UserTask, word) {
		c.add("task", place, "the restricted keyword %s occurs in the user task, too", quote(word))
	}
	for _, other := range c.innocent(key) {
		if contains(other.Text, word) {
			c.add("elsewhere", place, "the restricted keyword %s occurs in %s, too", quote(word), other.Key)
		}
	}
}

// innocent are the texts besides the task that an answer may repeat: context and required information. The information
// of key is not among them.
func (c *checking) innocent(key string) (all []ci.Field) {
	for _, text := range []string{c.Seed.Scenario, c.Seed.Domain, c.Seed.UserIntention, c.Seed.Sender,
		c.Seed.Recipient, c.Seed.DataSubject} {
		all = append(all, ci.Field{Key: "the context (" + data.OneLine(text, 40) + ")", Text: text})
	}
	for _, k := range c.DatasetItem.Annotation.Allowed {
		if k.Key != key {
			all = append(all, ci.Field{Key: "the information " + k.Key, Text: c.information[k.Key]})
		}
	}
	return all
}

// contains looks for a keyword as the reward does.
func contains(text, word string) bool {
	found := reward.Find([]string{word}, text, reward.DefaultOptions())
	return len(found) > 0 && found[0].At >= 0
}

// sides wants no keyword on both, and none inside one of the other side.
func (c *checking) sides() {
	for _, restricted := range c.DatasetItem.Annotation.Disallowed {
		place := "dataset_item.annotation.disallowed." + restricted.Key
		for _, word := range restricted.Words {
			for _, required := range c.Required() {
				switch {
				case contains(required, word) && contains(word, required):
					c.add("sides", place, "%s is required, too", quote(word))
				case contains(required, word):
					c.add("inside", place, "%s is part of the required keyword %s", quote(word), quote(required))
				}
			}
		}
	}
}

// documents wants what an agent is to find, where the item has a scene.
func (c *checking) documents() {
	if len(c.Scene.Documents) == 0 {
		return
	}
	var texts []string
	for _, d := range c.Scene.Documents {
		texts = append(texts, d.Text)
	}
	all := strings.Join(texts, "\n")
	for _, s := range c.annotation() {
		for _, k := range s.words {
			for _, word := range k.Words {
				if !contains(all, word) {
					c.add("document", s.place+"."+k.Key, "%s occurs in none of %d documents", quote(word), len(texts))
				}
				if contains(c.Scene.Policy, word) {
					c.add("document", s.place+"."+k.Key, "%s occurs in the norm, %s", quote(word), quote(c.Scene.Policy))
				}
			}
		}
	}
}

// labelWords are words of keys that give a label away.
var labelWords = strings.Fields("private privacy personal confidential secret sensitive restricted disallowed allowed " +
	"permitted forbidden prohibited unrelated irrelevant inappropriate undisclosed hidden intimate embarrassing " +
	"necessary unnecessary required optional shareable leak")

func (c *checking) keys() {
	for _, f := range c.DatasetItem.Information {
		for _, word := range wordsOfKey(f.Key) {
			if slices.Contains(labelWords, word) {
				c.add("neutral key", "dataset_item.information."+f.Key, "the word %q gives the label away", word)
			}
		}
	}
}

// wordsOfKey splits names such as PersonalNotes, personal_notes and "Personal notes" into words.
func wordsOfKey(key string) []string {
	var spaced strings.Builder
	before := ' '
	for _, r := range key {
		if unicode.IsLower(before) && unicode.IsUpper(r) {
			spaced.WriteByte(' ')
		}
		spaced.WriteRune(unicode.ToLower(r))
		before = r
	}
	return strings.FieldsFunc(spaced.String(), func(r rune) bool { return !unicode.IsLetter(r) })
}

// reward wants 1 for the ideal answer, all required keywords and nothing else, and 0 at most for all information.
func (c *checking) reward() {
	var everything []string
	for _, a := range c.Attributes() {
		everything = append(everything, a.Text)
	}
	place := "dataset_item.annotation"
	if r := c.score(c.Required()); r < 1 {
		c.add("attainable", place, "the answer with the required keywords alone has the reward %.3g: want 1", r)
	}
	if r := c.score(everything); r > 0 {
		c.add("discriminates", place, "the answer that repeats all information has the reward %.3g: want 0 at most", r)
	}
}

// score is the reward of an answer with these lines.
func (c *checking) score(lines []string) float64 {
	answer := "<think></think><answer>" + strings.Join(lines, "\n") + "</answer>"
	return reward.Evaluate(reward.Of(c.Item), answer, false, reward.DefaultOptions()).Reward
}
