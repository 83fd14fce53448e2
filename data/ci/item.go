// Package ci holds contextual-integrity items: who asks whom for what, and which keywords the answer must hold or must
// not hold.
//
//  1. Read and ReadItems: the items of a file (item.go, forms.go), which data.WriteAll writes;
//  2. Split divides items into training, validation and test; Order seeds the order of an item's attributes (split.go);
//  3. Prompt puts an item to a model in one of three forms (prompt.go);
//  4. Synthesize makes small items from templates and open value spaces (synth.go, norms.json); Reference is
//     the ideal completion, Noisy a flawed one (miniature.go);
//  5. Plan.Draw draws the seeds of items that a model is to write (seeds.go).
//
// Package records says what is wrong with items as training data.
package ci

import (
	"fmt"
	"io/fs"

	"github.com/posttrain/posttrain/data"
)

// Item is one contextual-integrity scenario, in the field names of the set released with CI-RL: who asks whom for
// what, what the user's files hold, and which short verbatim keywords the answer must hold (allowed, here also called
// required) or must not hold (disallowed, restricted).
type Item struct {
	Seed        Seed        `json:"seed"`
	DatasetItem DatasetItem `json:"dataset_item"`
	Scene       Scene       `json:"scene,omitzero"` // for agents
	Source      string      `json:"-"`              // "dataset.json: row 41"
}

// Seed is the context that a scenario was made from.
type Seed struct {
	Scenario        string          `json:"scenario"` // "email" or "chat messages"
	Domain          string          `json:"domain"`
	UserIntention   string          `json:"user_intention"`
	Sender          string          `json:"sender"`
	Recipient       string          `json:"recipient"`
	DataSubject     string          `json:"data_subject"`
	InformationType InformationType `json:"information_type"`
	// Confidentiality, Proportionality or Consent
	TransmissionPrinciple string `json:"transmission_principle"`
}

// InformationType lists in words what may flow and what may not.
type InformationType struct {
	Allowed    []string `json:"allowed"`
	Disallowed []string `json:"disallowed"`
	Reasoning  string   `json:"reasoning,omitempty"`
}

// DatasetItem is the scenario itself.
type DatasetItem struct {
	UserTask    string     `json:"user_task"`
	Information Fields     `json:"information"`
	Annotation  Annotation `json:"annotation"`
}

// Annotation holds the keywords, under the keys of the information they stand in.
type Annotation struct {
	Allowed    Keywords `json:"allowed"`
	Disallowed Keywords `json:"disallowed"`
}

// Fields is an ordered JSON object of texts.
type Fields []Field

// Field is one piece of information. A value that the file has as a list becomes its elements, one a line; an object
// becomes its "key: value" lines; a number its digits.
type Field struct {
	Key  string
	Text string
}

// Keywords is an ordered JSON object of keywords.
type Keywords []Keyword

// Keyword holds the keywords of one key, trimmed and not empty: one for a string or number, one for each element of
// a list, one for each value of an object.
type Keyword struct {
	Key   string
	Words []string
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

// Which items of a file are read.
const (
	AllItems      = "all"
	ReleasedItems = "released"
)

// Read reads contextual-integrity items from a .json, .jsonl or .parquet file, each also with .gz. In parquet, the
// objects with free keys may be lists of {key, text} and {key, words} (these keep their order), maps, structs with one
// field for every key of the set (null where an item lacks it), or texts of JSON. Read drops no item. An item without
// the required fields is an error that names the row. What is odd about items is for package records to say.
func Read(path string) ([]Item, *data.Report, error) { return ReadItems(path, AllItems) }

// ReadItems is Read of all items of a file, or of the released ones: without those that the released preprocessing
// drops, because a keyword, or the information that it is for, is no string. The Report counts them. A value that has
// been written as text is a string.
func ReadItems(path, which string) ([]Item, *data.Report, error) { return readFrom(nil, path, which) }

func readFrom(fsys fs.FS, path, which string) ([]Item, *data.Report, error) {
	return data.Map(Stream(fsys, path, which), func(r Raw) Item { return r.Item }).Collect()
}

// Stream is ReadItems without keeping the items, which come with the values of their file. fsys nil is the operating
// system's.
func Stream(fsys fs.FS, path, which string) *data.Stream[Raw] {
	in := data.JSONRows(fsys, path, "seed", "dataset_item")
	return data.NewStream(path, in, func(r data.Row, _ *data.Report) (raw Raw, why string, err error) {
		raw.Item, err = itemOf(r.Text)
		raw.Source, raw.Values = r.Source, valuesOf(r.Text)
		if err == nil && which == ReleasedItems && !raw.Released() {
			why = "a keyword, or the information that it is for, is no string"
		}
		return raw, why, err
	})
}

// itemOf decodes an item.
func itemOf(text []byte) (item Item, err error) {
	if err := data.Unmarshal(text, &item); err != nil {
		return item, err
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
			return item, fmt.Errorf("%s is missing or empty: want seed and dataset_item "+
				"{user_task, information, annotation {allowed, disallowed}}", missing.field)
		}
	}
	return item, nil
}
