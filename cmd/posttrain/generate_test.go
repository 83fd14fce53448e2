package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
)

// streamPieces gives the pieces in which tokens with this text are printed, and checks that every one is whole
// characters.
func streamPieces(t *testing.T, tok *tokenizer.Tokenizer, ids []int32, stops []string, text string) (pieces []string) {
	t.Helper()
	r := rollout.Request{Prompt: []int32{0}, StopTokens: []int32{-1},
		Sampling: rollout.Sampling{MaxNew: len(ids) + 1, Stop: stops}}
	s := rollout.NewStream(r, &model.Config{MaxPositions: 1000}, tok)
	for _, id := range append(slices.Clone(ids), -1) {
		if piece := s.Take(id, 0); piece != "" {
			pieces = append(pieces, piece)
		}
		if s.IsComplete() {
			break
		}
	}
	for _, piece := range pieces {
		if !utf8.ValidString(piece) {
			t.Errorf("%q is cut within a character", piece)
		}
	}
	if got := strings.Join(pieces, ""); got != text || s.Text != text {
		t.Errorf("printed %q of %q, want %q", got, s.Text, text)
	}
	return pieces
}

// TestStreams: what is printed piece by piece is the text, characters of several tokens included, with every kind of
// decoder.
func TestStreams(t *testing.T) {
	for _, name := range []string{"qwen2-newer", "llama-older", "mistral-older"} {
		tok, err := tokenizer.Load(fixture(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"Hello, what fits here?", "naïve Žižek: 東京 🙂🙃 done", "a  b\n\n c", "", "🙂"} {
			ids, err := tok.Encode(text, false)
			if err != nil {
				t.Fatal(err)
			}
			out := streamPieces(t, tok, ids, nil, rollout.AnswerText(tok, []int32{0}, ids, false))
			if text != "" && len([]rune(text)) > 5 && len(out) < 4 {
				t.Errorf("%s: %q came in %d pieces: %q", name, text, len(out), out)
			}
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 300 { // any tokens, broken characters too
			ids := make([]int32, rng.IntN(12))
			for i := range ids {
				ids[i] = int32(rng.IntN(tok.Size()))
			}
			streamPieces(t, tok, ids, nil, rollout.AnswerText(tok, []int32{0}, ids, false))
		}
	}
}

// TestStreamsHoldStopStringsBack: nothing of a stop string is printed, and what only looked like one is.
func TestStreamsHoldStopStringsBack(t *testing.T) {
	tok, err := tokenizer.Load(fixture("qwen2-newer"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text  string
		stops []string
		want  string
	}{
		{"one two STOP", []string{"STOP"}, "one two "},
		{"one STO two", []string{"STOP"}, "one STO two"},
		{"ababac", []string{"abac"}, "ab"},
		{"one STO", []string{"STOP", "TO me"}, "one STO"},
		{"a\n\nUser: b", []string{"\n\nUser:", "x"}, "a"},
	} {
		ids, err := tok.Encode(c.text, false)
		if err != nil {
			t.Fatal(err)
		}
		streamPieces(t, tok, ids, c.stops, c.want)
	}
}

// answerLine is a line of a file of answers, prompt and completion as they stand.
type answerLine struct {
	Prompt, Completion any
	Reason             string
	Tokens             []int32
	Logps              []float32
}

func parseAnswers(t *testing.T, text string) (rows []answerLine) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r answerLine
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		rows = append(rows, r)
	}
	return rows
}

var tinyGenerate = []string{"generate", "--model", "model", "--backend", "go", "--max-new-tokens", "6"}

func generateArgs(more ...string) []string { return append(slices.Clone(tinyGenerate), more...) }

func chatArgs(more ...string) []string {
	return append([]string{"chat", "--model", "model", "--backend", "go", "--max-new-tokens", "6"}, more...)
}

// TestGeneratePrompt: what is streamed is what a file has; samples differ, and begin with that one.
func TestGeneratePrompt(t *testing.T) {
	work(t, "qwen2-newer")
	o := must(t, generateArgs("--prompt", "Where is", "--seed", "3")...)
	must(t, generateArgs("--prompt", "Where is", "--seed", "3", "--samples", "3", "--out", "a.jsonl", "--logps")...)
	rows := parseAnswers(t, read(t, "a.jsonl"))
	if len(rows) != 3 || rows[0].Completion.(string)+"\n" != o.out || rows[0].Completion == rows[1].Completion ||
		rows[0].Prompt != "Where is" {
		t.Errorf("streamed %q, file %+v", o.out, rows)
	}
	for _, r := range rows {
		if r.Reason == "length" && len(r.Tokens) != 6 || len(r.Logps) != len(r.Tokens) || r.Logps[0] >= 0 {
			t.Errorf("%+v", r)
		}
	}
	if !strings.Contains(o.err, "(cut after 6 tokens)\n") {
		t.Errorf("standard error %q", o.err)
	}
	many := must(t, generateArgs("--prompt", "Where is", "--seed", "3", "--samples", "2")...)
	if !strings.HasPrefix(many.out, "[1] "+o.out+"[2] ") {
		t.Errorf("%q", many.out)
	}
	if other := must(t, generateArgs("--prompt", "Where is", "--seed", "4")...); other.out == o.out {
		t.Error("the seed does not matter")
	}
	greedy := must(t, generateArgs("--prompt", "Where is", "--temperature", "0")...)
	for _, rule := range [][]string{{"--top-k", "1"}, {"--top-p", "0.000001"}, {"--min-p", "1"}} {
		if o := must(t, generateArgs(append(rule, "--prompt", "Where is", "--seed", "9")...)...); o.out != greedy.out {
			t.Errorf("%v: %q, greedy %q", rule, o.out, greedy.out)
		}
	}
}

// TestGenerateConfig: a file, flags and --set give the same answers; a wrong file gives all its faults with lines.
func TestGenerateConfig(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "g.yaml", "command: generate\nmodel: model\nbackend: go\nseed: 3\nprompt: |\n  Where\n  "+
		"is\nmax_new_tokens: 9\n")
	want := must(t, generateArgs("--prompt", "Where\nis\n", "--seed", "3")...)
	got := must(t, "generate", "--config", "g.yaml", "--set", "max_new_tokens=6")
	if want.out == "" || got.out != want.out {
		t.Errorf("flags %q, file %q", want.out, got.out)
	}
	write(t, "bad.yaml", "command: generate\nprompt: a\nsamples: 0\nsampling: 3\n")
	checkRefusal(t, cli(t, "generate", "--config", "bad.yaml"), faultCase{
		code: 1, says: []string{"bad.yaml:3", "samples 0", "1 or more"},
		also: [][]string{{"bad.yaml:4", `unknown key "sampling"`}},
	})
}

