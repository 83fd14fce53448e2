package ci

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/posttrain/posttrain/data"
)

// Value is a value of an item's information or annotation as its file has it.
type Value struct {
	What  string // InformationValue or KeywordValue
	Place string // "dataset_item.information.Notes"
	Key   string // "Notes"
	Kind  string // "a string", "a list", "an object", "a number", "null"
}

// What a Value is.
const (
	InformationValue = "information value"
	KeywordValue     = "keyword"
)

// IsString says whether nothing was made of the value.
func (v Value) IsString() bool { return v.Kind == "a string" }

// Raw is an item with what its file has in place of texts.
type Raw struct {
	Item
	Values []Value // in the order of the file, information first
}

// valuesOf lists the values of an item's JSON.
func valuesOf(text []byte) (all []Value) {
	var raw struct {
		Item struct {
			Information json.RawMessage            `json:"information"`
			Annotation  map[string]json.RawMessage `json:"annotation"`
		} `json:"dataset_item"`
	}
	if json.Unmarshal(text, &raw) != nil {
		return nil
	}
	each := func(text []byte, what, place string) {
		data.EachKey(text, what, func(key string, value any) error {
			all = append(all, Value{what, "dataset_item." + place + "." + key, key, data.KindOf(value)})
			return nil
		})
	}
	each(raw.Item.Information, InformationValue, "information")
	for _, side := range slices.Sorted(maps.Keys(raw.Item.Annotation)) {
		each(raw.Item.Annotation[side], KeywordValue, "annotation."+side)
	}
	return all
}

// Released says that the released preprocessing keeps the item: every keyword is a string, and so is the information
// under its key.
func (r *Raw) Released() bool {
	keeps, strings := true, map[string]bool{}
	for _, v := range r.Values {
		switch {
		case v.What == InformationValue:
			strings[v.Key] = v.IsString()
		case v.Kind != "null": // null: the item lacks the key
			keeps = keeps && v.IsString() && strings[v.Key]
		}
	}
	return keeps
}
