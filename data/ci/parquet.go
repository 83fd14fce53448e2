package ci

import (
	"io"

	"github.com/posttrain/posttrain/data/internal/rows"
)

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
