package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestSlowRegexIsAnError: an expression whose time is exponential ends with an error, in a pre-tokenizer and in a
// normalizer, and so do many matches that are each just fast enough.
func TestSlowRegexIsAnError(t *testing.T) {
	defer func(d time.Duration) { matchTime = d }(matchTime)
	matchTime = 30 * time.Millisecond
	split := `{"pre_tokenizer": {"type": "Split", "pattern": {"Regex": %q}, "behavior": "Isolated"}, ` + tinyModel + `}`
	replace := `{"normalizer": {"type": "Replace", "pattern": {"Regex": %q}, "content": ""}, ` + tinyModel + `}`
	for _, c := range []struct{ spec, pattern, text, place string }{
		{split, `(a+)+$`, strings.Repeat("a", 60) + "!", "pre_tokenizer"},
		{split, `(\w+\s?)*$`, strings.Repeat("word ", 20) + "!", "pre_tokenizer"},
		{split, `(a*)*\1\1\1c`, strings.Repeat("a", 60), "pre_tokenizer"},
		{replace, `(a+)+$`, strings.Repeat("a", 60) + "!", "normalizer"},
		{split, `(a+)+!|b`, strings.Repeat(strings.Repeat("a", 14)+"b", 10000), "pre_tokenizer"},
	} {
		tok := expect.Must(loadFiles(map[string][]byte{"tokenizer.json": fmt.Appendf(nil, c.spec, c.pattern)}))(t)
		begin := time.Now()
		_, err := tok.Encode(c.text, false)
		want := "tokenizer.json: " + c.place + ".pattern.Regex: this regular expression takes more than"
		if err == nil || !strings.Contains(err.Error(), want) || time.Since(begin) > 20*time.Second {
			t.Errorf("%s: %v after %v, want an error", c.pattern, err, time.Since(begin))
		}
	}
}

// TestPipelinesAreBounded: what could make a text too long, or takes too many steps, is refused when it is read.
func TestPipelinesAreBounded(t *testing.T) {
	double := `{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}`
	many := func(step string, n int) string { return strings.Repeat(step+", ", n-1) + step }
	nested := strings.Repeat(`{"type": "Sequence", "normalizers": [`, 100) + strings.Repeat("]}", 100)
	for _, c := range []struct{ part, want string }{
		{`"normalizer": {"type": "Sequence", "normalizers": [` + many(double, 40) + `]}`,
			"normalizer.normalizers[6]: up to this step a text can become 128 times as long, want at most 64"},
		{`"normalizer": {"type": "Sequence", "normalizers": [` + many(`{"type": "NFC"}`, 50000) + `]}`,
			"normalizer.normalizers[63]: found more than 64 steps"},
		{`"normalizer": ` + nested, "found more than 64 steps"},
		{`"normalizer": {"type": "Prepend", "prepend": "` + strings.Repeat("x", 1000) + `"}`, "1e+03 times as long"},
		{`"normalizer": {"type": "Replace", "pattern": {"Regex": "a"}, "content": "` + strings.Repeat("x", 99) + `"}`,
			"99 times as long"},
		{`"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "` +
			strings.Repeat("x", 40) + `"},` +
			`"pre_tokenizer": {"type": "Metaspace", "replacement": "_"}`, "pre_tokenizer: up to this step"},
		{`"pre_tokenizer": {"type": "Sequence", "pretokenizers": [` + many(`{"type": "ByteLevel"}`, 40) + `]}`,
			"pre_tokenizer.pretokenizers[6]: up to this step"},
		{`"decoder": {"type": "Sequence", "decoders": [` + many(double, 40) + `]}`, "decoder.decoders[6]: up to this"},
		{`"decoder": {"type": "Replace", "pattern": {"Regex": "(?=a)"}, "content": ""}`,
			"want one without look-around"},
		{`"decoder": {"type": "Replace", "pattern": {"Regex": "\\s"}, "content": ""}`, "want one without look-around"},
		{`"added_tokens": [{"content": "` + strings.Repeat("x", 300) + `"}]`,
			"added_tokens[0].content: found 300 bytes, want at most 256"},
		{`"added_tokens": [` + many(`{"content": "`+strings.Repeat("x", 250)+`"}`, 5000) + `]`,
			"found 1250000 bytes of text in 5000 tokens"},
		{`"added_tokens": [` + many(`{}`, 200_000) + `]`, "added_tokens: found 200000, want at most 131072"},
		{`"added_tokens": [` + many(`null`, 1<<20+2) + `]`, "added_tokens: found 1048577 commas, want at most 1048576"},
		{`"normalizer": {"type": "Sequence", "normalizers": [` + many(`0`, maxPart/2) + `]}`,
			"normalizer: found 1572901 bytes, want at most 1048576"},
		{`"model": {"vocab": {` + many(`"": 0`, maxVocab+2) + `}}`, "vocab: found 1048577 commas"},
		{`"model": {"vocab": {"a": 0}, "merges": [` + many(`"#version"`, 2*maxMerges+2) + `]}`,
			"merges: found 2097153 commas"},
		{`"post_processor": {"type": "TemplateProcessing", "special_tokens": {"x": {"ids": [` +
			many("1", 2000) + `]}}, ` +
			`"single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "x"}}]}`,
			"found 2000 tokens around the text"},
	} {
		_, err := loadFiles(map[string][]byte{"tokenizer.json": []byte(`{` + tinyModel + `, ` + c.part + `}`)})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.100s: %v, want %s", c.part, err, c.want)
		}
	}
}

