package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
)

// script is a sampler that draws given tokens, and notes the prompts.
type script struct {
	tokens []int32
	mu     sync.Mutex
	asked  []rollout.Request
}

func (s *script) SampleContinuously(_ context.Context, rows int, next func(n int) []rollout.Arrival) error {
	for all := next(rows); len(all) > 0; all = next(rows) {
		for _, a := range all {
			s.mu.Lock()
			s.asked = append(s.asked, a.Request)
			s.mu.Unlock()
			for _, token := range s.tokens[:min(len(s.tokens), a.MaxNew)] {
				a.OnToken(token, -1)
			}
		}
	}
	return nil
}

func (s *script) Echo(prompts [][]int32) (all []rollout.Echo, err error) {
	for _, p := range prompts {
		zeros := make([]float32, len(p))
		all = append(all, rollout.Echo{Logps: zeros, Top: zeros, Best: append(slices.Clone(p[1:]), 0)})
	}
	return all, nil
}

// prompt is the text of the last prompt.
func (s *script) prompt(d rollout.Decoder) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.Decode(s.asked[len(s.asked)-1].Prompt, false)
}

// scripted starts a server of a tokenizer whose model draws these tokens.
func scripted(t *testing.T, folder string, o tokenizer.ChatOptions, tokens []int32, change ...func(*serve.Options)) (
	*running, *script, *tokenizer.Tokenizer) {
	t.Helper()
	tok, err := tokenizer.Load(folder)
	if err == nil {
		err = tok.SetChat(o)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &script{tokens: tokens}
	return start(t, s, func(o *serve.Options) {
		c := *o.Config
		c.VocabSize, c.EOS, c.MaxPositions = tok.Size(), []int{2}, 4096
		o.Config, o.Encoder, o.Decoder, o.MaxNew = &c, &batch.Encoder{Tokenizer: tok}, tok, 200
		for _, f := range change {
			f(o)
		}
	}), s, tok
}

// chunk is an event of a stream of either protocol.
type chunk struct {
	Object  string
	Choices []struct {
		Index int
		Text  string
		Delta struct {
			Content string
			Calls   []toolCall `json:"tool_calls"`
		}
		Tokens   []int32 `json:"token_ids"`
		Finish   string  `json:"finish_reason"`
		Logprobs struct {
			Tokens  []string
			Logps   []*float32           `json:"token_logprobs"`
			Offsets []int                `json:"text_offset"`
			Top     []map[string]float32 `json:"top_logprobs"`
		}
	}
	Usage *struct {
		Completion int `json:"completion_tokens"`
	}
}

type toolCall struct {
	Index    int
	ID, Type string
	Function struct{ Name, Arguments string }
}

// chunks reads a stream to its end.
func (r *running) chunks(t *testing.T, path, body string) (all []chunk) {
	t.Helper()
	got, err := http.Post(r.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	lines, done := bufio.NewScanner(got.Body), false
	for lines.Scan() {
		text, is := strings.CutPrefix(lines.Text(), "data: ")
		var c chunk
		switch done = done || text == "[DONE]"; {
		case !is || done:
			continue
		case json.Unmarshal([]byte(text), &c) != nil:
			t.Errorf("event %q", text)
		}
		all = append(all, c)
	}
	if !done || got.StatusCode != http.StatusOK {
		t.Errorf("status %d, the stream ends: %v", got.StatusCode, done)
	}
	return all
}

// Tokens of the tokenizer of the first blank: "▁engin", "IR", <x> (special), the bytes of an emoji.
var blankTokens = []int32{574, 1158, 547, 243, 162, 156, 133, 574, 2}

// TestFirstBlankAndSpecialTokens: an answer's text is decode(prompt + answer) behind the prompt, without special tokens
// unless they are asked for, whole, streamed and in chats; offsets count its characters. The texts are as
// tokenizers 0.23 has them.
func TestFirstBlankAndSpecialTokens(t *testing.T) {
	const template = "{% for m in messages %}{{ m.content }}{% endfor %}"
	r, _, _ := scripted(t, "../../rollout/testdata/first-blank", tokenizer.ChatOptions{Template: template}, blankTokens)
	for _, c := range []struct {
		echo, skip bool
		text       string
		offsets    []int
	}{
		{false, true, " enginIR🙂 engin", []int{0, 6, 6, 8, 8, 8, 8, 9, 15}},
		{false, false, " engin<x>IR🙂 engin", []int{0, 6, 9, 11, 11, 11, 11, 12, 18}},
		{true, true, "The lake enginIR🙂 engin", []int{0, 3, 8, 14, 14, 16, 16, 16, 16, 17, 23}},
	} {
		fields := map[string]any{"prompt": "The lake", "logprobs": 0, "skip_special_tokens": c.skip, "echo": c.echo}
		got := r.plain(t, fields).Choices[0]
		if got.Text != c.text || !slices.Equal(got.Logprobs.Offsets, c.offsets) ||
			!slices.Equal(got.Logprobs.Tokens[len(c.offsets)-9:][:3], []string{" engin", "<x>", "IR"}) {
			t.Errorf("%+v: %q, offsets %v, tokens %q", c, got.Text, got.Logprobs.Offsets, got.Logprobs.Tokens)
		}
		fields["stream"] = true
		body, _ := json.Marshal(fields)
		text, offsets := "", []int(nil)
		for _, chunk := range r.chunks(t, "/v1/completions", string(body)) {
			text += chunk.Choices[0].Text
			offsets = append(offsets, chunk.Choices[0].Logprobs.Offsets...)
		}
		if text != c.text || !slices.Equal(offsets, c.offsets) {
			t.Errorf("%+v: stream %q, %v", c, text, offsets)
		}
		if c.echo {
			continue
		}
		var native struct{ Text string }
		r.read(t, "/generate", fmt.Sprintf(`{"text":"The lake","sampling_params":{"skip_special_tokens":%v}}`, c.skip),
			&native)
		chat := fmt.Sprintf(`{"messages":[{"role":"user","content":"The lake"}],"skip_special_tokens":%v`, c.skip)
		var whole struct {
			Choices []struct{ Message struct{ Content string } }
		}
		r.read(t, "/v1/chat/completions", chat+"}", &whole)
		streamed := ""
		for _, chunk := range r.chunks(t, "/v1/chat/completions", chat+`,"stream":true}`) {
			streamed += chunk.Choices[0].Delta.Content
		}
		if native.Text != c.text || whole.Choices[0].Message.Content != c.text || streamed != c.text {
			t.Errorf("%+v: /generate %q, a chat %q, streamed %q", c, native.Text, whole.Choices[0].Message.Content,
				streamed)
		}
	}
	markup := r.plain(t, map[string]any{"prompt": "🙂 The<x> lake", "logprobs": 0, "echo": true,
		"max_tokens": 0}).Choices[0]
	if markup.Text != "🙂 The<x> lake" || !slices.Equal(markup.Logprobs.Offsets, []int{0, 0, 0, 0, 0, 1, 5, 8, 9}) {
		t.Errorf("%q, offsets %v of %q", markup.Text, markup.Logprobs.Offsets, markup.Logprobs.Tokens)
	}
}

// TestStreamsOfCompletions: the chunks of several prompts and choices make up the whole reply, also echoed and
// measured.
func TestStreamsOfCompletions(t *testing.T) {
	r := start(t, nil, nil)
	for _, more := range []map[string]any{{}, {"echo": true}, {"echo": true, "max_tokens": 0},
		{"logprobs": 1, "echo": true}, {"logprobs": 3}, {"stop": []string{" the"}, "return_token_ids": true}} {
		fields := map[string]any{"prompt": []string{question, "Hello"}, "n": 2, "seed": 3, "max_tokens": 9}
		maps.Copy(fields, more)
		whole := r.plain(t, fields)
		fields["stream"], fields["stream_options"] = true, map[string]any{"include_usage": true}
		body, _ := json.Marshal(fields)
		all := r.chunks(t, "/v1/completions", string(body))
		last := all[len(all)-1]
		if last.Usage == nil || last.Usage.Completion != whole.Usage.Completion || last.Object != "text_completion" {
			t.Errorf("%v: the last chunk is %+v", more, last)
		}
		for i, w := range whole.Choices {
			got := w
			got.Text, got.Finish, got.Tokens = "", "", nil
			got.Logprobs.Tokens, got.Logprobs.Offsets, got.Logprobs.Top = nil, nil, nil
			for _, c := range all[:len(all)-1] {
				if c := c.Choices[0]; c.Index == i {
					got.Text, got.Finish = got.Text+c.Text, got.Finish+c.Finish
					got.Tokens = append(got.Tokens, c.Tokens...)
					got.Logprobs.Tokens = append(got.Logprobs.Tokens, c.Logprobs.Tokens...)
					got.Logprobs.Offsets = append(got.Logprobs.Offsets, c.Logprobs.Offsets...)
					got.Logprobs.Top = append(got.Logprobs.Top, c.Logprobs.Top...)
				}
			}
			if !reflect.DeepEqual(got, w) {
				t.Errorf("%v, choice %d:\n got %+v\nwant %+v", more, i, got, w)
			}
		}
	}
}

// TestBiasAndPenalties: they change what is drawn, by the seed alone, and at their neutral values nothing.
func TestBiasAndPenalties(t *testing.T) {
	r := start(t, nil, nil)
	draw := func(temperature float64, more map[string]any) []int32 {
		fields := map[string]any{"prompt": "a", "seed": 3, "max_tokens": 12, "temperature": temperature,
			"return_token_ids": true}
		maps.Copy(fields, more)
		return r.plain(t, fields).Choices[0].Tokens
	}
	for _, temperature := range []float64{0, 1} {
		free := draw(temperature, nil)
		if got := draw(temperature, map[string]any{"logit_bias": map[string]any{}, "presence_penalty": 0,
			"frequency_penalty": 0, "repetition_penalty": 1}); !slices.Equal(got, free) {
			t.Errorf("neutral values draw %v, not %v", got, free)
		}
		never := map[string]any{fmt.Sprint(free[0]): -100}
		if got := draw(temperature, map[string]any{"logit_bias": never}); got[0] == free[0] {
			t.Errorf("%d was drawn again: %v", free[0], got)
		}
		forced := draw(temperature, map[string]any{"logit_bias": map[string]any{"70": 100}})
		if slices.ContainsFunc(forced, func(id int32) bool { return id != 70 }) {
			t.Errorf("%v: want 70 alone", forced)
		}
	}
	for _, name := range []string{"presence_penalty", "frequency_penalty", "repetition_penalty"} {
		differ := 0
		for seed := range 4 {
			got := draw(1, map[string]any{"seed": seed, name: 1.5})
			if !slices.Equal(got, draw(1, map[string]any{"seed": seed, name: 1.5})) {
				t.Errorf("%s: not the same twice", name)
			}
			if !slices.Equal(got, draw(1, map[string]any{"seed": seed})) {
				differ++
			}
		}
		if differ == 0 {
			t.Errorf("%s changes nothing", name)
		}
	}
}

// TestTopLogprobs: the likeliest tokens come in order, at any temperature, and have the drawn one where it is likely.
func TestTopLogprobs(t *testing.T) {
	r := start(t, nil, nil)
	var got struct {
		Choices []struct {
			Logprobs struct {
				Content []struct {
					Token   string
					Logprob float64
					Top     []struct {
						Token   string
						Logprob float64
					} `json:"top_logprobs"`
				}
			}
		}
	}
	r.read(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hello"}],"logprobs":true,`+
		`"top_logprobs":5,"seed":4,"max_tokens":8,"logit_bias":{"70":30}}`, &got)
	for _, c := range got.Choices[0].Logprobs.Content {
		sum, found := 0.0, c.Logprob < c.Top[4].Logprob
		for i, top := range c.Top {
			sum += math.Exp(top.Logprob)
			found = found || top.Token == c.Token && top.Logprob == c.Logprob
			if i > 0 && top.Logprob > c.Top[i-1].Logprob {
				t.Errorf("%+v is not in order", c.Top)
			}
		}
		if len(c.Top) != 5 || !found || sum > 1+1e-5 {
			t.Errorf("%+v: %v of the probability", c, sum)
		}
	}
	plain := r.plain(t, map[string]any{"prompt": question, "logprobs": 2, "max_tokens": 3}).Choices[0].Logprobs
	for k, top := range plain.Top {
		if _, has := top[plain.Tokens[k]]; !has || len(top) < 2 || len(top) > 3 {
			t.Errorf("%q: %v", plain.Tokens[k], top)
		}
	}
}

// TestTemplateVariables: variables of a request reach the chat template, and win over the server's.
func TestTemplateVariables(t *testing.T) {
	o := tokenizer.ChatOptions{Template: "{{ messages[0].content }}{% if enable_thinking %} think{% endif %}",
		Variables: map[string]any{"enable_thinking": true}}
	r, s, tok := scripted(t, "../../tokenizer/testdata/qwen2-older", o, []int32{2})
	for more, want := range map[string]string{"": "Hi think", `,"chat_template_kwargs":{"enable_thinking":false}`: "Hi",
		`,"chat_template_kwargs":{}`: "Hi think"} {
		r.read(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}]`+more+"}", &struct{}{})
		if got := s.prompt(tok); got != want {
			t.Errorf("%s: the prompt is %q, want %q", more, got, want)
		}
	}
}

const tools = `"tools":[{"type":"function","function":{"name":"look","description":"Looks.","parameters":{` +
	`"type":"object","properties":{"at":{"type":"string","description":"What?"}}}}}]`

// TestTools: tools are in the prompt, calls come apart, whole and streamed, and their results go back, in the form of
// the model's chat template, or as text where that has no tools.
func TestTools(t *testing.T) {
	const hermes = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"x\"}}\n</tool_call>"
	const plainCall = "Action: look\nAction Input: {\"at\": \"x\"}"
	bare := tokenizer.ChatOptions{Template: "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"}
	for _, c := range []struct {
		o             tokenizer.ChatOptions
		says, content string
		calls         int
		one           bool     // no parallel calls
		offered, back []string // what the prompts have
	}{
		{tokenizer.ChatOptions{}, "Let me see.\n" + hermes + "\n" + hermes, "Let me see.", 2, false,
			[]string{`"name": "look"`}, []string{hermes, "<tool_response>\na tree\n</tool_response>"}},
		{tokenizer.ChatOptions{}, " Now.\n\n" + hermes, "Now.", 1, false, nil, nil},
		{tokenizer.ChatOptions{}, hermes + hermes, "", 1, true, []string{`"name": "look"`}, []string{hermes}},
		{tokenizer.ChatOptions{}, "No tool, a < b <tool", "No tool, a < b <tool", 0, false, []string{`"look"`}, nil},
		{tokenizer.ChatOptions{}, "See <tool_call>{look}", "See <tool_call>{look}", 0, false, []string{`"look"`}, nil},
		{bare, "I look.\n" + plainCall + "\nObservation: none", "I look.", 1, false, []string{"- look: Looks."},
			[]string{strings.ReplaceAll(plainCall, ": \"x", ":\"x"), "[user]Observation: a tree"}},
	} {
		r, s, tok := scripted(t, "../../tokenizer/testdata/qwen2-older", c.o, nil)
		tokens, err := tok.Encode(c.says, false)
		if err != nil {
			t.Fatal(err)
		}
		s.tokens = append(tokens, 2)
		body := `{"messages":[{"role":"user","content":"Hi"}],` + tools +
			fmt.Sprintf(`,"parallel_tool_calls":%v`, !c.one)
		var whole struct {
			Choices []struct {
				Message struct {
					Content *string
					Calls   []toolCall `json:"tool_calls"`
				}
				Finish string `json:"finish_reason"`
			}
		}
		r.read(t, "/v1/chat/completions", body+"}", &whole)
		got, content := whole.Choices[0], ""
		if got.Message.Content != nil {
			content = *got.Message.Content
		}
		finish := map[bool]string{true: "tool_calls", false: "stop"}[c.calls > 0]
		if content != c.content || len(got.Message.Calls) != c.calls || got.Finish != finish {
			t.Errorf("%q: %+v", c.says, got)
		}
		for _, want := range c.offered {
			if p := s.prompt(tok); !strings.Contains(p, want) {
				t.Errorf("the prompt %q lacks %q", p, want)
			}
		}
		var streamed, ends string
		var calls []toolCall
		for _, chunk := range r.chunks(t, "/v1/chat/completions", body+`,"stream":true}`) {
			d := chunk.Choices[0]
			streamed, ends, calls = streamed+d.Delta.Content, ends+d.Finish, append(calls, d.Delta.Calls...)
		}
		if c.calls > 0 {
			streamed = strings.TrimSpace(streamed)
		}
		if streamed != c.content || ends != finish || len(calls) != c.calls {
			t.Errorf("%q streamed: %q, %s, %+v", c.says, streamed, ends, calls)
		}
		for i, one := range slices.Concat(got.Message.Calls, calls) {
			if one.ID == "" || one.Type != "function" || one.Function.Name != "look" ||
				one.Function.Arguments != `{"at": "x"}` || i >= c.calls && one.Index != i-c.calls {
				t.Errorf("call %+v", one)
			}
		}
		if c.back == nil {
			continue
		}
		r.read(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant",`+
			`"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"look","arguments":"{\"at\": \"x\"}"}}]},`+
			`{"role":"tool","tool_call_id":"a","content":"a tree"}],`+tools+`}`, &struct{}{})
		for _, want := range c.back {
			if p := s.prompt(tok); !strings.Contains(p, want) {
				t.Errorf("the prompt %q lacks %q", p, want)
			}
		}
	}
	r, s, tok := scripted(t, "../../tokenizer/testdata/qwen2-older", tokenizer.ChatOptions{}, []int32{2})
	r.read(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"tool_choice":"none",`+tools+`}`,
		&struct{}{})
	if p := s.prompt(tok); strings.Contains(p, "look") {
		t.Errorf("tool_choice none: %q", p)
	}
}
