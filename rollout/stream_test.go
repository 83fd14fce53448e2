package rollout

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/tokenizer"
)

// TestStreamsAreTheCompletions: a stream's pieces make up the sampler's text; characters of several tokens come
// whole, stop texts never show.
func TestStreamsAreTheCompletions(t *testing.T) {
	m := testkit.Model(t, "llama")
	sampler := setup{backendtest.Go(t), implementations[1]}.of(t, m, Options{Decoder: letters{}})
	rs := mixedRequests()
	texts := sample(t, sampler, rs...)
	for i := range rs {
		if text := []rune(texts[i].Text); i%2 == 0 && len(text) > 6 {
			rs[i].Stop = []string{string(text[4:6]), "never there"}
		}
		if i%5 == 1 {
			rs[i].StopTokens = []int32{texts[i].Tokens[len(texts[i].Tokens)/2]}
		}
	}
	streams, pieces, reasons := make([]*Stream, len(rs)), make([][]string, len(rs)), map[string]int{}
	for i := range rs {
		streams[i] = NewStream(rs[i], m.Config, letters{})
		rs[i].OnToken = func(token int32, logp float32) { pieces[i] = append(pieces[i], streams[i].Take(token, logp)) }
	}
	for i, c := range sample(t, sampler, rs...) {
		if !streams[i].IsComplete() || !reflect.DeepEqual(streams[i].Completion, c) {
			t.Errorf("request %d: the stream has %+v, the sampler %+v", i, streams[i].Completion, c)
		}
		if got := strings.Join(pieces[i], ""); got != c.Text {
			t.Errorf("request %d: pieces %q, text %q", i, pieces[i], c.Text)
		}
		if slices.ContainsFunc(pieces[i], func(p string) bool { return !utf8.ValidString(p) }) {
			t.Errorf("request %d: %q is cut within a character", i, pieces[i])
		}
		reasons[c.Reason]++
	}
	if reasons[EOS] == 0 || reasons[StopString] == 0 || reasons[Length] == 0 {
		t.Errorf("ends %v: want some of each", reasons)
	}
}

// scriptedStream feeds tokens of letters into a stream until it ends; every token is two letters.
func scriptedStream(t *testing.T, r Request, tokens ...int32) (*Stream, []string) {
	t.Helper()
	r.Prompt, r.MaxNew = []int32{1}, 10
	s := NewStream(r, testkit.Config(t, "llama"), letters{})
	var pieces []string
	for _, token := range tokens {
		pieces = append(pieces, s.Take(token, -1))
	}
	return s, pieces
}

// TestStreamHoldsBack: text that may become a stop text is held until that is decided; tokens after the text's end
// are not shown.
func TestStreamHoldsBack(t *testing.T) {
	text := letters{}.Decode([]int32{1, 2, 3, 4}, false) // 8 letters
	for _, c := range []struct {
		stop   string
		pieces []string
		shown  int
	}{
		{text[3:6], []string{text[:2], text[2:3], ""}, 2},
		{text[2:6], []string{text[:2], "", ""}, 1},
		{text[3:5] + "!", []string{text[:2], text[2:3], text[3:6], text[6:]}, 4},
		{text[:1] + "!", []string{text[:2], text[2:4], text[4:6], text[6:]}, 4},
	} {
		s, pieces := scriptedStream(t, Request{Sampling: Sampling{Stop: []string{c.stop}}, StopTokens: []int32{}},
			[]int32{1, 2, 3, 4}[:len(c.pieces)]...)
		if !slices.Equal(pieces, c.pieces) || s.ShownTokens() != c.shown {
			t.Errorf("stop %q: pieces %q, %d tokens shown; want %q, %d", c.stop, pieces, s.ShownTokens(), c.pieces,
				c.shown)
		}
	}
	two := text[2:4]
	s, pieces := scriptedStream(t, Request{Sampling: Sampling{Stop: []string{two + two + text[4:6]}},
		StopTokens: []int32{}}, 1, 2, 2, 2)
	if !slices.Equal(pieces, []string{text[:2], "", "", two}) || s.ShownTokens() != 2 {
		t.Errorf("a stop string that begins twice: %q, %d tokens shown", pieces, s.ShownTokens())
	}
	s, pieces = scriptedStream(t, Request{StopTokens: []int32{2}}, 1, 2)
	if !slices.Equal(pieces, []string{text[:2], ""}) || s.ShownTokens() != 1 || s.Reason != EOS {
		t.Errorf("a stop token: %q, %d tokens shown, %s", pieces, s.ShownTokens(), s.Reason)
	}
	s, pieces = scriptedStream(t, Request{StopTokens: []int32{}}, 60, 61, 62, 63, 1) // a rune's four bytes
	if strings.Join(pieces, "") != (letters{}).Decode(s.Tokens, false) || s.IsComplete() {
		t.Errorf("a rune of four tokens: %q", pieces)
	}
}

// TestStreamsOfTokenizers: with every kind of decoder the pieces make up the text, even if a character has several
// tokens.
func TestStreamsOfTokenizers(t *testing.T) {
	for _, name := range []string{"qwen2-newer", "llama-older", "mistral-older"} {
		tok := expect.Must(tokenizer.Load(filepath.Join("..", "model", "testdata", name)))(t)
		c := testkit.Config(t, "llama")
		c.MaxPositions = 1000
		for _, text := range []string{"Hello, what fits here?", "naïve Žižek: 東京 🙂🙃 done", "a  b\n\n c", "🙂"} {
			ids := expect.Must(tok.Encode(text, false))(t)
			s, got := NewStream(Request{Sampling: Sampling{MaxNew: len(ids)}, Prompt: []int32{1},
				StopTokens: []int32{}}, c, tok), ""
			for _, id := range ids {
				piece := s.Take(id, -1)
				if got += piece; !utf8.ValidString(piece) {
					t.Errorf("%s: %q is cut within a character", name, piece)
				}
			}
			if want := tok.Decode(ids, false); got != want || s.ShownTokens() != len(ids) {
				t.Errorf("%s: %q, want %q; %d of %d tokens shown", name, got, want, s.ShownTokens(), len(ids))
			}
		}
	}
}

