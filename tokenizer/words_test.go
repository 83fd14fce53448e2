package tokenizer

import (
	"compress/gzip"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

func parts(find finder, s string) (out []string) {
	find(s, deadlineOf(s), func(part string, _ bool) { out = append(out, part) })
	return out
}

// encode encodes a text that is no error.
func encode(t testing.TB, tok *Tokenizer, text string, addSpecial bool) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, addSpecial)
	if err != nil {
		t.Error(err)
	}
	return ids
}

// checkScanners compares the hand-written scanners with the regular expressions that they replace.
func checkScanners(t *testing.T, s string) {
	t.Helper()
	for pattern, scan := range scanners {
		regex := expect.Must(compileRegex(pattern, ""))(t)
		if got, want := parts(scan, s), parts(regex, s); !slices.Equal(got, want) {
			t.Errorf("%.30s ... on %q:\n got  %q\n want %q", pattern, s, got, want)
		}
	}
}

func TestScannersAreTheirRegularExpressions(t *testing.T) {
	for _, text := range readTexts(t) {
		checkScanners(t, text)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("aZé今ß1²٣ \t\n\r\u00a0\u3000'sSſtreEvmlLd.,!_🙂\u0301\u200d")
	for range 500 {
		s := make([]rune, 1+rng.IntN(12))
		for i := range s {
			s[i] = alphabet[rng.IntN(len(alphabet))]
		}
		checkScanners(t, string(s))
	}
}

// TestRegexIsOnigurumas: expressions match as in Hugging Face's tokenizers 0.23.3, whose Split gave these parts; what
// they read otherwise than Go's packages is refused.
func TestRegexIsOnigurumas(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          []string
	}{
		{`^a`, "a b\na c", []string{"a", " b\n", "a", " c"}},
		{`c$`, "a c\na c", []string{"a ", "c", "\na ", "c"}},
		{`\p{Ll}+(?i:'s|'t)?|\p{Lu}+(?i:'s|'t)?`, "AB'ſ", []string{"AB'ſ"}},
		{`[!&@\[\\\]^_{,]+`, "[a]{,&&^", []string{"[", "a", "]{,&&^"}},
		{`[\p{L}&&[^\p{Han}]]+`, "ab今日", nil},
		{`[a[bc]]+`, "abc", nil}, {`[^]a[b]]+`, "abc", nil}, {`[[:alpha:]]+`, "ab1", nil}, {`[a-z-[aeiou]]+`, "hello", nil},
		{`\p{N}{,2}`, "123", nil}, {`(?m)a.b`, "a\nb", nil}, {`(?is:a.b)`, "a\nb", nil},
	} {
		for name, compile := range map[string]func(pattern, at string) (finder, error){"split": compileRegex,
			"decoder": linearRegex} {
			find, err := compile(c.pattern, "here")
			switch {
			case c.want == nil && (err == nil || !strings.Contains(err.Error(), "here: regular expression ") ||
				!strings.Contains(err.Error(), "want one without classes within classes")):
				t.Errorf("%s %s: %v", name, c.pattern, err)
			case c.want != nil && err != nil:
				t.Errorf("%s %s: %v", name, c.pattern, err)
			case c.want != nil && name == "split" || strings.HasSuffix(c.pattern, "$"):
				if got := parts(find, c.text); !slices.Equal(got, c.want) {
					t.Errorf("%s %s: %q, want %q", name, c.pattern, got, c.want)
				}
			}
		}
	}
}

func FuzzScanners(f *testing.F) {
	for _, text := range readTexts(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if utf8.ValidString(s) {
			checkScanners(t, s)
		}
	})
}

