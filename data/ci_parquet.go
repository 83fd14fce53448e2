package data

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// ciRecord is a CIItem as a parquet row.
type ciRecord struct {
	Seed struct {
		Scenario              string     `parquet:"scenario"`
		Domain                string     `parquet:"domain"`
		UserIntention         string     `parquet:"user_intention"`
		Sender                string     `parquet:"sender"`
		Recipient             string     `parquet:"recipient"`
		DataSubject           string     `parquet:"data_subject"`
		InformationType       ciTypesRow `parquet:"information_type"`
		TransmissionPrinciple string     `parquet:"transmission_principle"`
	} `parquet:"seed"`
	DatasetItem struct {
		UserTask    string       `parquet:"user_task"`
		Information []ciFieldRow `parquet:"information,list"`
		Annotation  struct {
			Allowed    []ciKeywordRow `parquet:"allowed,list"`
			Disallowed []ciKeywordRow `parquet:"disallowed,list"`
		} `parquet:"annotation"`
	} `parquet:"dataset_item"`
}

type ciTypesRow struct {
	Allowed    []string `parquet:"allowed,list,optional"`
	Disallowed []string `parquet:"disallowed,list,optional"`
	Reasoning  string   `parquet:"reasoning,optional"`
}

type ciFieldRow struct {
	Key  string `parquet:"key"`
	Text string `parquet:"text"`
}

type ciKeywordRow struct {
	Key   string   `parquet:"key"`
	Words []string `parquet:"words,list"`
}

// ciParquet writes items.
func ciParquet(w io.Writer, items []CIItem) error {
	rows := make([]ciRecord, len(items))
	for i := range items {
		rows[i] = ciRecordOf(&items[i])
	}
	return writeParquet(w, rows)
}

func ciRecordOf(c *CIItem) (r ciRecord) {
	s, d := c.Seed, &r.DatasetItem
	r.Seed.Scenario, r.Seed.Domain, r.Seed.UserIntention = s.Scenario, s.Domain, s.UserIntention
	r.Seed.Sender, r.Seed.Recipient, r.Seed.DataSubject = s.Sender, s.Recipient, s.DataSubject
	r.Seed.InformationType, r.Seed.TransmissionPrinciple = ciTypesRow(s.InformationType), s.TransmissionPrinciple
	d.UserTask = c.DatasetItem.UserTask
	for _, f := range c.DatasetItem.Information {
		d.Information = append(d.Information, ciFieldRow(f))
	}
	d.Annotation.Allowed = keywordRows(c.DatasetItem.Annotation.Allowed)
	d.Annotation.Disallowed = keywordRows(c.DatasetItem.Annotation.Disallowed)
	return r
}

func keywordRows(keywords CIKeywords) (rows []ciKeywordRow) {
	for _, k := range keywords {
		rows = append(rows, ciKeywordRow(k))
	}
	return rows
}

// parquetTexts reads the rows of a parquet file as the JSON texts of CIItems; other columns are left alone. Null fields
// are left out, texts that are JSON objects are taken as such, and the fields of a struct or map stand in the order of
// their names.
func parquetTexts(name string, r io.Reader) rawSeq {
	return func(yield func(rawRow, error) bool) {
		for row, err := range parquetRows(name, r) {
			var text []byte
			if err == nil {
				if text, err = ciText(row.fields); err != nil {
					err = fmt.Errorf("%s: %w", row.source, err)
				}
			}
			if !yield(rawRow{row.source, text}, err) || err != nil {
				return
			}
		}
	}
}

func ciText(fields map[string]any) (text []byte, err error) {
	defer recovered(&err) // reflection meets whatever types the library makes up
	object := map[string]any{}
	for _, column := range []string{"seed", "dataset_item"} {
		value, err := tidy(column, reflect.ValueOf(fields[column]))
		if err != nil {
			return nil, err
		}
		if s, ok := value.(string); ok && strings.HasPrefix(s, "{") && json.Valid([]byte(s)) {
			value = json.RawMessage(s)
		}
		object[column] = value
	}
	if text, err = marshal(object); err != nil {
		return nil, fmt.Errorf("%s: want text, finite numbers, and lists and objects of them", strings.TrimPrefix(err.Error(), "json: "))
	}
	return text, nil
}

// tidy makes a value of the parquet reader one that JSON knows. The values of a parquet map come as pointers, bytes and
// structs of the reader's own making.
func tidy(at string, v reflect.Value) (any, error) {
	switch v.Kind() {
	case reflect.Invalid:
		return nil, nil
	case reflect.Pointer, reflect.Interface:
		return tidy(at, v.Elem()) // the zero Value of a nil
	case reflect.String:
		return tidyText(at, v.String())
	case reflect.Map:
		return tidyMap(at, v)
	case reflect.Struct:
		return tidyStruct(at, v)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
			return tidyText(at, string(v.Bytes()))
		}
		return tidyList(at, v)
	}
	return v.Interface(), nil
}

func tidyText(at, s string) (any, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%s is not valid UTF-8", at)
	}
	return s, nil
}

func tidyList(at string, v reflect.Value) (any, error) {
	list := make([]any, v.Len())
	for i := range list {
		var err error
		if list[i], err = tidy(at, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func tidyMap(at string, v reflect.Value) (any, error) {
	object := map[string]any{}
	for key, value := range v.Seq2() {
		name := fmt.Sprint(key.Interface())
		tidied, err := tidy(at+"."+name, value)
		if err != nil {
			return nil, err
		}
		if _, err := tidyText(at, name); err != nil {
			return nil, err
		}
		if tidied != nil {
			object[name] = tidied
		}
	}
	return object, nil
}

// tidyStruct undoes the wrapping that a list inside a map has: {List [{Element x}, …]}.
func tidyStruct(at string, v reflect.Value) (any, error) {
	if v.NumField() == 1 {
		return tidy(at, v.Field(0))
	}
	object := map[string]any{}
	for i := range v.NumField() {
		name := strings.Split(v.Type().Field(i).Tag.Get("parquet"), ",")[0]
		tidied, err := tidy(at+"."+name, v.Field(i))
		if err != nil {
			return nil, err
		}
		if tidied != nil {
			object[name] = tidied
		}
	}
	return object, nil
}
