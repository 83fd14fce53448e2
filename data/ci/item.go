// Package ci holds contextual-integrity items: who asks whom for what, and which keywords the answer must hold or must
// not hold.
//
//  1. Read, ReadItems and Write: the items of a file, with its oddities counted in a data.Report (item.go, forms.go);
//  2. Split divides items into training, validation and test; Order seeds the order of an item's attributes (split.go);
//  3. Prompt puts an item to a model in one of three forms (prompt.go);
//  4. Synthesize makes small items from templates and open value spaces (synth.go, norms.json); Reference is
//     the ideal completion, Noisy a flawed one (miniature.go);
//  5. Plan.Draw draws the seeds of items that are to be written, ReadSeeds reads them; Compose writes an item of a seed
//     by the same templates (seeds.go).
//
// Package quality says what is wrong with items as training data.
package ci

import (
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/data"
)

// Item is one contextual-integrity scenario, in the field names of the set released with CI-RL: who asks whom for
// what, what the user's files hold, and which short verbatim keywords the answer must hold (allowed, here also called
// required) or must not hold (disallowed, restricted).
type Item struct {
	Seed        Seed        `json:"seed" parquet:"seed"`
	DatasetItem DatasetItem `json:"dataset_item" parquet:"dataset_item"`
	Source      string      `json:"-" parquet:"-"` // "dataset.json: row 41"
}

// Seed is the context that a scenario was made from.
type Seed struct {
	Scenario        string          `json:"scenario" parquet:"scenario"` // "email" or "chat messages"
	Domain          string          `json:"domain" parquet:"domain"`
	UserIntention   string          `json:"user_intention" parquet:"user_intention"`
	Sender          string          `json:"sender" parquet:"sender"`
	Recipient       string          `json:"recipient" parquet:"recipient"`
	DataSubject     string          `json:"data_subject" parquet:"data_subject"`
	InformationType InformationType `json:"information_type" parquet:"information_type"`
	// Confidentiality, Proportionality or Consent
	TransmissionPrinciple string `json:"transmission_principle" parquet:"transmission_principle"`
}

// InformationType lists in words what may flow and what may not.
type InformationType struct {
	Allowed    []string `json:"allowed" parquet:"allowed,list,optional"`
	Disallowed []string `json:"disallowed" parquet:"disallowed,list,optional"`
	Reasoning  string   `json:"reasoning,omitempty" parquet:"reasoning,optional"`
}

// DatasetItem is the scenario itself.
type DatasetItem struct {
	UserTask    string     `json:"user_task" parquet:"user_task"`
	Information Fields     `json:"information" parquet:"information,list"`
	Annotation  Annotation `json:"annotation" parquet:"annotation"`
}

// Annotation holds the keywords, under the keys of the information they stand in.
type Annotation struct {
	Allowed    Keywords `json:"allowed" parquet:"allowed,list"`
	Disallowed Keywords `json:"disallowed" parquet:"disallowed,list"`
}

// Fields is an ordered JSON object of texts.
type Fields []Field

// Field is one piece of information. A value that the file has as a list becomes its elements, one a line; an object
// becomes its "key: value" lines; a number its digits.
type Field struct {
	Key  string `parquet:"key"`
	Text string `parquet:"text"`
}

// Keywords is an ordered JSON object of keywords.
type Keywords []Keyword

// Keyword holds the keywords of one key, trimmed and not empty: one for a string or number, one for each element of
// a list, one for each value of an object.
type Keyword struct {
	Key   string   `parquet:"key"`
	Words []string `parquet:"words,list"`
}

// Required are all keywords that the answer must hold, in file order; a keyword with two annotations comes twice.
func (c *Item) Required() []string { return c.DatasetItem.Annotation.Allowed.words() }

// Restricted are all keywords that the answer must not hold, like Required.
func (c *Item) Restricted() []string { return c.DatasetItem.Annotation.Disallowed.words() }

func (k Keywords) words() []string {
	var all []string
	for _, entry := range k {
		all = append(all, entry.Words...)
	}
	return all
}

// of returns the keywords of a key.
func (k Keywords) of(key string) []string {
	for _, entry := range k {
		if entry.Key == key {
			return entry.Words
		}
	}
	return nil
}

// Attribute is a piece of information with its keywords.
type Attribute struct {
	Key, Text            string
	Required, Restricted []string
}

// Attributes are the pieces of information that carry an annotation, in file order: those that a prompt lists.
func (c *Item) Attributes() []Attribute {
	var all []Attribute
	for _, field := range c.DatasetItem.Information {
		required := c.DatasetItem.Annotation.Allowed.of(field.Key)
		restricted := c.DatasetItem.Annotation.Disallowed.of(field.Key)
		if len(required)+len(restricted) > 0 {
			all = append(all, Attribute{field.Key, field.Text, required, restricted})
		}
	}
	return all
}

// Read reads contextual-integrity items from a .json, .jsonl or .parquet file, each also with .gz. In parquet, the
// objects with free keys may be lists of {key, text} and {key, words}, as Write writes them (these keep their order),
// maps, structs with one field for every key of the set (null where an item lacks it), or texts of JSON. Read drops no
// item. The Report counts as warts the keywords that do not occur in their information, that are on both sides, or that
// make the full reward unreachable. An item without the required fields is an error that names the row.
func Read(path string) ([]Item, *data.Report, error) { return readFS(nil, path) }

// Which items of a file are read.
const (
	AllItems      = "all"
	ReleasedItems = "released"
)

