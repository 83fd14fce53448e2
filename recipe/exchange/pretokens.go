package exchange

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// object is a JSON object to write.
type object = map[string]any

// pretokenizer is how a byte-level BPE cuts a text into words. llama.cpp has names for the ways that it knows.
type pretokenizer struct {
	names   []string // llama.cpp's; the first is written
	pattern string   // "": GPT-2's, by ByteLevel
	digits  bool     // every digit is a word
	nfc     bool     // the text is normalised to NFC first. llama.cpp does not
	whole   bool     // a word of the vocabulary is taken without merges
	bos     bool     // the text begins with BOS where the file does not say
}

const contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`

var pretokenizers = []pretokenizer{
	{names: []string{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de"}},
	{names: []string{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"}, digits: true},
	{names: []string{"qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"}, nfc: true, pattern: contractions +
		`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	{names: []string{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"}, whole: true, bos: true,
		pattern: contractions +
			`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	{names: []string{"gpt-4o", "llama4"}, whole: true, pattern: `[^\r\n\p{L}\p{N}]?` +
		`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` + contractions + `?|[^\r\n\p{L}\p{N}]?` +
		`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` + contractions +
		`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	{names: []string{"tekken"}, whole: true, bos: true, pattern: `[^\r\n\p{L}\p{N}]?` +
		`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?` +
		`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|` +
		`\s+(?!\S)|\s+`},
}

// preNamed finds a way to cut by llama.cpp's name.
func preNamed(name string) (pretokenizer, error) {
	var known []string
	for _, p := range pretokenizers {
		if slices.Contains(p.names, name) {
			return p, nil
		}
		known = append(known, p.names...)
	}
	return pretokenizer{}, fmt.Errorf("found %q, want %s", name, strings.Join(known, ", "))
}

// parts are the pre_tokenizer of tokenizer.json.
func (p pretokenizer) parts() any {
	level := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": p.pattern == ""}
	var steps []any
	if p.digits {
		steps = append(steps, object{"type": "Digits", "individual_digits": true})
	}
	if p.pattern != "" {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": p.pattern}, "behavior": "Isolated",
			"invert": false})
	}
	if len(steps) == 0 {
		return level
	}
	return object{"type": "Sequence", "pretokenizers": append(steps, level)}
}

// step is a part of a pre_tokenizer, with the options that change words.
type step struct {
	Type       string
	Steps      []step `json:"pretokenizers"`
	Individual bool   `json:"individual_digits"`
	Pattern    struct{ Regex string }
	Behavior   string
	Invert     bool
	Prefix     *bool `json:"add_prefix_space"`
	UseRegex   *bool `json:"use_regex"`
}

// shape writes a pre_tokenizer as a line, for comparison.
func (s step) shape() string {
	unless := func(b *bool) bool { return b == nil || *b } // both options are on where they are absent
	switch s.Type {
	case "Sequence":
		var all []string
		for _, one := range s.Steps {
			all = append(all, one.shape())
		}
		return strings.Join(all, ", then ")
	case "Split":
		return fmt.Sprintf("Split %s %s %v", s.Pattern.Regex, s.Behavior, s.Invert)
	case "Digits":
		return fmt.Sprintf("Digits %v", s.Individual)
	case "ByteLevel":
		return fmt.Sprintf("ByteLevel %v %v", unless(s.Prefix), unless(s.UseRegex))
	}
	return s.Type
}

// preOf finds llama.cpp's name of a pre_tokenizer.
func preOf(raw json.RawMessage) (string, error) {
	var found step
	if err := json.Unmarshal(raw, &found); err != nil {
		return "", fmt.Errorf("tokenizer.json: pre_tokenizer: %w", err)
	}
	var known []string
	for _, p := range pretokenizers {
		text, err := json.Marshal(p.parts())
		var own step
		if err == nil {
			err = json.Unmarshal(text, &own)
		}
		if err != nil {
			return "", err
		}
		if own.shape() == found.shape() {
			return p.names[0], nil
		}
		known = append(known, p.names[0])
	}
	return "", fmt.Errorf("tokenizer.json: pre_tokenizer: found one (%s) that llama.cpp has no name for: want that of "+
		"%s, or a vocabulary of SentencePiece's kind", found.shape(), strings.Join(known, ", "))
}
