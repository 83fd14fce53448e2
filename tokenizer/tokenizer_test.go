package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/tokenizer/jinja"
)

// The fixtures are results of Hugging Face's libraries, written by scripts/oracle/tokenizer_cases.py.
var folders = []string{"qwen2-older", "llama3-newer", "mistral-newer", "mistral-older"}

type encodeCase struct {
	IDs      []int32
	Full     []int32 // absent: IDs
	Decoded  *string // absent: the text
	Skipped  *string // absent: Decoded
	Messages string
}

type cases struct {
	Size          int
	BOS, EOS, Pad *int32
	Encode        []encodeCase
	Decode        []struct {
		IDs              []int32
		Decoded, Skipped string
	}
	Chats []struct {
		Messages    string
		Extra       int
		Prompt      bool
		Text, Error *string
	}
}

func readJSON(t testing.TB, name string, into any) {
	t.Helper()
	expect.Decode(t, filepath.Join("testdata", name), into)
}

func load(t testing.TB, folder string) *Tokenizer {
	t.Helper()
	return expect.Must(Load(filepath.Join("testdata", folder)))(t)
}

func readTexts(t testing.TB) (texts []string) {
	readJSON(t, "texts.json", &texts)
	return texts
}

func or[T any](p *T, otherwise T) T {
	if p != nil {
		return *p
	}
	return otherwise
}

func checkEncode(t *testing.T, tok *Tokenizer, text string, c encodeCase) {
	t.Helper()
	if got := encode(t, tok, text, false); !slices.Equal(got, c.IDs) {
		t.Errorf("%.80q: ids\n got  %v\n want %v", text, got, c.IDs)
	}
	full := c.Full
	if full == nil {
		full = c.IDs
	}
	if got := encode(t, tok, text, true); !slices.Equal(got, full) {
		t.Errorf("%.80q: ids with specials\n got  %v\n want %v", text, got, full)
	}
	decoded := or(c.Decoded, text)
	if got := tok.Decode(full, false); got != decoded {
		t.Errorf("%.80q: decoded\n got  %q\n want %q", text, got, decoded)
	}
	if got, want := tok.Decode(full, true), or(c.Skipped, decoded); got != want {
		t.Errorf("%.80q: decoded without specials\n got  %q\n want %q", text, got, want)
	}
}

func TestFoldersEncodeAsHuggingFace(t *testing.T) {
	texts := readTexts(t)
	for _, folder := range folders {
		t.Run(folder, func(t *testing.T) {
			tok := load(t, folder)
			var c cases
			readJSON(t, folder+"/cases.json", &c)
			if len(c.Encode) != len(texts) {
				t.Fatalf("%d cases of %d texts", len(c.Encode), len(texts))
			}
			for i, text := range texts {
				checkEncode(t, tok, text, c.Encode[i])
			}
			for _, d := range c.Decode {
				if got := tok.Decode(d.IDs, false); got != d.Decoded {
					t.Errorf("%v: decoded\n got  %q\n want %q", d.IDs, got, d.Decoded)
				}
				if got := tok.Decode(d.IDs, true); got != d.Skipped {
					t.Errorf("%v: decoded without specials\n got  %q\n want %q", d.IDs, got, d.Skipped)
				}
			}
			checkNamed(t, tok, c)
		})
	}
}

func checkNamed(t *testing.T, tok *Tokenizer, c cases) {
	t.Helper()
	if got := tok.Size(); got != c.Size {
		t.Errorf("Size %d, want %d", got, c.Size)
	}
	for name, want := range map[string]*int32{"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.Pad} {
		if got, ok := tok.Named(name); ok != (want != nil) || got != or(want, 0) {
			t.Errorf("%s: got %d, %v, want %v", name, got, ok, or(want, -1))
		}
		if want != nil && !tok.Special(*want) {
			t.Errorf("%s %d is not special", name, *want)
		}
	}
}

func TestFoldersRenderAsTransformers(t *testing.T) {
	var shared struct {
		Messages map[string]json.RawMessage
		Extras   []map[string]json.RawMessage
	}
	readJSON(t, "chats.json", &shared)
	for _, folder := range folders {
		tok := load(t, folder)
		var c cases
		readJSON(t, folder+"/cases.json", &c)
		for _, chat := range c.Chats {
			extra := map[string]any{"messages": shared.Messages[chat.Messages]}
			for k, v := range shared.Extras[chat.Extra] {
				extra[k] = v
			}
			got, err := tok.Render(nil, RenderOptions{AddGenerationPrompt: chat.Prompt, Extra: extra})
			at := folder + " " + chat.Messages
			var raised *jinja.Exception
			switch {
			case chat.Text != nil && (err != nil || got != *chat.Text):
				t.Errorf("%s %d:\n got  %q, %v\n want %q", at, chat.Extra, got, err, *chat.Text)
			case chat.Error != nil && err == nil:
				t.Errorf("%s %d: got %q, want the error %q", at, chat.Extra, got, *chat.Error)
			case errors.As(err, &raised) && raised.Message != *chat.Error:
				t.Errorf("%s %d: raised %q, want %q", at, chat.Extra, raised.Message, *chat.Error)
			}
		}
	}
}

