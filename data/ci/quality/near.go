package quality

import (
	"fmt"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/near"
)

// Duplicates finds the items that have a share near of their triples of words in common with an earlier one.
func Duplicates(items []ci.Item, share float64) []Finding {
	var all []Finding
	index := near.New(share)
	for i := range items {
		if earlier, common, found := index.Add(uint32(i), Texts(&items[i])...); found {
			all = append(all, Finding{Duplicate, i, "dataset_item", fmt.Sprintf(
				"%.0f %% of its triples of words are those of %s", 100*common, nameOf(items, int(earlier)))})
		}
	}
	return all
}

func nameOf(items []ci.Item, i int) string {
	if items[i].Source != "" {
		return items[i].Source
	}
	return fmt.Sprintf("item %d", i+1)
}

// Texts are what duplicates have in common: the task and each piece of information.
func Texts(item *ci.Item) []string {
	texts := []string{item.DatasetItem.UserTask}
	for _, f := range item.DatasetItem.Information {
		texts = append(texts, f.Text)
	}
	return texts
}