// everyTokenizer gives the tokenizers of all tests: folders, and pipelines with each kind of decoder.
func everyTokenizer(t *testing.T) map[string]*tokenizer.Tokenizer {
	t.Helper()
	all := map[string]*tokenizer.Tokenizer{}
	files, err := filepath.Glob("../*/testdata/*/tokenizer.json")
	if err != nil || len(files) < 12 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		all[file] = expect.Must(tokenizer.Load(filepath.Dir(file)))(t)
	}
	var pipelines struct {
		Rows []struct {
			Name      string
			Tokenizer json.RawMessage
		}
	}
	expect.Decode(t, "../tokenizer/testdata/pipelines.json", &pipelines)
	for _, p := range pipelines.Rows {
		files := fstest.MapFS{"tokenizer.json": {Data: p.Tokenizer}}
		all[p.Name] = expect.Must(tokenizer.LoadFS(files, p.Name))(t)
	}
	return all
}

// anyTokens draws ids of a tokenizer: any of them, ids that do not exist too, and in rows the ids of its byte tokens.
func anyTokens(rng *rand.Rand, tok *tokenizer.Tokenizer) (ids []int32) {
	for range rng.IntN(16) {
		id := int32(rng.IntN(tok.Size() + 2))
		if first, ok := tok.ID("<0x00>"); ok && rng.IntN(3) > 0 {
			id = first + int32([]int{0xe2, 0x82, 0xac, 0xff, 'a', ' ', '\n'}[rng.IntN(7)])
		}
		ids = append(ids, id)
	}
	return ids
}

// TestStreamsOfAnyTokens: for random tokens of every tokenizer the pieces are the text, and never cut a character,
// whether a stop text, a stop token or the length ends it.
func TestStreamsOfAnyTokens(t *testing.T) {
	rng, c := rand.New(rand.NewPCG(1, 2)), testkit.Config(t, "llama")
	c.MaxPositions = 1000
	all := everyTokenizer(t)
	for _, name := range slices.Sorted(maps.Keys(all)) { // each run draws the same
		tok := all[name]
		for range 500 {
			ids := anyTokens(rng, tok)
			r := Request{Sampling: Sampling{MaxNew: len(ids)}, Prompt: []int32{1}, StopTokens: []int32{}}
			if len(ids) > 0 && rng.IntN(3) == 0 {
				r.StopTokens = []int32{ids[rng.IntN(len(ids))]}
			}
			if rng.IntN(3) == 0 {
				r.Stop = []string{[]string{"a\n", " a", "€", "\uFFFD\uFFFD"}[rng.IntN(4)]}
				// A special token that is left out joins the bytes around it: they are no stop text any more.
				r.KeepSpecial = r.Stop[0] == "\uFFFD\uFFFD"
			}
			s, got := NewStream(r, c, tok), ""
			for i := 0; i < len(ids) && !s.IsComplete(); i++ {
				piece := s.Take(ids[i], -1)
				if got += piece; !utf8.ValidString(piece) {
					t.Fatalf("%s: %v: %q is cut within a character", name, ids, piece)
				}
			}
			if got != s.Text {
				t.Fatalf("%s: %v stop %q: pieces %q, text %q", name, ids, r.Stop, got, s.Text)
			}
		}
	}
}

// TestStreamHoldsBytes: byte tokens show nothing until another token ends their row.
func TestStreamHoldsBytes(t *testing.T) {
	tok := expect.Must(tokenizer.Load("../model/testdata/mistral-older"))(t)
	bytes, ok := tok.ID("<0x00>")
	if !ok {
		t.Fatal("no byte tokens")
	}
	word := expect.Must(tok.Encode("what", false))(t)
	for _, c := range []struct {
		bytes  string
		stop   string
		pieces []string
		shown  int
	}{
		{"ab", "", []string{"", "", "abhat"}, 3},
		{"a\xff", "", []string{"", "", "\uFFFD\uFFFDhat"}, 3},
		{"ab", "hat", []string{"", "", "ab"}, 2},
		{"ab", "b", []string{"", "a"}, 1},
	} {
		r := Request{Sampling: Sampling{MaxNew: 9}, Prompt: []int32{1}, StopTokens: []int32{}}
		if c.stop != "" {
			r.Stop = []string{c.stop}
		}
		s, pieces := NewStream(r, testkit.Config(t, "llama"), tok), []string(nil)
		ids := []int32{bytes + int32(c.bytes[0]), bytes + int32(c.bytes[1]), word[len(word)-1]}
		for i := 0; i < len(ids) && !s.IsComplete(); i++ {
			pieces = append(pieces, s.Take(ids[i], -1))
		}
		if !slices.Equal(pieces, c.pieces) || s.ShownTokens() != c.shown {
			t.Errorf("%q, stop %q: %q, %d shown; want %q, %d", c.bytes, c.stop, pieces, s.ShownTokens(), c.pieces,
				c.shown)
		}
	}
}