// Render's own messages and the named tokens reach the template too.
func TestRenderMessages(t *testing.T) {
	tok := load(t, "llama3-newer")
	got, err := tok.Render([]Message{{Role: "system", Content: "S"}, {Role: "user", Content: " hi "}}, RenderOptions{AddGenerationPrompt: true})
	want := "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n" +
		"Knowledge ends: December 2023\nToday: 02 Feb 2025\n\nS<|eot_id|>" +
		"<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
	if err != nil || got != want {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
	if text := tok.chat.templates["default"]; !tok.HasTemplate() || !strings.HasPrefix(text, "{{- bos_token }}") {
		t.Errorf("template %q", text)
	}
}

func TestPipelinesEncodeAsHuggingFace(t *testing.T) {
	var f struct {
		Texts []string
		Rows  []struct {
			Name      string
			Tokenizer json.RawMessage
			Encode    []encodeCase
		}
	}
	readJSON(t, "pipelines.json", &f)
	for _, row := range f.Rows {
		t.Run(row.Name, func(t *testing.T) {
			tok := expect.Must(loadFiles(map[string][]byte{"tokenizer.json": row.Tokenizer}))(t)
			for i, text := range f.Texts {
				checkEncode(t, tok, text, row.Encode[i])
			}
		})
	}
}

func loadFiles(files map[string][]byte) (*Tokenizer, error) {
	fsys := fstest.MapFS{}
	for name, data := range files {
		if data != nil {
			fsys[name] = &fstest.MapFile{Data: data}
		}
	}
	return LoadFS(fsys, "memory")
}

func TestConfigurationsAsTransformers(t *testing.T) {
	var f struct {
		Text string
		Keep []string
		Rows []struct {
			Added           string
			Processor       bool
			Config, Special json.RawMessage
			Size            int
			BOS, EOS, Pad   *int32
			Full, IDs       []int32
			Skipped         string
		}
	}
	readJSON(t, "configs.json", &f)
	var base map[string]any
	readJSON(t, "mistral-newer/tokenizer.json", &base)
	for _, row := range f.Rows {
		spec := map[string]any{}
		for k, v := range base {
			spec[k] = v
		}
		if row.Added == "unmarked" {
			spec["added_tokens"] = slices.DeleteFunc(slices.Clone(base["added_tokens"].([]any)), func(v any) bool {
				return !slices.Contains(f.Keep, v.(map[string]any)["content"].(string))
			})
		}
		if !row.Processor {
			spec["post_processor"] = nil
		}
		data, _ := json.Marshal(spec)
		files := map[string][]byte{"tokenizer.json": data, "tokenizer_config.json": row.Config}
		if string(row.Special) != "null" {
			files["special_tokens_map.json"] = row.Special
		}
		tok, err := loadFiles(files)
		if err != nil {
			t.Errorf("%s: %v", row.Config, err)
			continue
		}
		t.Run(string(row.Config)+string(row.Special), func(t *testing.T) {
			checkNamed(t, tok, cases{Size: row.Size, BOS: row.BOS, EOS: row.EOS, Pad: row.Pad})
			if got := encode(t, tok, f.Text, true); !slices.Equal(got, row.Full) {
				t.Errorf("ids with specials\n got  %v\n want %v", got, row.Full)
			}
			if got := encode(t, tok, f.Text, false); !slices.Equal(got, row.IDs) {
				t.Errorf("ids\n got  %v\n want %v", got, row.IDs)
			}
			if got := tok.Decode(row.Full, true); got != row.Skipped {
				t.Errorf("decoded\n got  %q\n want %q", got, row.Skipped)
			}
		})
	}
}

func TestCopyTo(t *testing.T) {
	for _, folder := range folders {
		tok, dir := load(t, folder), t.TempDir()
		expect.OK(t, tok.CopyTo(dir))
		again := expect.Must(Load(dir))(t)
		if got, want := again.chat.templates["default"], tok.chat.templates["default"]; got != want || got == "" {
			t.Errorf("%s: template %q, want %q", folder, got, want)
		}
		for _, f := range fileNames {
			got, _ := os.ReadFile(filepath.Join(dir, f))
			want, _ := os.ReadFile(filepath.Join("testdata", folder, f))
			if string(got) != string(want) {
				t.Errorf("%s/%s: the copy differs", folder, f)
			}
		}
	}
	err := load(t, folders[0]).CopyTo(filepath.Join(t.TempDir(), "missing"))
	expect.Error(t, err, "tokenizer.json")
}

func TestEncodeConcurrently(t *testing.T) {
	tok, texts := load(t, "qwen2-older"), readTexts(t)
	var c cases
	readJSON(t, "qwen2-older/cases.json", &c)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, text := range texts {
				if got := encode(t, tok, text, false); !slices.Equal(got, c.Encode[i].IDs) {
					t.Errorf("%.40q differs", text)
				}
				if _, err := tok.Render([]Message{{Role: "user", Content: text}}, RenderOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