// TestGenerateStop ends before a stop string.
func TestGenerateStop(t *testing.T) {
	work(t, "qwen2-newer")
	whole := must(t, generateArgs("--prompt", "Where is", "--temperature", "0", "--max-new-tokens", "30")...).out
	middle := []rune(strings.TrimSpace(whole))
	stop := string(middle[len(middle)/2])
	before, _, _ := strings.Cut(whole, stop)
	if o := must(t, generateArgs("--prompt", "Where is", "--temperature", "0", "--max-new-tokens", "30", "--stop",
		"never", "--stop", stop)...); o.out != before+"\n" {
		t.Errorf("%q before %q is %q, printed %q", whole, stop, before, o.out)
	}
}

// TestGenerateFile: rows of both kinds, as lines on standard output or in a file that sft trains on.
func TestGenerateFile(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "p.jsonl", `{"prompt": "Where is"}`+"\n"+`{"messages": [{"role": "user", "content": "Where?"}],`+
		` "other": 1}`+"\n")
	o := must(t, generateArgs("--input", "p.jsonl", "--samples", "2")...)
	rows := parseAnswers(t, o.out)
	if len(rows) != 4 || rows[1].Prompt != "Where is" || !strings.Contains(o.err, "p.jsonl: 2 rows read, 2 kept") {
		t.Errorf("%s%s", o.out, o.err)
	}
	if m, ok := rows[3].Completion.([]any); !ok || m[0].(map[string]any)["role"] != "assistant" {
		t.Errorf("completion of a conversation: %+v", rows[3])
	}
	to := must(t, generateArgs("--input", "p.jsonl", "--samples", "2", "--chat", "--out", "a.jsonl")...)
	chats := parseAnswers(t, read(t, "a.jsonl"))
	if m, ok := chats[0].Prompt.([]any); !ok || m[0].(map[string]any)["content"] != "Where is" ||
		!strings.HasPrefix(to.out, "a.jsonl: 4 answers (") {
		t.Errorf("%s%+v", to.out, chats[0])
	}
	glued := must(t, generateArgs("--input", "p.jsonl", "--samples", "2", "--chat-plain", "text")...)
	for i, x := range parseAnswers(t, glued.out) {
		if !slices.Equal(chats[i].Tokens, rows[i].Tokens) || slices.Equal(x.Tokens, rows[i].Tokens) != (i > 1) {
			t.Errorf("answer %d: --chat changes the draws, or --chat-plain those of conversations", i)
		}
	}
	if !strings.Contains(o.err, "p.jsonl: plain prompts go through") || !strings.Contains(glued.err, "stay as they") {
		t.Errorf("%s%s", o.err, glued.err)
	}
	must(t, tiny("sft", 1, "--data", "a.jsonl", "--set", "data.eval_fraction=0", "--set", "train.eval_every=0", "--set",
		"train.eval_metric=")...)
}

