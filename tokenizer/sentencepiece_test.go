package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestSentencePiece: a tokenizer.model gives the ids and texts of sentencepiece, for hostile texts too
// (scripts/oracle/sentencepiece_cases.py).
func TestSentencePiece(t *testing.T) {
	folders, err := filepath.Glob("testdata/sentencepiece/*")
	if err != nil || len(folders) != 5 {
		t.Fatalf("found %v (%v), want 5 folders", folders, err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			tok, err := Load(folder)
			if err != nil {
				t.Fatal(err)
			}
			var cases []struct {
				Text, Decoded string
				IDs           []int32
			}
			text, err := os.ReadFile(filepath.Join(folder, "cases.json"))
			if err == nil {
				err = json.Unmarshal(text, &cases)
			}
			if err != nil || len(cases) < 300 {
				t.Fatalf("%d cases (%v)", len(cases), err)
			}
			for _, c := range cases {
				ids, err := tok.Encode(c.Text, false)
				if err != nil || !slices.Equal(ids, c.IDs) {
					t.Errorf("%q: %v (%v), want %v", c.Text, ids, err, c.IDs)
				}
				if unk, _ := tok.model.vocab["<unk>"]; !slices.Contains(c.IDs, unk) { // sentencepiece writes " ⁇ "
					if got := tok.Decode(c.IDs, false); got != c.Decoded {
						t.Errorf("%v: %q, want %q", c.IDs, got, c.Decoded)
					}
				}
			}
		})
	}
}

// TestSentencePieceAround: BOS and EOS as the folder's configuration says, and BOS without one.
func TestSentencePieceAround(t *testing.T) {
	data := spFile(t, "llama")
	for config, want := range map[string][2]bool{``: {true, false}, `{"add_bos_token": false}`: {},
		`{"add_eos_token": true}`: {true, true}} {
		files := fstest.MapFS{modelFile: {Data: data}}
		if config != "" {
			files["tokenizer_config.json"] = &fstest.MapFile{Data: []byte(config)}
		}
		tok, err := LoadFS(files, "m")
		if err != nil {
			t.Fatal(err)
		}
		plain, _ := tok.Encode("the report", false)
		if want[0] {
			plain = slices.Insert(plain, 0, 1)
		}
		if want[1] {
			plain = append(plain, 2)
		}
		if ids, _ := tok.Encode("the report", true); !slices.Equal(ids, plain) {
			t.Errorf("%s: %v, want %v", config, ids, plain)
		}
		dir := t.TempDir()
		if err := tok.CopyTo(dir); err != nil {
			t.Fatal(err)
		}
		if copied, err := os.ReadFile(filepath.Join(dir, modelFile)); err != nil || !slices.Equal(copied, data) {
			t.Errorf("the copy differs (%v)", err)
		}
	}
}

func spFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "sentencepiece", name, modelFile))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// message makes a message of fields of bytes.
func message(fields ...any) (out []byte) {
	for i := 0; i < len(fields); i += 2 {
		number := protowire.Number(fields[i].(int))
		switch v := fields[i+1].(type) {
		case []byte:
			out = protowire.AppendBytes(protowire.AppendTag(out, number, protowire.BytesType), v)
		case string:
			out = protowire.AppendString(protowire.AppendTag(out, number, protowire.BytesType), v)
		case int:
			out = protowire.AppendVarint(protowire.AppendTag(out, number, protowire.VarintType), uint64(v))
		}
	}
	return out
}

func TestSentencePieceRefuses(t *testing.T) {
	unknown := message(1, "<unk>", 3, 2)
	plain := message(4, 0) // remove_extra_whitespaces: false
	bpe := message(3, 2)
	for _, c := range []struct {
		data []byte
		want string
	}{
		{[]byte("\xff\xff\xff"), "not a SentencePiece model"},
		{[]byte("\x0a\x05ab"), "field 1 of a SentencePiece model is cut off"},
		{message(2, bpe, 3, plain), "found no pieces"},
		{message(1, unknown, 2, message(3, 3), 3, plain), "trainer_spec.model_type: found 3, want 1 (unigram) or 2 (bpe)"},
		{message(1, unknown, 2, message(3, 2, 24, 1), 3, plain), "treat_whitespace_as_suffix: found true, want false"},
		{message(1, unknown, 2, bpe), "remove_extra_whitespaces: found true, want false"},
		{message(1, unknown, 2, bpe, 3, message(2, "x", 4, 0)), "precompiled_charsmap: found a table of characters"},
		{message(1, unknown, 2, bpe, 3, message(4, 0, 5, 0)), "escape_whitespaces: found false, want true"},
		{message(1, unknown, 1, message(1, "a"), 1, message(1, "a"), 2, bpe, 3, plain),
			`pieces: found "a" as token 1 and 2, want each once`},
		{message(1, message(1, "a"), 2, bpe, 3, plain), "found no unknown token"},
		{message(1, unknown, 1, message(1, "?", 3, 2), 2, bpe, 3, plain), "found 0 and 1 as unknown tokens, want one"},
		{message(1, unknown, 1, message(1, "a", 3, 5), 2, bpe, 3, plain), "found type 5 of token 1"},
		{message(1, unknown, 1, message(1, ""), 2, bpe, 3, plain), `found "" as token 1, want UTF-8 of 1 to 1024 bytes`},
		{message(1, unknown, 1, message(1, "a", 3, 4), 2, message(3, 1), 3, plain), `found "a", a user-defined token of`},
		{message(1, unknown, 2, message(3, 2, 35, 1), 3, plain), "found no byte token <0x00>"},
	} {
		_, err := LoadFS(fstest.MapFS{modelFile: {Data: c.data}}, "m")
		if err == nil || !strings.HasPrefix(err.Error(), "m/tokenizer.model: ") || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// FuzzSentencePiece: any file is an error of one line, or a tokenizer whose ids exist.
func FuzzSentencePiece(f *testing.F) {
	for _, name := range []string{"bpe", "unigram"} {
		f.Add(spFile(f, name), "the report")
	}
	f.Add(message(1, message(1, "<unk>", 3, 2), 1, message(1, "ab"), 2, message(3, 2), 3, message(4, 0)), "abc ▁")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := LoadFS(fstest.MapFS{modelFile: {Data: data}}, "m")
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		ids, err := tok.Encode(text, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Size() {
				t.Errorf("id %d of %d", id, tok.Size())
			}
		}
		tok.Decode(ids, false)
	})
}
