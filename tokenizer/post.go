package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A postProcessor puts ids around those of a text.
type postProcessor struct{ before, after []int32 }

// readPostProcessor reads tokenizer.json's post_processor.
func readPostProcessor(raw json.RawMessage, at string) (postProcessor, error) {
	kind, err := kindOf(raw, at)
	if err != nil {
		return postProcessor{}, err
	}
	switch kind {
	case "", "ByteLevel": // ByteLevel only moves offsets
		return postProcessor{}, nil
	case "TemplateProcessing":
		return readTemplateProcessing(raw, at)
	case "Sequence":
		return readPostProcessors(raw, at)
	}
	return postProcessor{}, fmt.Errorf("%s.type %q: want TemplateProcessing, ByteLevel or Sequence", at, kind)
}

func readPostProcessors(raw json.RawMessage, at string) (all postProcessor, err error) {
	var spec struct{ Processors []json.RawMessage }
	if err := unmarshal(raw, at, &spec); err != nil {
		return all, err
	}
	for i, r := range spec.Processors {
		p, err := readPostProcessor(r, fmt.Sprintf("%s.processors[%d]", at, i))
		if err != nil {
			return all, err
		}
		all.before, all.after = slices.Concat(p.before, all.before), slices.Concat(all.after, p.after)
	}
	return all, nil
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
		switch {
		case part.Sequence != nil && part.Sequence.ID == "A":
			texts++
		case part.SpecialToken != nil:
			token, ok := spec.Special[part.SpecialToken.ID]
			if !ok {
				return p, fmt.Errorf("%s.single[%d]: special token %q is not in special_tokens", at, i, part.SpecialToken.ID)
			}
			if texts == 0 {
				p.before = append(p.before, token.IDs...)
			} else {
				p.after = append(p.after, token.IDs...)
			}
		default:
			return p, fmt.Errorf(`%s.single[%d]: want {"SpecialToken": {"id": ...}} or {"Sequence": {"id": "A"}}`, at, i)
		}
	}
	if texts != 1 {
		return p, fmt.Errorf("%s.single: holds the text %d times, want once", at, texts)
	}
	return p, nil
}