// TestGenerateTalk: a conversation by lines; a new one begins from nothing.
func TestGenerateTalk(t *testing.T) {
	work(t, "qwen2-newer")
	converse := func(lines string) []string {
		var out, errs bytes.Buffer
		args := chatArgs("--temperature", "0")
		if code := execute(t.Context(), streams{in: strings.NewReader(lines), out: &out, err: &errs}, args); code != 0 {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
		return strings.SplitAfter(out.String(), "\n")
	}
	first := converse("Where?\n\nAnd how?\n")
	fresh := converse("And how?\r\n")
	again := converse("Where?\n/reset\nAnd how?")
	if len(first) != 3 || first[0] != again[0] || again[1] != fresh[0] || first[1] == fresh[0] {
		t.Errorf("%q, %q, %q", first, again, fresh)
	}
	if single := must(t, generateArgs("--chat", "--temperature", "0", "--prompt",
		"Where?")...); single.out != first[0] {
		t.Errorf("%q as a prompt, %q in a conversation", single.out, first[0])
	}
}

// TestGenerateTalkForgets: a long conversation continues without its beginning.
func TestGenerateTalkForgets(t *testing.T) {
	work(t, "qwen2-newer")
	var out, errs bytes.Buffer
	lines := strings.Repeat(strings.Repeat("word ", 12)+"\n", 6)
	if code := execute(t.Context(), streams{in: strings.NewReader(lines), out: &out, err: &errs},
		chatArgs()); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	if strings.Count(out.String(), "\n") < 6 || !strings.Contains(errs.String(),
		"(the oldest messages are forgotten: the model has 256 positions)") {
		t.Errorf("%q, %q", &out, &errs)
	}
}

// silent is a standard input without any text.
type silent struct{ wait chan struct{} }

func (s silent) Read([]byte) (int, error) { <-s.wait; return 0, io.EOF }

// TestGenerateInterrupted: while talking, while streaming, while writing a file.
func TestGenerateInterrupted(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "p.jsonl", `{"prompt": "Where is"}`+"\n")
	quiet := silent{make(chan struct{})}
	defer close(quiet.wait)
	for _, args := range [][]string{
		chatArgs(),
		generateArgs("--prompt", "a", "--max-new-tokens", "200", "--stop", "never"),
		generateArgs("--input", "p.jsonl", "--out", "x.jsonl", "--max-new-tokens", "200", "--samples", "300"),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		var out bytes.Buffer
		errs := &watched{}
		code := execute(ctx, streams{in: quiet, out: &out, err: errs}, args)
		cancel()
		if code != exitInterrupted || !strings.HasSuffix(errs.String(), "posttrain: interrupted\n") ||
			exists("x.jsonl") {
			t.Errorf("%v: exit code %d, %q", args, code, errs)
		}
		if text := out.String(); text != "" && !strings.HasSuffix(text, "\n") {
			t.Errorf("%v: the line is left open: %q", args, text)
		}
	}
}