// TestAddedTokensTakeLittleMemory: the tokens are searched for in an index of a few times their size.
func TestAddedTokensTakeLittleMemory(t *testing.T) {
	rng, list := rand.New(rand.NewPCG(1, 2)), []string{}
	for range 400 {
		text := make([]byte, 250)
		for i := range text {
			text[i] = 'a' + byte(rng.IntN(26))
		}
		list = append(list, fmt.Sprintf(`{"content": %q}`, text))
	}
	spec := []byte(`{"added_tokens": [` + strings.Join(list, ",") + `], ` + tinyModel + `}`)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tok, err := loadFiles(map[string][]byte{"tokenizer.json": spec})
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int(after.HeapAlloc) - int(before.HeapAlloc); err != nil || used > 20<<20 {
		t.Errorf("%v: %d MiB for %d KiB", err, used>>20, len(spec)>>10)
	}
	runtime.KeepAlive(tok)
}

// TestManyTokensInTheConfiguration: they are counted, too.
func TestManyTokensInTheConfiguration(t *testing.T) {
	_, err := loadFiles(map[string][]byte{"tokenizer.json": []byte(`{` + tinyModel + `}`), "tokenizer_config.json": []byte(
		`{"extra_special_tokens": [` + strings.Repeat(`"a",`, MaxAdded) + `"a"]}`)})
	expect.Error(t, err, "memory/tokenizer_config.json: added tokens: found 131073, want at most 131072")
	_, err = loadFiles(map[string][]byte{"tokenizer.json": []byte(`{` + tinyModel + `}`),
		"tokenizer_config.json": []byte(`{"a": [` + strings.Repeat("0,", maxOther/2) + `0]}`)})
	expect.Error(t, err, "memory/tokenizer_config.json: longer than 4 MiB")
}

// TestWhiteSpaceOfAddedTokensIsLinear: tokens that take the white space around them, in a text of white space.
func TestWhiteSpaceOfAddedTokensIsLinear(t *testing.T) {
	tok, err := loadFiles(map[string][]byte{"tokenizer.json": []byte(
		`{"added_tokens": [{"content": " ", "rstrip": true}, {"content": "\t", "lstrip": true}], ` + tinyModel + `}`)})
	expect.OK(t, err)
	text, begin := strings.Repeat(" \t", 1<<17), time.Now()
	if ids := encode(t, tok, text, false); len(ids) != len(text) || time.Since(begin) > 10*time.Second {
		t.Errorf("%d tokens after %v, want %d", len(ids), time.Since(begin), len(text))
	}
}

// mutate changes a JSON value in a few places: a value becomes another of the same file, of another kind, or many.
func mutate(rng *rand.Rand, v any, all []any) any {
	if rng.IntN(12) == 0 {
		return all[rng.IntN(len(all))]
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			x := v[k]
			if rng.IntN(20) > 0 {
				out[k] = mutate(rng, x, all)
			}
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			for range rng.IntN(8) / 3 {
				out = append(out, mutate(rng, x, all))
			}
		}
		return out
	case string:
		return v + strings.Repeat(v, rng.IntN(2)*rng.IntN(3))
	}
	return v
}

// values lists the parts of a JSON value.
func values(v any) (all []any) {
	all = []any{v}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			all = append(all, values(v[k])...)
		}
	case []any:
		for _, x := range v {
			all = append(all, values(x)...)
		}
	}
	return all
}

// small are pipelines with every kind of step.
var small = []string{
	`{"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip",
		"strip_left": true}, {"type": "Prepend", "prepend": "_"}, {"type": "Replace", "pattern": {"String": " "},
		"content": "_"}]}, "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"},
		"content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1}]}, `,
	`{"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(a+)+|\\s"},
		"behavior": "MergedWithNext"}, {"type": "Digits", "individual_digits": true}, {"type": "ByteLevel",
		"add_prefix_space": true}]}, "decoder": {"type": "ByteLevel"}, `,
	`{"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}, "decoder":
		{"type": "Metaspace", "replacement": "_"}, "post_processor": {"type": "TemplateProcessing", "single":
		[{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [1]}}}, `,
	`{"added_tokens": [{"content": "<s>", "special": true}, {"content": " ", "rstrip": true, "lstrip": true,
		"normalized": true, "single_word": true}], `,
}

// FuzzPipeline: a small tokenizer.json, damaged in its structure, is an error of one line or encodes and decodes a text
// soon.
func FuzzPipeline(f *testing.F) {
	defer func(d time.Duration) { matchTime = d }(matchTime)
	matchTime = 20 * time.Millisecond
	parsed := make([]any, len(small))
	for i, spec := range small {
		expect.OK(f, json.Unmarshal([]byte(spec+tinyModel+`}`), &parsed[i]))
		f.Add(i, uint64(i), "a 1 <s> é🙂\n aaaa!")
	}
	f.Fuzz(func(t *testing.T, which int, seed uint64, text string) {
		v := parsed[uint(which)%uint(len(parsed))]
		rng := rand.New(rand.NewPCG(seed, 1))
		spec := expect.Must(json.Marshal(mutate(rng, v, values(v))))(t)
		tok, err := loadFiles(map[string][]byte{"tokenizer.json": spec})
		var ids []int32
		if err == nil {
			ids, err = tok.Encode(text[:min(len(text), 1000)], true)
		}
		if err != nil && (strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "runtime error")) {
			t.Errorf("%s: %v", spec, err)
		}
		if err == nil {
			tok.Decode(ids, true)
		}
	})
}
