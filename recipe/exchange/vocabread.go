package exchange

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/gguf"
	"github.com/posttrain/posttrain/tokenizer"
)

// The types of tokens in a file.
const (
	normal      = 1
	unknown     = 2
	control     = 3
	userDefined = 4
	unused      = 5
	byteToken   = 6
)

// Bounds of a vocabulary: what is made of it takes many times its bytes in the file. The largest that are published
// have 262,144 tokens and 580,000 merges of 9 bytes.
const (
	maxJoined    = 256      // bytes of a token that others are joined to
	maxTexts     = 32 << 20 // bytes of all tokens, merges and templates in JSON
	perText      = 24       // bytes that a text takes besides
	maxTemplates = 64
)

// vocabulary is a file's tokenizer.
type vocabulary struct {
	*gguf.Fields
	tokens []string
	types  []int // [tokens]
	left   int   // of maxTexts
}

// take counts texts of the tokenizer's files, and gives them back.
func (v *vocabulary) take(key string, texts ...string) []string {
	for _, t := range texts {
		v.left -= perText + len(t)
		for _, r := range t {
			if r < ' ' || r == utf8.RuneError { // which become \u0001 and so on
				v.left -= 10
			}
		}
	}
	if v.left < 0 {
		v.Fail(key, "found more than %d MiB of tokens, merges and templates, want less", maxTexts>>20)
	}
	return texts
}

// readTokenizer makes the files of a folder's tokenizer.
func readTokenizer(f *gguf.File) (map[string][]byte, error) {
	v := &vocabulary{Fields: &gguf.Fields{File: f}, left: maxTexts}
	if err := v.read(); err != nil {
		return nil, err
	}
	var spec object
	switch kind := v.Text("tokenizer.ggml.model", ""); kind {
	case "gpt2":
		spec = v.byteLevel()
	case "llama":
		spec = v.sentencePiece()
	default:
		v.Fail("tokenizer.ggml.model", "found %q, want gpt2 or llama", kind)
	}
	config := v.config()
	if v.Err != nil {
		return nil, v.Err
	}
	files := map[string][]byte{}
	for name, content := range map[string]object{"tokenizer.json": spec, "tokenizer_config.json": config} {
		var out bytes.Buffer
		if err := data.WriteLine(&out, content); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = out.Bytes()
	}
	return files, nil
}

// read takes the tokens with their types.
func (v *vocabulary) read() error {
	const tokens, types = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
	v.tokens, v.types = v.Texts(tokens), v.Wholes(types)
	if v.types == nil {
		v.types = slices.Repeat([]int{normal}, len(v.tokens))
	}
	if len(v.tokens) == 0 {
		v.Fail(tokens, "found nothing, want a list of texts")
	}
	if len(v.types) != len(v.tokens) {
		v.Fail(types, "found %d types, want one for each of %d tokens", len(v.types), len(v.tokens))
	}
	for i, text := range v.tokens {
		if !utf8.ValidString(text) {
			v.Fail(tokens, "found %.60q as token %d, want UTF-8", text, i)
		}
	}
	v.take(tokens, v.tokens...)
	for i := range v.tokens { // rows of an embedding that no token has
		if v.Err == nil && v.types[i] == unused && v.tokens[i] == padName(i) {
			v.tokens[i] = ""
		}
	}
	return v.Err
}

// padName is what llama.cpp's converter calls a row of the embedding without a token.
func padName(id int) string { return fmt.Sprintf("[PAD%d]", id) }

// vocab maps tokens to their ids.
func (v *vocabulary) vocab() map[string]int {
	out := make(map[string]int, len(v.tokens))
	for id, t := range v.tokens {
		if t == "" {
			continue
		}
		if other, twice := out[t]; twice {
			v.Fail("tokenizer.ggml.tokens", "found %.60q as token %d and %d, want each once", t, other, id)
		}
		out[t] = id
	}
	return out
}

