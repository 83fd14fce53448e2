package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/tokenizer/jinja"
)

// standard are transformers' names of special tokens, in its order.
var standard = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// configure reads added tokens, named tokens and chat templates from tokenizer_config.json. Like transformers 5 it
// reads special_tokens_map.json too, if the former has no added_tokens_decoder.
func (t *Tokenizer) configure(contents map[string][]byte) error {
	config, err := readOrdered(contents["tokenizer_config.json"])
	if err != nil {
		return t.fault("tokenizer_config.json", err)
	}
	if _, ok := config.get("added_tokens_decoder"); !ok {
		more, err := readOrdered(contents["special_tokens_map.json"])
		if err != nil {
			return t.fault("special_tokens_map.json", err)
		}
		config = config.with(more)
	}
	if err := t.addTokens(config); err != nil {
		return t.fault("tokenizer_config.json", err)
	}
	t.compareBOS(config)
	if err := t.chat.read(config, contents["chat_template.jinja"]); err != nil {
		return t.fault("tokenizer_config.json", err)
	}
	return nil
}

// An entry is one key of a configuration with its value.
type entry struct {
	key   string
	value json.RawMessage
}

// A configuration keeps the order of its file, because new tokens get their ids in that order.
type configuration []entry

func readOrdered(data []byte) (configuration, error) {
	if data == nil {
		return nil, nil
	}
	var values map[string]json.RawMessage
	if err := unmarshal(data, "", &values); err != nil {
		return nil, err
	}
	ordered, err := jinja.FromJSON(data)
	if err != nil {
		return nil, err
	}
	dict, _ := ordered.(jinja.Dict)
	var out configuration
	for _, e := range dict {
		key := e.Key.(string)
		out = append(out, entry{key, values[key]})
	}
	return out, nil
}

func (c configuration) get(key string) (json.RawMessage, bool) {
	for _, e := range c {
		if e.key == key {
			return e.value, true
		}
	}
	return nil, false
}

// with returns c with the values of other, which replace its own, except for additional_special_tokens.
func (c configuration) with(other configuration) configuration {
	c = slices.Clone(c)
	for _, e := range other {
		at := slices.IndexFunc(c, func(x entry) bool { return x.key == e.key })
		switch {
		case at < 0:
			c = append(c, e)
		case e.key != "additional_special_tokens":
			c[at] = e
		}
	}
	return c
}

func (c configuration) isTrue(key string) bool {
	value, _ := c.get(key)
	return string(value) == "true"
}

// readToken reads a token of a configuration: a string, which is a special token, or an object with flags.
func readToken(raw json.RawMessage, at string) (t addedToken, ok bool, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return t, false, nil
	}
	if raw[0] == '"' {
		t.Special = true
		err = unmarshal(raw, at, &t.Content)
		return t, t.Content != "", err
	}
	if raw[0] != '{' {
		return t, false, fmt.Errorf("%s: found %s, want a string or an object", at, raw)
	}
	var spec struct {
		addedToken
		Normalized *bool `json:"normalized"`
	}
	if err = unmarshal(raw, at, &spec); err != nil {
		return t, false, err
	}
	t = spec.addedToken
	t.Normalized = spec.Normalized != nil && *spec.Normalized
	return t, t.Content != "", nil
}

// addTokens adds the configuration's tokens that tokenizer.json lacks, or has with other flags.
func (t *Tokenizer) addTokens(config configuration) error {
	tokens, err := readAddedTokensDecoder(config)
	if err != nil {
		return err
	}
	named, err := t.readNamed(config)
	if err != nil {
		return err
	}
	extra, err := readExtra(config)
	if err != nil {
		return err
	}
	t.added.ignoreSpecial = config.isTrue("split_special_tokens")
	for _, n := range append(named, extra...) {
		_, known := t.added.ids[n.Content]
		known = known || slices.ContainsFunc(tokens, func(a addedToken) bool { return a.Content == n.Content })
		if !known {
			tokens = append(tokens, n)
		}
	}
	for i := range tokens {
		isNamed := slices.ContainsFunc(named, func(n addedToken) bool { return n.Content == tokens[i].Content })
		if isNamed && t.added.byID[t.added.ids[tokens[i].Content]] != tokens[i] {
			tokens[i].Special = true
		}
	}
	t.added.add(tokens, t.model, t.normalize)
	return nil
}