// ReadItems is Read of all items of a file, or of the released ones: without those that the released preprocessing
// drops, because a keyword, or the information that it is for, is no string. The Report counts them. A value that has
// been written as text, as Write does, is a string.
func ReadItems(path, which string) ([]Item, *data.Report, error) {
	if which == ReleasedItems {
		return stream(nil, path, releasedOfRow).Collect()
	}
	return Read(path)
}

func readFS(fsys fs.FS, path string) ([]Item, *data.Report, error) {
	return stream(fsys, path, itemOfRow).Collect()
}

// Stream is Read without keeping the items.
func Stream(path string) *data.Stream[Item] { return stream(nil, path, itemOfRow) }

func stream(
	fsys fs.FS, path string, of func(data.Row, *data.Report) (item Item, why string, err error),
) *data.Stream[Item] {
	return data.NewStream(path, data.JSONRows(fsys, path, "seed", "dataset_item"), of)
}

func releasedOfRow(r data.Row, report *data.Report) (Item, string, error) {
	if _, _, err := itemOf(r.Text); err == nil && !released(r.Text) {
		return Item{}, "a keyword, or the information that it is for, is no string", nil
	}
	return itemOfRow(r, report)
}

func itemOfRow(r data.Row, report *data.Report) (Item, string, error) {
	item, warts, err := itemOf(r.Text)
	if err != nil {
		return item, "", err
	}
	item.Source = r.Source
	for _, wart := range append(warts, item.Oddities()...) {
		report.Wart(wart, r.Source)
	}
	return item, "", nil
}

// Write writes items in the release's shape, by the extension of the file's name: .json (an array, one item a line),
// .jsonl or .parquet, each also with .gz; whole or not at all. Values keep the text that Read made of them. In parquet,
// information is a list of {key, text} and each side of the annotation a list of {key, words}.
func Write(path string, items []Item) error { return WriteSeq(path, data.Values(items)) }

// WriteSeq is Write of items that need not be in memory. An error among them ends the writing.
func WriteSeq(path string, items iter.Seq2[Item, error]) error {
	return data.Table{
		Values: func(yield func(any, error) bool) {
			for item, err := range items {
				if !yield(&item, err) || err != nil {
					return
				}
			}
		},
		Parquet: func(w io.Writer) error {
			return data.WriteParquet(w, items, parquet.NewSchema("record", parquet.SchemaOf(Item{})))
		},
	}.Write(path)
}

// itemOf decodes an item; warts are the kinds of values that it made texts of.
func itemOf(text []byte) (item Item, warts []string, err error) {
	if err := data.Unmarshal(text, &item); err != nil {
		return item, nil, err
	}
	for _, missing := range []struct {
		field string
		is    bool
	}{
		{"seed.domain", item.Seed.Domain == ""},
		{"dataset_item.user_task", item.DatasetItem.UserTask == ""},
		{"dataset_item.information", len(item.DatasetItem.Information) == 0},
		{"dataset_item.annotation", len(item.Required())+len(item.Restricted()) == 0},
	} {
		if missing.is {
			return item, nil, fmt.Errorf("%s is missing or empty: want seed and dataset_item "+
				"{user_task, information, annotation {allowed, disallowed}}", missing.field)
		}
	}
	return item, otherKinds(text), nil
}

// Oddities that package quality has no gate for.
const (
	Repeated    = "a keyword is annotated twice on one side"
	NotInPrompt = "a required keyword is not in the prompt: only a guess reaches the full reward"
)

// Oddities are the remarks about an item that a reader counts. As in the reward, a keyword matches as a substring,
// upper or lower case.
func (c *Item) Oddities() []string {
	var warts []string
	add := func(is bool, what string) {
		if is {
			warts = append(warts, what)
		}
	}
	required, restricted := lower(c.Required()), lower(c.Restricted())
	add(len(required) == 0, "no required keyword")
	add(len(restricted) == 0, "no restricted keyword")
	add(repeats(required) || repeats(restricted), Repeated)
	both := slices.ContainsFunc(restricted, func(d string) bool { return slices.Contains(required, d) })
	add(both, "a keyword is on both sides")
	inside := slices.ContainsFunc(restricted, func(d string) bool {
		return slices.ContainsFunc(required, func(a string) bool { return strings.Contains(a, d) })
	})
	add(inside, "a restricted keyword is part of a required one: the full reward cannot be reached")
	task := strings.ToLower(c.DatasetItem.UserTask)
	inTask := slices.ContainsFunc(restricted, func(d string) bool { return strings.Contains(task, d) })
	add(inTask, "the user task contains a restricted keyword")
	add(c.strayKeyword(), "a keyword does not occur in its information")
	prompt := strings.ToLower(c.taskText(0))
	absent := slices.ContainsFunc(required, func(a string) bool { return !strings.Contains(prompt, a) })
	add(absent, NotInPrompt)
	return warts
}

// strayKeyword says whether the text of some key lacks one of its keywords.
func (c *Item) strayKeyword() bool {
	texts := map[string]string{}
	for _, f := range c.DatasetItem.Information {
		texts[f.Key] = strings.ToLower(f.Text)
	}
	for _, entry := range slices.Concat(c.DatasetItem.Annotation.Allowed, c.DatasetItem.Annotation.Disallowed) {
		for _, word := range lower(entry.Words) {
			if !strings.Contains(texts[entry.Key], word) {
				return true
			}
		}
	}
	return false
}

func lower(words []string) []string {
	low := make([]string, len(words))
	for i, w := range words {
		low[i] = strings.ToLower(w)
	}
	return low
}

func repeats(words []string) bool {
	sorted := slices.Sorted(slices.Values(words))
	return len(slices.Compact(sorted)) < len(words)
}