// mergeSlowly is BPE as it is defined: merge the leftmost pair of the lowest rank, begin again.
func mergeSlowly(m *bpe, ids []int32) []int32 {
	for {
		best, at := merge{rank: 1 << 30}, -1
		for i := range len(ids) - 1 {
			if c, ok := m.merges[pairOf(ids[i], ids[i+1])]; ok && c.rank < best.rank {
				best, at = c, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Concat(ids[:at], []int32{best.id}, ids[at+2:])
	}
}

func TestMergeIsBPE(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, folder := range folders {
		m := load(t, folder).model
		for range 200 {
			word := make([]byte, 1+rng.IntN(40))
			for i := range word {
				word[i] = "aeinorst th"[rng.IntN(11)]
			}
			want := mergeSlowly(m, m.symbols(string(word)))
			if got := m.merge(m.symbols(string(word))); !slices.Equal(got, want) {
				t.Errorf("%s %q: got %v, want %v", folder, word, got, want)
			}
		}
	}
}

// A word twenty times as long may take somewhat more than twenty times as long; a quadratic merge would take four
// hundred times.
func TestLongWordsAreNearLinear(t *testing.T) {
	tok := load(t, "llama3-newer")
	took := func(n int) time.Duration {
		word := strings.Repeat("theinand", n/8)
		best := time.Hour
		for range 3 {
			begin := time.Now()
			encode(t, tok, word, false)
			best = min(best, time.Since(begin))
		}
		return best
	}
	short, long := took(20_000), took(400_000)
	if long > 150*short {
		t.Errorf("400,000 letters took %v, 20,000 took %v", long, short)
	}
}

func TestCacheIsBounded(t *testing.T) {
	m := load(t, "qwen2-older").model
	for i := range 4 * cacheShards * shardWords / 3 {
		m.cache.put(strings.Repeat("x", i%7)+string(rune(0x4e00+i%20000))+string(rune('a'+i/20000)), []int32{1})
	}
	kept := 0
	for i := range m.cache.shards {
		kept += len(m.cache.shards[i].words)
	}
	if kept > cacheShards*shardWords || kept < shardWords {
		t.Errorf("%d words kept: want at most %d", kept, cacheShards*shardWords)
	}
	m.cache.put(strings.Repeat("y", cachedBytes+1), []int32{1})
	if _, ok := m.cache.get(strings.Repeat("y", cachedBytes+1)); ok {
		t.Error("a word longer than the bound was kept")
	}
}

// With few marks in a row golang.org/x/text is correct, so our own composition must give the same.
func TestLongMarksComposeAlike(t *testing.T) {
	more := []string{"q\u0307\u0323", "\u1100\u1161\u11a8", "\u0344\u0f73\u0958", "a\u0315\u0300\u05ae\u0062"}
	for _, text := range append(readTexts(t), more...) {
		for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
			if needsCare(text) {
				continue
			}
			runes := decompose(form, text)
			if form == norm.NFC || form == norm.NFKC {
				runes = recompose(runes)
			}
			if got, want := string(runes), form.String(text); got != want {
				t.Errorf("form %d of %.60q: got %q, want %q", form, text, got, want)
			}
		}
	}
	if got := normalizeForm(norm.NFC, "e"+strings.Repeat("\u0301", 40)); got != "é"+strings.Repeat("\u0301", 39) {
		t.Errorf("forty accents became %q", got)
	}
	for in, want := range map[string]string{
		"\U000e003e\u0338": "\U000e003e\u0338", ">\u0338": "≯", "\U00011099\U000110ba": "\U0001109a",
		"\U00011131\U00011127\u0300": "\U0001112e\u0300",
	} {
		if got := normalizeForm(norm.NFC, in); got != want {
			t.Errorf("%+q: got %+q, want %+q", in, got, want)
		}
	}
}

func TestLossyIsRusts(t *testing.T) {
	for in, want := range map[string]string{
		"ok é": "ok é", "\xff": "�", "a\xc3": "a�", "\xc3\x28": "�(", "\xf0\x9f\x98": "�", "\xf0\x9f\x98x": "�x",
		"\xe0\x80\x80": "���", "\xed\xa0\x80": "���", "\xf4\x90\x80\x80": "����",
		"\xf0\x9f\xf0\x9f\x98\x80": "�😀", "\xe4\xbb\xe4\xbb\x8a": "�今",
	} {
		if got := decodeLossy([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestInvalidTextIsReplaced(t *testing.T) {
	tok := load(t, "qwen2-older")
	if got, want := encode(t, tok, "a\xffb", false), encode(t, tok, "a\ufffdb", false); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// FuzzEncode: nothing panics, and decoding gives byte-level text back: unchanged from Llama 3's pipeline, canonically
// equivalent from Qwen's, which composes characters.
func FuzzEncode(f *testing.F) {
	toks := map[string]*Tokenizer{}
	for _, folder := range folders {
		toks[folder] = load(f, folder)
	}
	for _, text := range readTexts(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for folder, tok := range toks {
			ids := encode(t, tok, text, false)
			got := tok.Decode(ids, false)
			tok.Decode(encode(t, tok, text, true), true)
			if !utf8.ValidString(text) {
				continue
			}
			switch {
			case folder == "llama3-newer" && got != text:
				t.Errorf("%s: %q came back as %q", folder, text, got)
			case folder == "qwen2-older" && normalizeForm(norm.NFC, got) != normalizeForm(norm.NFC, text):
				t.Errorf("%s: %q came back as %q", folder, text, got)
			}
			checkUncut(t, tok, text, ids)
		}
	})
}

// checkUncut encodes a text again without cutting metaspace words.
func checkUncut(t *testing.T, tok *Tokenizer, text string, want []int32) {
	t.Helper()
	if !tok.model.cuts {
		return
	}
	m := tok.model
	whole := &Tokenizer{added: tok.added, normalize: tok.normalize, split: tok.split, model: &bpe{
		vocab: m.vocab, chars: m.chars, merges: m.merges, unk: m.unk, hasUnk: m.hasUnk, fuseUnk: m.fuseUnk,
		byteFallback: m.byteFallback, ignoreMerges: m.ignoreMerges, cache: wordCache{seed: maphash.MakeSeed()},
	}}
	if got := encode(t, whole, text, false); !slices.Equal(got, want) {
		t.Errorf("%q: cut at marks %v, whole %v", text, want, got)
	}
}

func TestCuttingAtMarksChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, folder := range []string{"mistral-newer", "mistral-older"} {
		tok := load(t, folder)
		if !tok.model.cuts {
			t.Errorf("%s: words are not cut at marks", folder)
		}
		for range 300 {
			text := make([]rune, rng.IntN(30))
			letters := []rune("  aethin.é今🙂\n▁s")
			for i := range text {
				text[i] = letters[rng.IntN(len(letters))]
			}
			checkUncut(t, tok, string(text), encode(t, tok, string(text), false))
		}
	}
	if load(t, "qwen2-older").model.cuts {
		t.Error("qwen2-older has no marks, but its words are cut at marks")
	}
}

func FuzzLoad(f *testing.F) {
	defer func(d time.Duration) { matchTime = d }(matchTime)
	matchTime = 20 * time.Millisecond
	for _, spec := range badTokenizers { // small ones: the folders of testdata take a tenth of a second each
		f.Add([]byte(spec.tokenizer), []byte(spec.config))
	}
	for _, spec := range small {
		f.Add([]byte(spec+tinyModel+`}`), []byte(`{"bos_token": "<s>", "chat_template": "{{ messages }}"}`))
	}
	f.Fuzz(func(t *testing.T, tokenizer, config []byte) {
		tok, err := loadFiles(map[string][]byte{"tokenizer.json": tokenizer, "tokenizer_config.json": config})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of more than one line: %q", err)
			}
			return
		}
		tok.Decode(encode(t, tok, "a 1 <s> é🙂\n", true), true)
		tok.Size()
		tok.Special(1)
	})
}

// dialogues are the texts of the real preference data, if they are on this machine.
func dialogues(b *testing.B) []string {
	file := expect.Must(os.Open(need.File(b, "data", "hh-rlhf/harmless-base-test.jsonl.gz")))(b)
	defer file.Close()
	unzipped := expect.Must(gzip.NewReader(file))(b)
	data := expect.Must(io.ReadAll(unzipped))(b)
	return strings.Split(strings.TrimSpace(strings.NewReplacer(`\n`, "\n", `\"`, `"`).Replace(string(data))), "\n{")
}

// BenchmarkEncodeDialogues encodes all 2,312 pairs of hh-rlhf once an operation, with an empty cache.
func BenchmarkEncodeDialogues(b *testing.B) {
	texts := dialogues(b)
	for _, folder := range folders {
		b.Run(folder, func(b *testing.B) {
			size, tokens := 0, 0
			for _, text := range texts {
				size += len(text)
			}
			b.SetBytes(int64(size))
			for b.Loop() {
				tok := load(b, folder)
				tokens = 0
				for _, text := range texts {
					tokens += len(encode(b, tok, text, true))
				}
			}
			b.ReportMetric(float64(len(texts)), "dialogues")
			b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func BenchmarkEncodeLongWord(b *testing.B) {
	tok := load(b, "qwen2-older")
	word := strings.Repeat("theinand", 1000)
	b.SetBytes(int64(len(word)))
	for b.Loop() {
		encode(b, tok, word, false)
	}
}

func BenchmarkScanAgainstRegex(b *testing.B) {
	text := strings.Repeat("The clerk's report (No. 42) isn't ready,\n\tshe said; call 555-1234. ", 100)
	regex := expect.Must(compileRegex(llamaPattern, ""))(b)
	for name, find := range map[string]finder{"scan": scanners[llamaPattern], "regex": regex} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				find(text, deadlineOf(text), func(string, bool) {})
			}
		})
	}
}