// TestGenerateFaults: one line for every bad input.
func TestGenerateFaults(t *testing.T) {
	long := strings.Repeat("word ", 300)
	rows := func(text string) func(t *testing.T) { return withFile("p.jsonl", text) }
	for _, f := range []faultCase{
		{"nothing to do", nil, generateArgs(), 2,
			[]string{"--prompt", "want prompt or input; posttrain chat talks"}, nil},
		{"two things to do", nil, generateArgs("--prompt", "a", "--input", "p.jsonl"), 2,
			[]string{"--input", "prompt or input, not both"}, nil},
		{"empty name", nil, generateArgs("--input", ""), 2, []string{"--input is empty"}, nil},
		{"no such file", nil, generateArgs("--input", "p.jsonl"), 1, []string{"p.jsonl: no such file"}, nil},
		{"no prompts", rows(`{"text": "a"}` + "\n"), generateArgs("--input", "p.jsonl"), 1,
			[]string{"p.jsonl:1", "found columns text", "prompt"}, nil},
		{"bad line", rows(`{"prompt": "a"}` + "\n{"), generateArgs("--input", "p.jsonl"), 1,
			[]string{"p.jsonl:2", "bad JSON"}, nil},
		{"no model", nil, []string{"generate", "--model", "nowhere", "--prompt", "a"}, 1,
			[]string{"nowhere", "config.json"}, nil},
		{"no samples", nil, generateArgs("--prompt", "a", "--samples", "0"), 2,
			[]string{"--samples", "samples 0", "1 or more"}, nil},
		{"no tokens to draw", nil, generateArgs("--prompt", "a", "--max-new-tokens", "0"), 2,
			[]string{"--max-new-tokens", "max_new_tokens 0", "1 or more"}, nil},
		{"answers longer than the model", nil, generateArgs("--prompt", "a", "--max-new-tokens", "300"), 2,
			[]string{"max_new_tokens 300", "256 positions"}, nil},
		{"prompt longer than the model", nil, generateArgs("--prompt", long), 1,
			[]string{"prompt", "tokens", "256 positions"}, nil},
		{"row longer than the model", rows(`{"prompt": "a"}` + "\n" + `{"prompt": "` + long + `"}`),
			generateArgs("--input", "p.jsonl", "--out", "x.jsonl"), 1,
			[]string{"p.jsonl:2", "tokens", "256 positions"}, nil},
		{"empty prompt", nil, generateArgs("--prompt", ""), 1, []string{"prompt", "no tokens"}, nil},
		{"bad top-p", nil, generateArgs("--prompt", "a", "--top-p", "1.5"), 2,
			[]string{"--top-p", "top_p 1.5", "0 (off) or more and at most 1"}, nil},
		{"no room for a row", nil, generateArgs("--prompt", "a", "--cache-gb", "1e-9"), 1,
			[]string{"cache_gb", "want 0.001 or more", "smaller max_new_tokens"}, nil},
		{"no such size", nil, generateArgs("--prompt", "a", "--cache-gb", "-1"), 2,
			[]string{"--cache-gb", "cache_gb -1", "0 (a quarter of the memory) or more"}, nil},
		{"bad top-k", nil, generateArgs("--prompt", "a", "--top-k", "-1"), 2, []string{"--top-k", "top_k -1"}, nil},
		{"bad min-p", nil, generateArgs("--prompt", "a", "--min-p", "2"), 2, []string{"--min-p", "min_p 2"}, nil},
		{"hot", nil, generateArgs("--prompt", "a", "--temperature", "Inf"), 2,
			[]string{"--temperature", "temperature Inf"}, nil},
		{"rule without effect", nil, generateArgs("--prompt", "a", "--temperature", "0", "--top-p", "0.9"), 2,
			[]string{"--top-p", "top_p 0.9", "temperature 0", "remove one"}, nil},
		{"samples without effect", nil, generateArgs("--prompt", "a", "--temperature", "0", "--samples", "3"), 2,
			[]string{"--samples", "samples 3", "temperature 0"}, nil},
		{"empty stop", nil, generateArgs("--prompt", "a", "--stop", ""), 2, []string{"--stop", `stop ""`}, nil},
		{"log-probs to nowhere", nil, generateArgs("--prompt", "a", "--logps"), 2,
			[]string{"--logps", "out: FILE.jsonl"}, nil},
		{"file of another kind", nil, generateArgs("--prompt", "a", "--out", "x.parquet"), 2,
			[]string{"--out", `out "x.parquet"`, ".jsonl"}, nil},
		{"no such folder", nil, generateArgs("--prompt", "a", "--out", "no/x.jsonl"), 2,
			[]string{"--out", "no/x.jsonl", "no folder no"}, nil},
		{"no template", func(t *testing.T) { remove(t, "model/chat_template.jinja") }, chatArgs(), 1,
			[]string{"chat: model has no chat template", "chat_template.jinja", "plain text"}, nil},
		{"no template for a row", func(t *testing.T) {
			remove(t, "model/chat_template.jinja")
			write(t, "p.jsonl", `{"prompt": [{"role": "user", "content": "a"}]}`)
		}, generateArgs("--input", "p.jsonl"), 1, []string{"p.jsonl:1", "conversation", "chat_template.jinja"}, nil},
	} {
		t.Run(f.name, func(t *testing.T) {
			work(t, "qwen2-newer")
			if f.make != nil {
				f.make(t)
			}
			before := tree(t)
			o := cli(t, f.args...)
			checkRefusal(t, o, f)
			if after := tree(t); !slices.Equal(before, after) || o.out != "" {
				t.Errorf("left behind: %v, printed %q", after, o.out)
			}
		})
	}
}
