package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
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
	if _, ok := config.values["added_tokens_decoder"]; !ok {
		more, err := readOrdered(contents["special_tokens_map.json"])
		if err != nil {
			return t.fault("special_tokens_map.json", err)
		}
		config.add(more)
	}
	if err := t.addTokens(config); err != nil {
		return t.fault("tokenizer_config.json", err)
	}
	t.compareBOS(config)
	return t.readTemplates(config, contents)
}

func (t *Tokenizer) readTemplates(config configuration, contents map[string][]byte) error {
	if err := t.chat.read(config, contents[templateFile]); err != nil {
		return t.fault("tokenizer_config.json", err)
	}
	for name, text := range contents {
		if path.Dir(name) == templateFolder {
			t.chat.templates[strings.TrimSuffix(path.Base(name), ".jinja")] = string(text)
		}
	}
	return nil
}

// A configuration keeps the order of its file, because new tokens get their ids in that order.
type configuration struct {
	keys   []string
	values map[string]json.RawMessage
}

func readOrdered(data []byte) (configuration, error) {
	c := configuration{values: map[string]json.RawMessage{}}
	if data == nil {
		return c, nil
	}
	var values map[string]json.RawMessage
	if err := unmarshal(data, "", &values); err != nil {
		return c, err
	}
	ordered, err := jinja.FromJSON(data)
	dict, _ := ordered.(jinja.Dict)
	for _, e := range dict {
		key := e.Key.(string)
		c.keys, c.values[key] = append(c.keys, key), values[key]
	}
	return c, err
}

// add adds the values of other, which replace c's own, except for additional_special_tokens.
func (c *configuration) add(other configuration) {
	for _, key := range other.keys {
		_, known := c.values[key]
		if !known {
			c.keys = append(c.keys, key)
		}
		if !known || key != "additional_special_tokens" {
			c.values[key] = other.values[key]
		}
	}
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
	err = unmarshal(raw, at, &t)
	return t, t.Content != "", err
}

// addTokens adds the configuration's tokens that tokenizer.json lacks, or has with other flags.
func (t *Tokenizer) addTokens(config configuration) error {
	tokens, err1 := readAddedTokensDecoder(config)
	named, err2 := t.readNamed(config)
	extra, err3 := readExtra(config)
	err4 := t.added.check(slices.Concat(tokens, named, extra), "added tokens")
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return err
	}
	t.added.ignoreSpecial = string(config.values["split_special_tokens"]) == "true"
	listed, isNamed := map[string]bool{}, map[string]bool{}
	for _, a := range tokens {
		listed[a.Content] = true
	}
	for _, n := range named {
		isNamed[n.Content] = true
	}
	for _, n := range append(named, extra...) {
		if _, known := t.added.ids[n.Content]; !known && !listed[n.Content] {
			listed[n.Content] = true
			tokens = append(tokens, n)
		}
	}
	for i, a := range tokens {
		if isNamed[a.Content] && t.added.byID[t.added.ids[a.Content]] != a {
			tokens[i].Special = true
		}
	}
	t.added.add(tokens, t.model, t.normalize)
	return nil
}

// readAddedTokensDecoder reads {"id": token, ...} and sorts it by id.
func readAddedTokensDecoder(config configuration) ([]addedToken, error) {
	raw := config.values["added_tokens_decoder"]
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

// readNamed reads bos_token and the like: the standard ones first, then other keys that end in _token, then the model's
// own in extra_special_tokens if it has the form {name: token}.
func (t *Tokenizer) readNamed(config configuration) (out []addedToken, err error) {
	t.named = map[string]string{}
	take := func(key string, raw json.RawMessage) {
		token, ok, fault := readToken(raw, key)
		if err = cmp.Or(err, fault); ok && err == nil && t.named[key] == "" {
			t.named[key] = token.Content
			out = append(out, token)
		}
	}
	for _, key := range standard {
		take(key, config.values[key])
	}
	takeOther := func(key string, raw json.RawMessage) {
		if strings.HasSuffix(key, "_token") && len(raw) > 0 && (raw[0] == '"' || raw[0] == '{') {
			take(key, raw)
		}
	}
	for _, key := range config.keys {
		takeOther(key, config.values[key])
	}
	if raw := config.values["extra_special_tokens"]; len(raw) > 0 && raw[0] == '{' {
		own, _ := readOrdered(raw)
		for _, key := range own.keys {
			takeOther(strings.TrimSuffix(key, "_token")+"_token", own.values[key])
		}
	}
	return out, err
}

// readExtra reads extra_special_tokens, or its older name additional_special_tokens, if it has the form [token, ...].
func readExtra(config configuration) ([]addedToken, error) {
	var out []addedToken
	for _, key := range []string{"extra_special_tokens", "additional_special_tokens"} {
		raw := config.values[key]
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
		raw := config.values["add_"+c.key]
		id, ok := t.Named(c.key)
		does := ok && slices.Contains(c.added, id)
		if says := string(raw) == "true"; (says || string(raw) == "false") && says != does {
			t.warnings = append(t.warnings, fmt.Sprintf("%s: add_%s is %s in tokenizer_config.json, "+
				"but the post_processor of tokenizer.json wins, and it says %v", t.name, c.key, raw, does))
		}
	}
}
