package exchange

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/gguf"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/tokenizer"
)

// entries are keys under construction.
type entries []gguf.Entry

func (e *entries) add(key string, v any) { *e = append(*e, gguf.Entry{Key: key, Value: v}) }

// tokenizerEntries are the metadata of a tokenizer, with a token for each row of the embedding.
func tokenizerEntries(t *tokenizer.Tokenizer, c *model.Config) (out entries, err error) {
	tokens, types := tokenLists(t, c.VocabSize)
	if t.ByteFallback() {
		out.add("tokenizer.ggml.model", "llama")
		out.add("tokenizer.ggml.scores", scores(t, tokens))
		out.add("tokenizer.ggml.add_space_prefix", spacePrefix(t, tokens, types))
	} else {
		var spec struct {
			Pre json.RawMessage `json:"pre_tokenizer"`
		}
		if err := json.Unmarshal(t.File("tokenizer.json"), &spec); err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", err)
		}
		pre, err := preOf(spec.Pre)
		if err != nil {
			return nil, err
		}
		out.add("tokenizer.ggml.model", "gpt2")
		out.add("tokenizer.ggml.pre", pre)
		lines := []string{}
		for _, m := range t.Merges() {
			lines = append(lines, m[0]+" "+m[1])
		}
		out.add("tokenizer.ggml.merges", lines)
	}
	out.add("tokenizer.ggml.tokens", tokens)
	out.add("tokenizer.ggml.token_type", types)
	if err := out.addAround(t); err != nil {
		return nil, err
	}
	out.addIDs(t, c)
	out.addTemplates(t)
	return out, nil
}

// tokenLists are the tokens and their types by id.
func tokenLists(t *tokenizer.Tokenizer, rows int) (texts []string, types []int32) {
	unk, hasUnk := t.Named("unk_token")
	for id, one := range t.Tokens() {
		kind := int32(normal)
		switch {
		case one.Text == "":
			one.Text, kind = padName(id), unused
		case t.ByteFallback() && hasUnk && int32(id) == unk:
			kind = unknown
		case one.Special:
			kind = control
		case one.Added:
			kind = userDefined
		case t.ByteFallback() && byteForm.MatchString(one.Text):
			kind = byteToken
		}
		texts, types = append(texts, one.Text), append(types, kind)
	}
	for id := len(texts); id < rows; id++ {
		texts, types = append(texts, padName(id)), append(types, unused)
	}
	return texts, types
}

// byteForm is how a token of a byte is written.
var byteForm = regexp.MustCompile(`^<0x[0-9A-F]{2}>$`)

// scores of tokens make llama.cpp join as the merges do: the token of the first merge has the highest one.
func scores(t *tokenizer.Tokenizer, tokens []string) []float32 {
	rank := map[string]int{}
	for i, m := range t.Merges() {
		if text := m[0] + m[1]; rank[text] == 0 {
			rank[text] = i + 1
		}
	}
	out := make([]float32, len(tokens))
	for id, text := range tokens {
		out[id] = -float32(rank[text])
	}
	return out
}

// spacePrefix says whether a text behind a special token gets a space before it, as llama.cpp means the key.
func spacePrefix(t *tokenizer.Tokenizer, tokens []string, types []int32) bool {
	special := slices.Index(types, control)
	if special < 0 {
		return false
	}
	ids, err := t.Encode(tokens[special]+"a", false)
	return err == nil && len(ids) > 1 && strings.HasPrefix(tokens[ids[1]], mark)
}

// modelName is general.name of a file. llama.cpp takes from the name of a Phi 3 that blanks behind its added tokens go
// with them.
func modelName(name string, t *tokenizer.Tokenizer) string {
	var spec struct {
		Added []struct{ Rstrip bool } `json:"added_tokens"`
	}
	err := json.Unmarshal(t.File("tokenizer.json"), &spec)
	if err != nil || !slices.ContainsFunc(spec.Added, func(one struct{ Rstrip bool }) bool { return one.Rstrip }) {
		return name
	}
	return phi3 + " " + name
}

// addAround says whether BOS and EOS are added to a text.
func (e *entries) addAround(t *tokenizer.Tokenizer) error {
	plain, err := t.Encode("a", false)
	if err != nil {
		return err
	}
	whole, err := t.Encode("a", true)
	if err != nil {
		return err
	}
	bos, hasBOS := t.BOS()
	eos, hasEOS := t.EOS()
	begins := hasBOS && len(whole) > len(plain) && whole[0] == bos
	if begins {
		whole = whole[1:]
	}
	ends := hasEOS && len(whole) > len(plain) && whole[len(whole)-1] == eos
	if ends {
		whole = whole[:len(whole)-1]
	}
	if !slices.Equal(whole, plain) {
		return fmt.Errorf("tokenizer.json: post_processor: it adds other tokens than BOS before a text and EOS after " +
			"it, for which a GGUF file has no key")
	}
	e.add("tokenizer.ggml.add_bos_token", begins)
	e.add("tokenizer.ggml.add_eos_token", ends)
	return nil
}

// endIDs are the tokens that end a text, the tokenizer's own first.
func endIDs(t *tokenizer.Tokenizer, c *model.Config) []int {
	ids := slices.Clone(c.EOS)
	eos, ok := t.EOS()
	if i := slices.Index(ids, int(eos)); ok && (i > 0 || len(ids) == 0) {
		ids = slices.Insert(slices.DeleteFunc(ids, func(id int) bool { return id == int(eos) }), 0, int(eos))
	}
	return ids
}

func (e *entries) addIDs(t *tokenizer.Tokenizer, c *model.Config) {
	for _, token := range namedTokens {
		id, ok := t.Named(token.folder)
		if token.file == "bos" && !ok && c.BOS != nil {
			id, ok = int32(*c.BOS), true
		}
		if ok && token.file != "eos" {
			e.add("tokenizer.ggml."+token.file+"_token_id", uint32(id))
		}
	}
	for i, id := range endIDs(t, c) {
		if i < len(endKeys) {
			e.add(endKeys[i], uint32(id))
		}
	}
}

func (e *entries) addTemplates(t *tokenizer.Tokenizer) {
	const key = "tokenizer.chat_template"
	templates := t.Templates()
	if text, ok := templates["default"]; ok {
		e.add(key, text)
		delete(templates, "default")
	}
	if names := slices.Sorted(maps.Keys(templates)); len(names) > 0 {
		e.add("tokenizer.chat_templates", names)
		for _, name := range names {
			e.add(key+"."+name, templates[name])
		}
	}
}