// addedToken is a token of tokenizer.json's added_tokens. A map would take ten times as much.
type addedToken struct {
	Content    string `json:"content"`
	ID         int    `json:"id"`
	LStrip     bool   `json:"lstrip"`
	Normalized bool   `json:"normalized"`
	RStrip     bool   `json:"rstrip"`
	SingleWord bool   `json:"single_word"`
	Special    bool   `json:"special"`
}

// added lists the tokens that are cut out of a text first.
func (v *vocabulary) added() []addedToken {
	list, phi := []addedToken{}, v.isPhi3()
	for id, t := range v.tokens {
		kind := v.types[id]
		if t == "" || kind != control && kind != userDefined && kind != unknown {
			continue
		}
		if len(list) == tokenizer.MaxAdded {
			v.Fail("tokenizer.ggml.token_type", "found more than %d tokens that are no normal ones", len(list))
			break
		}
		list = append(list, addedToken{ID: id, Content: t, Special: kind != userDefined,
			RStrip: phi && !slices.Contains([]string{"<unk>", "<s>", "<|endoftext|>"}, t)})
	}
	return list
}

// isPhi3 says whether blanks behind an added token go with it. A file does not say so: llama.cpp takes it from the name
// of a Phi 3.
func (v *vocabulary) isPhi3() bool {
	name := strings.ToLower(v.Text("general.name", ""))
	return strings.Contains(name, "phi-3") || strings.Contains(name, phi3)
}

const phi3 = "phi3"

// around is the post-processor that adds BOS and EOS to a text.
func (v *vocabulary) around(bos bool) any {
	special := object{}
	single := []object{{"Sequence": object{"id": "A", "type_id": 0}}}
	token := func(key string) object {
		id := v.id(key)
		if v.Err != nil {
			return nil
		}
		text := v.tokens[id]
		special[text] = object{"id": text, "ids": []int{id}, "tokens": []string{text}}
		return object{"SpecialToken": object{"id": text, "type_id": 0}}
	}
	if v.Flag("tokenizer.ggml.add_bos_token", bos) {
		single = slices.Insert(single, 0, token("bos"))
	}
	if v.Flag("tokenizer.ggml.add_eos_token", false) {
		single = append(single, token("eos"))
	}
	if len(special) == 0 {
		return nil
	}
	return object{"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}
}

// id is a token's id, by the token's name in the file.
func (v *vocabulary) id(name string) int {
	key := "tokenizer.ggml." + name + "_token_id"
	id := v.Need(key)
	if v.Err == nil && (id < 0 || id >= len(v.tokens) || v.tokens[id] == "") {
		v.Fail(key, "found %d, want the id of one of %d tokens", id, len(v.tokens))
	}
	return id
}

func bpe(vocab map[string]int, merges []string) object {
	return object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
		"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
		"vocab": vocab, "merges": merges}
}

func pipeline(model object) object {
	return object{"version": "1.0", "truncation": nil, "padding": nil, "model": model}
}

// byteLevel is tokenizer.json of a byte-level BPE.
func (v *vocabulary) byteLevel() object {
	const pre = "tokenizer.ggml.pre"
	p, err := preNamed(v.Text(pre, "")) // without it llama.cpp cuts in a way of its own
	if err != nil {
		v.Fail(pre, "%v", err)
	}
	const merges = "tokenizer.ggml.merges"
	m := bpe(v.vocab(), v.take(merges, v.Texts(merges)...))
	m["ignore_merges"] = p.whole
	out := pipeline(m)
	if p.nfc {
		out["normalizer"] = object{"type": "NFC"}
	}
	out["added_tokens"], out["pre_tokenizer"], out["post_processor"] = v.added(), p.parts(), v.around(p.bos)
	out["decoder"] = object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}
	return out
}

// mark is SentencePiece's space.
const mark = "▁"