// readAddedTokensDecoder reads {"id": token, ...} and sorts it by id.
func readAddedTokensDecoder(config configuration) ([]addedToken, error) {
	raw, _ := config.get("added_tokens_decoder")
	if len(raw) == 0 {
		return nil, nil
	}
	var byID map[string]addedToken
	if err := unmarshal(raw, "added_tokens_decoder", &byID); err != nil {
		return nil, err
	}
	ids := make([]int, 0, len(byID))
	for key := range byID {
		id, err := strconv.Atoi(key)
		if err != nil {
			return nil, fmt.Errorf("added_tokens_decoder: key %q: want a token id", key)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	tokens := make([]addedToken, len(ids))
	for i, id := range ids {
		tokens[i] = byID[strconv.Itoa(id)]
	}
	return tokens, nil
}

// readNamed reads bos_token and the like: the standard ones first, then other keys that end in _token.
func (t *Tokenizer) readNamed(config configuration) ([]addedToken, error) {
	t.named = map[string]string{}
	var out []addedToken
	take := func(key string, raw json.RawMessage) error {
		token, ok, err := readToken(raw, key)
		if ok && err == nil && t.named[key] == "" {
			t.named[key] = token.Content
			out = append(out, token)
		}
		return err
	}
	for _, key := range standard {
		raw, _ := config.get(key)
		if err := take(key, raw); err != nil {
			return nil, err
		}
	}
	for _, e := range slices.Concat(config, config.modelSpecific()) {
		if !strings.HasSuffix(e.key, "_token") || len(e.value) == 0 || e.value[0] != '"' && e.value[0] != '{' {
			continue
		}
		if err := take(e.key, e.value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// modelSpecific returns extra_special_tokens if it has the form {name: token}.
func (c configuration) modelSpecific() configuration {
	raw, _ := c.get("extra_special_tokens")
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	out, _ := readOrdered(raw)
	for i := range out {
		if !strings.HasSuffix(out[i].key, "_token") {
			out[i].key += "_token"
		}
	}
	return out
}

// readExtra reads extra_special_tokens, or its older name additional_special_tokens, if it has the form [token, ...].
func readExtra(config configuration) ([]addedToken, error) {
	var out []addedToken
	for _, key := range []string{"extra_special_tokens", "additional_special_tokens"} {
		raw, _ := config.get(key)
		if len(raw) == 0 || raw[0] != '[' {
			continue
		}
		var list []json.RawMessage
		if err := unmarshal(raw, key, &list); err != nil {
			return nil, err
		}
		for i, r := range list {
			token, ok, err := readToken(r, fmt.Sprintf("%s[%d]", key, i))
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, token)
			}
		}
	}
	return out, nil
}

// compareBOS warns if add_bos_token or add_eos_token contradicts tokenizer.json's post-processor. The post-processor
// wins, as in transformers 5; in the Llama classes of transformers 4 the two keys win.
func (t *Tokenizer) compareBOS(config configuration) {
	for _, c := range []struct {
		key   string
		added []int32
	}{{"bos_token", t.post.before}, {"eos_token", t.post.after}} {
		raw, _ := config.get("add_" + c.key)
		id, ok := t.namedID(c.key)
		does := ok && slices.Contains(c.added, id)
		if says := string(raw) == "true"; (says || string(raw) == "false") && says != does {
			t.warnings = append(t.warnings, fmt.Sprintf("%s: add_%s is %s in tokenizer_config.json, "+
				"but the post_processor of tokenizer.json wins, and it says %v", t.name, c.key, raw, does))
		}
	}
}
