package ci

import (
	"fmt"
	"io"
	"strings"

	"github.com/posttrain/posttrain/data/internal/rows"
)

// UnmarshalJSON keeps the order of the keys and makes texts of the values.
func (f *Fields) UnmarshalJSON(text []byte) error {
	return rows.EachKey(text, "information", func(key string, value any) error {
		*f = append(*f, Field{key, flatText(value)})
		return nil
	})
}

// UnmarshalJSON keeps the order of the keys and makes keywords of the values.
func (k *Keywords) UnmarshalJSON(text []byte) error {
	return rows.EachKey(text, "annotation", func(key string, value any) error {
		if words := flatWords(value); len(words) > 0 {
			*k = append(*k, Keyword{key, words})
		}
		return nil
	})
}

// MarshalJSON writes an object in the order of the fields.
func (f Fields) MarshalJSON() ([]byte, error) {
	return rows.MarshalObject(len(f), func(i int) (string, any) { return f[i].Key, f[i].Text })
}

// MarshalJSON writes an object in the order of the keys, a single keyword as a string.
func (k Keywords) MarshalJSON() ([]byte, error) {
	return rows.MarshalObject(len(k), func(i int) (string, any) {
		if len(k[i].Words) == 1 {
			return k[i].Key, k[i].Words[0]
		}
		return k[i].Key, k[i].Words
	})
}

// flatText writes a value as text: list elements one a line, objects as "key: value" lines.
func flatText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		lines := make([]string, len(v))
		for i, x := range v {
			lines[i] = flatText(x)
		}
		return strings.Join(lines, "\n")
	case rows.Object:
		lines := make([]string, len(v))
		for i, e := range v {
			lines[i] = e.Key + ": " + flatText(e.Value)
		}
		return strings.Join(lines, "\n")
	}
	return fmt.Sprint(value)
}

// flatWords lists the strings and numbers inside a value, trimmed, empty ones left out.
func flatWords(value any) []string {
	switch v := value.(type) {
	case nil:
		return nil
	case []any:
		var words []string
		for _, x := range v {
			words = append(words, flatWords(x)...)
		}
		return words
	case rows.Object:
		var words []string
		for _, e := range v {
			words = append(words, flatWords(e.Value)...)
		}
		return words
	}
	if word := strings.TrimSpace(flatText(value)); word != "" {
		return []string{word}
	}
	return nil
}

// record is a Item as a parquet row.
type record struct {
	Seed struct {
		Scenario              string   `parquet:"scenario"`
		Domain                string   `parquet:"domain"`
		UserIntention         string   `parquet:"user_intention"`
		Sender                string   `parquet:"sender"`
		Recipient             string   `parquet:"recipient"`
		DataSubject           string   `parquet:"data_subject"`
		InformationType       typesRow `parquet:"information_type"`
		TransmissionPrinciple string   `parquet:"transmission_principle"`
	} `parquet:"seed"`
	DatasetItem struct {
		UserTask    string     `parquet:"user_task"`
		Information []fieldRow `parquet:"information,list"`
		Annotation  struct {
			Allowed    []keywordRow `parquet:"allowed,list"`
			Disallowed []keywordRow `parquet:"disallowed,list"`
		} `parquet:"annotation"`
	} `parquet:"dataset_item"`
}

type typesRow struct {
	Allowed    []string `parquet:"allowed,list,optional"`
	Disallowed []string `parquet:"disallowed,list,optional"`
	Reasoning  string   `parquet:"reasoning,optional"`
}

type fieldRow struct {
	Key  string `parquet:"key"`
	Text string `parquet:"text"`
}

type keywordRow struct {
	Key   string   `parquet:"key"`
	Words []string `parquet:"words,list"`
}

// writeParquet writes items.
func writeParquet(w io.Writer, items []Item) error {
	records := make([]record, len(items))
	for i := range items {
		records[i] = recordOf(&items[i])
	}
	return rows.WriteParquet(w, records)
}

func recordOf(c *Item) (r record) {
	s, d := c.Seed, &r.DatasetItem
	r.Seed.Scenario, r.Seed.Domain, r.Seed.UserIntention = s.Scenario, s.Domain, s.UserIntention
	r.Seed.Sender, r.Seed.Recipient, r.Seed.DataSubject = s.Sender, s.Recipient, s.DataSubject
	r.Seed.InformationType, r.Seed.TransmissionPrinciple = typesRow(s.InformationType), s.TransmissionPrinciple
	d.UserTask = c.DatasetItem.UserTask
	for _, f := range c.DatasetItem.Information {
		d.Information = append(d.Information, fieldRow(f))
	}
	d.Annotation.Allowed = keywordRows(c.DatasetItem.Annotation.Allowed)
	d.Annotation.Disallowed = keywordRows(c.DatasetItem.Annotation.Disallowed)
	return r
}

func keywordRows(keywords Keywords) (rows []keywordRow) {
	for _, k := range keywords {
		rows = append(rows, keywordRow(k))
	}
	return rows
}