// sentencePiece is tokenizer.json of SentencePiece's BPE.
func (v *vocabulary) sentencePiece() object {
	vocab := v.vocab()
	m := bpe(vocab, v.merges(vocab))
	m["byte_fallback"], m["fuse_unk"] = true, true
	if id := slices.Index(v.types, unknown); id >= 0 {
		m["unk_token"] = v.tokens[id]
	}
	out := pipeline(m)
	steps := []object{{"type": "Replace", "pattern": object{"String": " "}, "content": mark}}
	decode := []object{{"type": "Replace", "pattern": object{"String": mark}, "content": " "},
		{"type": "ByteFallback"}, {"type": "Fuse"}}
	if v.Flag("tokenizer.ggml.add_space_prefix", true) {
		steps = slices.Insert(steps, 0, object{"type": "Prepend", "prepend": mark})
		decode = append(decode, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	out["normalizer"] = object{"type": "Sequence", "normalizers": steps}
	out["decoder"] = object{"type": "Sequence", "decoders": decode}
	out["added_tokens"], out["pre_tokenizer"], out["post_processor"] = v.added(), nil, v.around(true)
	return out
}

// merges makes merges of the scores of tokens: two tokens join if they are a token together, the highest score first.
func (v *vocabulary) merges(vocab map[string]int) []string {
	const key = "tokenizer.ggml.scores"
	scores := v.Floats(key)
	if len(scores) != len(v.tokens) {
		v.Fail(key, "found %d scores, want one for each of %d tokens", len(scores), len(v.tokens))
		return nil
	}
	type joined struct {
		text  string
		left  int
		score float64
		id    int
	}
	var all []joined
	for id, t := range v.tokens {
		if v.types[id] != normal || math.IsNaN(scores[id]) {
			continue
		}
		if len(t) > maxJoined {
			v.Fail("tokenizer.ggml.tokens", "found %d bytes in token %d, want at most %d", len(t), id, maxJoined)
		}
		if v.Err != nil {
			return nil
		}
		for at := range t {
			left, first := vocab[t[:at]]
			right, second := vocab[t[at:]]
			if at > 0 && first && second && v.types[left] == normal && v.types[right] == normal {
				all = append(all, joined{t[:at] + " " + t[at:], at, scores[id], id})
				v.take(key, all[len(all)-1].text)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b joined) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.id, b.id), cmp.Compare(b.left, a.left))
	})
	merges := make([]string, len(all))
	for i, m := range all {
		merges[i] = m.text
	}
	return merges
}

// namedTokens are tokens by their names in a file and in a folder.
var namedTokens = []struct{ file, folder string }{
	{"bos", "bos_token"}, {"eos", "eos_token"}, {"unknown", "unk_token"}, {"padding", "pad_token"},
}

// config is tokenizer_config.json.
func (v *vocabulary) config() object {
	out := object{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	for _, token := range namedTokens {
		if v.Has("tokenizer.ggml." + token.file + "_token_id") {
			if id := v.id(token.file); v.Err == nil {
				out[token.folder] = v.tokens[id]
			}
		}
	}
	if t := v.templates(); t != nil {
		out["chat_template"] = t
	}
	return out
}

// templates are the chat templates: a text, or a list of named ones.
func (v *vocabulary) templates() any {
	const key = "tokenizer.chat_template"
	names := v.Texts("tokenizer.chat_templates")
	if !v.Has(key) {
		return nil
	}
	text := v.take(key, v.Text(key, ""))[0]
	if len(names) == 0 {
		return text
	}
	if len(names) > maxTemplates {
		v.Fail("tokenizer.chat_templates", "found %d names, want at most %d", len(names), maxTemplates)
		return nil
	}
	list := []object{{"name": "default", "template": text}}
	for _, name := range names {
		text := v.take(key, name, v.Text(key+"."+name, ""))[1]
		list = append(list, object{"name": name, "template": text})
	}
	return list
}
