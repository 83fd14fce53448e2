package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// maxAround bounds the tokens around a text of one step; models have one or two.
const maxAround = 1 << 10

// A postProcessor adds ids before and after a text's.
type postProcessor struct{ before, after []int32 }

// postProcessors read tokenizer.json's post_processor.
var postProcessors = stage[postProcessor]{
	list: "processors",
	join: func(steps []postProcessor) (all postProcessor) {
		for _, p := range steps {
			all.before, all.after = slices.Concat(p.before, all.before), slices.Concat(all.after, p.after)
		}
		return all
	},
	want: "TemplateProcessing, ByteLevel or Sequence",
	types: map[string]reader[postProcessor]{
		"ByteLevel":          always(postProcessor{}), // only changes offsets
		"TemplateProcessing": readTemplateProcessing,
	},
}

// readTemplateProcessing reads the form for a single text: special tokens around one {"Sequence": {"id": "A"}}.
func readTemplateProcessing(raw json.RawMessage, at string) (p postProcessor, err error) {
	var spec struct {
		Single []struct {
			Sequence     *struct{ ID string }
			SpecialToken *struct{ ID string }
		}
		Special map[string]struct{ IDs []int32 } `json:"special_tokens"`
	}
	if err := unmarshal(raw, at, &spec); err != nil {
		return p, err
	}
	texts := 0
	for i, part := range spec.Single {
		at := fmt.Sprintf("%s.single[%d]", at, i)
		switch {
		case part.Sequence != nil && part.Sequence.ID == "A":
			texts++
		case part.SpecialToken != nil:
			token, ok := spec.Special[part.SpecialToken.ID]
			if !ok {
				return p, fmt.Errorf("%s: special token %q is not in special_tokens", at, part.SpecialToken.ID)
			}
			if i := slices.IndexFunc(token.IDs, func(id int32) bool { return id < 0 }); i >= 0 {
				return p, fmt.Errorf("%s: special token %q has the id %d: want 0 or more", at, part.SpecialToken.ID,
					token.IDs[i])
			}
			if texts == 0 {
				p.before = append(p.before, token.IDs...)
			} else {
				p.after = append(p.after, token.IDs...)
			}
		default:
			return p, fmt.Errorf(`%s: want {"SpecialToken": {"id": ...}} or {"Sequence": {"id": "A"}}`, at)
		}
	}
	if n := len(p.before) + len(p.after); n > maxAround {
		return p, fmt.Errorf("%s.single: found %d tokens around the text, want at most %d", at, n, maxAround)
	}
	if texts != 1 {
		return p, fmt.Errorf("%s.single: holds the text %d times, want once", at, texts)
	}
	return p, nil
}
