package serve_test

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout"
)

// plainBody is the part of a reply that the tests read.
type plainBody struct {
	Object  string
	Choices []struct {
		Text     string
		Finish   string  `json:"finish_reason"`
		Prompt   []int32 `json:"prompt_token_ids"`
		Tokens   []int32 `json:"token_ids"`
		Logprobs struct {
			Tokens  []string
			Logps   []float32            `json:"token_logprobs"`
			Offsets []int                `json:"text_offset"`
			Top     []map[string]float32 `json:"top_logprobs"`
		}
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
}

// read sends a request and reads the reply.
func (r *running) read(t *testing.T, path, body string, into any) {
	t.Helper()
	got := r.send(t, "POST", path, body, nil)
	if err := json.Unmarshal([]byte(got.body), into); err != nil || got.status != http.StatusOK {
		t.Fatalf("status %d, %v: %s", got.status, err, got.body)
	}
}

// plain asks /v1/completions with fields as JSON.
func (r *running) plain(t *testing.T, fields map[string]any) (out plainBody) {
	t.Helper()
	body, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	r.read(t, "/v1/completions", string(body), &out)
	return out
}

// TestCompletionsAreTheSamplers: token ids in, the sampler's own tokens and log-probs out, for one choice with the very
// seed of the request.
func TestCompletionsAreTheSamplers(t *testing.T) {
	r := start(t, nil, nil)
	prompt := r.prompt(t, data.Text{Plain: question})
	one := rollout.Request{Sampling: rollout.Sampling{MaxNew: 40, Temperature: 1}, Prompt: prompt, Seed: 7}
	for _, c := range []struct {
		n      int
		prompt any
		want   []rollout.Request
	}{{1, prompt, []rollout.Request{one}}, {1, question, []rollout.Request{one}}, {3, prompt, one.Samples(3)}} {
		want, err := r.world.sampler.Sample(t.Context(), c.want)
		if err != nil {
			t.Fatal(err)
		}
		got := r.plain(t, map[string]any{"model": "tiny", "prompt": c.prompt, "n": c.n, "seed": 7, "max_tokens": 40,
			"logprobs": 0, "return_token_ids": true, "top_p": 1, "skip_special_tokens": false})
		if got.Object != "text_completion" || len(got.Choices) != c.n || got.Usage.Prompt != len(prompt) {
			t.Fatalf("%+v", got)
		}
		for i, g := range got.Choices {
			reason := map[string]string{"eos": "stop", "length": "length"}[want[i].Reason]
			if !slices.Equal(g.Tokens, want[i].Tokens) || g.Text != want[i].Text || g.Finish != reason ||
				!slices.Equal(g.Prompt, prompt) {
				t.Errorf("choice %d: %+v, want %+v", i, g, want[i])
			}
			if len(g.Logprobs.Logps) != len(g.Tokens) || len(g.Logprobs.Offsets) != len(g.Tokens) {
				t.Errorf("choice %d: %+v: want an element for each of %d tokens", i, g.Logprobs, len(g.Tokens))
			}
			for k, l := range g.Logprobs.Logps {
				if d := l - want[i].Logps[k]; d > 1e-4 || d < -1e-4 {
					t.Errorf("choice %d, token %d: %v, want %v", i, k, l, want[i].Logps[k])
				}
			}
		}
	}
}

// TestStopTokenIDs: a stop token of the request ends the answer and is its last token.
func TestStopTokenIDs(t *testing.T) {
	r := start(t, nil, nil)
	ask := map[string]any{"prompt": question, "seed": 5, "max_tokens": 20, "return_token_ids": true}
	free := r.plain(t, ask).Choices[0]
	stop := free.Tokens[len(free.Tokens)/2]
	ask["stop_token_ids"] = []int32{stop}
	got := r.plain(t, ask).Choices[0]
	want := free.Tokens[:slices.Index(free.Tokens, stop)+1]
	if !slices.Equal(got.Tokens, want) || got.Finish != "stop" || !strings.HasPrefix(free.Text, got.Text) {
		t.Errorf("stop %d: %+v, want %v", stop, got, want)
	}
}

// TestCompletionsRefuse: what is not supported is named, and nothing is drawn.
func TestCompletionsRefuse(t *testing.T) {
	r := start(t, nil, nil)
	for body, want := range map[string]string{
		`{}`:                                        "prompt: want a text or a list of token ids",
		`{"prompt":null}`:                           "prompt: want a text or a list of token ids",
		`{"prompt":[]}`:                             "prompt: the prompt has no tokens",
		`{"prompt":["a",1]}`:                        "a text or a list of token ids, or a list of either",
		`{"prompt":["a",""]}`:                       "prompt: the prompt has no tokens",
		`{"prompt":[[1],[-1]]}`:                     "prompt: token id -1",
		`{"prompt":[99999999]}`:                     "prompt: token id 99999999: the model has ids 0 to",
		`{"prompt":[-1]}`:                           "prompt: token id -1",
		`{"prompt":[1.5]}`:                          "a list of token ids",
		`{"prompt":[1,null]}`:                       "prompt: found null among token ids: want a text or a list of token ids",
		`{"prompt":[[1,null]]}`:                     "prompt: found null among token ids",
		`{"prompt":["a",null]}`:                     "prompt: found null",
		`{"prompt":[null]}`:                         "prompt: found null",
		`{"prompt":"null","stop_token_ids":[null]}`: "stop_token_ids: found null among token ids: want a list of at most",
		`{"prompt":"a","stop_token_ids":[900000]}`:  "token id 900000",
		`{"prompt":"a","stop_token_ids":[1` + strings.Repeat(",1", 1024) + `]}`: "stop_token_ids: found 1025: want a list of at most 1024",
		"{\"prompt\":\"a\xff\"}":                               "the body is not UTF-8",
		`{"prompt":"a","logprobs":2,"echo":true}`:              "logprobs: 2 is not supported with echo",
		`{"prompt":"a","logprobs":21}`:                         "logprobs: found 21",
		`{"prompt":"a","logit_bias":{"900000":1}}`:             "logit_bias: token id 900000",
		`{"prompt":"a","stream_options":{}}`:                   "stream_options: want stream true as well",
		`{"prompt":"a","echo":1}`:                              "echo: found 1: want true or false",
		`{"prompt":"a","max_tokens":0}`:                        "max_tokens: found 0: want 1 or more, or echo true as well",
		`{"prompt":["a","b","c"],"n":100,"max_tokens":500}`:    "n × max_tokens is 300 × 500",
		`{"prompt":[` + strings.Repeat(`"a",`, 1024) + `"a"]}`: "found 1025 prompts: want at most 1024",
		`{"prompt":"a","prompt_logprobs":0}`:                   "prompt_logprobs: 0 is not supported",
		`{"prompt":"a","messages":[]}`:                         "messages: unknown field",
		`{"prompt":"a","n":0}`:                                 "n: found 0",
		`{"prompt":"a","model":"other"}`:                       "there is no",
		`{"prompt":"a","max_tokens":99999999999}`:              "max_tokens",
	} {
		got := r.send(t, "POST", "/v1/completions", body, nil)
		message, _, _, _ := got.error(t)
		if got.status/100 != 4 || !strings.Contains(message, want) {
			t.Errorf("%s: %d %q, want %q", body, got.status, message, want)
		}
	}
}

// TestEcho: the prompt comes before the answer, its tokens with the log-probs of a pass over it, with no answer, with
// one token, which that pass decides, or with more, which are the sampler's. A sampler may be unable to.
func TestEcho(t *testing.T) {
	r := start(t, nil, nil)
	prompt := r.prompt(t, data.Text{Plain: question})
	want, err := r.world.sampler.Echo([][]int32{prompt})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 2} {
		ask := map[string]any{"prompt": prompt, "temperature": 0, "max_tokens": n, "logprobs": 1, "seed": 3,
			"return_token_ids": true}
		answer := plainBody{}.Choices
		if n > 0 {
			answer = r.plain(t, ask).Choices
		}
		ask["echo"] = true
		got := r.plain(t, ask)
		c := got.Choices[0]
		tokens, text := prompt, question
		if n > 0 {
			tokens, text = slices.Concat(tokens, answer[0].Tokens), text+answer[0].Text
		}
		l := c.Logprobs
		if c.Text != text || c.Finish != "length" || len(l.Logps) != len(tokens) || len(l.Top) != len(tokens) ||
			l.Top[0] != nil || strings.Join(l.Tokens, "") != text || got.Usage.Prompt != len(prompt) ||
			got.Usage.Completion != n || !slices.Equal(c.Tokens, tokens[len(prompt):]) {
			t.Fatalf("max_tokens %d: %+v, want %q", n, got, text)
		}
		for k := 1; k < len(tokens); k++ {
			logp, likeliest := l.Logps[k], slices.Max(slices.Collect(maps.Values(l.Top[k])))
			if own, has := l.Top[k][l.Tokens[k]]; !has || own != logp {
				t.Errorf("token %d: %v is not among %v", k, logp, l.Top[k])
			}
			if k < len(prompt) && (logp != want[0].Logps[k-1] || likeliest != want[0].Top[k-1]) {
				t.Errorf("token %d: %v, at most %v, want %v and %v", k, logp, likeliest, want[0].Logps[k-1],
					want[0].Top[k-1])
			}
		}
	}
	r = start(t, nil, func(o *serve.Options) { o.Sampler = narrow{o.Sampler} })
	got := r.send(t, "POST", "/v1/completions", `{"prompt":"a","echo":true}`, nil)
	if message, _, _, _ := got.error(t); message != "echo: true is not supported here: leave it out" {
		t.Error(message)
	}
}

// TestSeveralPrompts: each gets the choices that it gets alone, in the order of the prompts.
func TestSeveralPrompts(t *testing.T) {
	r := start(t, nil, nil)
	prompts := []string{question, "Hello", "A much longer question than the others, to be read in another pass."}
	ask := map[string]any{"seed": 4, "max_tokens": 7, "n": 2, "logprobs": 0, "echo": true}
	var want []string
	total := 0
	for _, prompt := range prompts {
		ask["prompt"] = prompt
		alone := r.plain(t, ask)
		want, total = append(want, alone.Choices[0].Text, alone.Choices[1].Text), total+alone.Usage.Prompt
	}
	ask["prompt"] = prompts
	var got []string
	all := r.plain(t, ask)
	for i, c := range all.Choices {
		if got = append(got, c.Text); !strings.HasPrefix(c.Text, prompts[i/2]) {
			t.Errorf("choice %d: %q", i, c.Text)
		}
	}
	if !slices.Equal(got, want) || all.Usage.Prompt != total {
		t.Errorf("%q of %d tokens, alone %q of %d", got, all.Usage.Prompt, want, total)
	}
}

// TestEqualPrompts: without a seed, a prompt that comes several times gets an answer of its own each time; with one, the
// same.
func TestEqualPrompts(t *testing.T) {
	r := start(t, nil, nil)
	for seed, equal := range map[any]bool{nil: false, 4: true} {
		all := r.plain(t, map[string]any{"prompt": []string{question, question, question}, "max_tokens": 30, "seed": seed,
			"temperature": 2}).Choices
		if same := all[0].Text == all[1].Text && all[1].Text == all[2].Text; same != equal {
			t.Errorf("seed %v: %q, %q, %q", seed, all[0].Text, all[1].Text, all[2].Text)
		}
	}
}

// TestHarness sends what EleutherAI's harness sent for two tasks, and reads the replies as it does: they give the
// numbers and texts of transformers (scripts/serve/harness.py).
func TestHarness(t *testing.T) {
	text := expect.Bytes(t, "testdata/harness.json")
	var requests []struct {
		Body   map[string]any
		Texts  []string
		Scores []struct {
			Context int
			Logp    float64
			Greedy  bool
		}
	}
	if err := json.Unmarshal(text, &requests); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, nil)
	scores, texts := 0, 0
	for i, q := range requests {
		got := r.plain(t, q.Body)
		if len(got.Choices) != len(q.Texts)+len(q.Scores) {
			t.Fatalf("request %d: %d choices, want %d", i, len(got.Choices), len(q.Texts)+len(q.Scores))
		}
		for k, want := range q.Texts {
			if texts++; got.Choices[k].Text != want {
				t.Errorf("request %d: %q, transformers %q", i, got.Choices[k].Text, want)
			}
		}
		for k, want := range q.Scores {
			scores++
			l, sum, greedy := got.Choices[k].Logprobs, 0.0, true
			for at := want.Context; at < len(l.Logps)-1; at++ {
				sum += float64(l.Logps[at])
				greedy = greedy && l.Logps[at] == slices.Max(slices.Collect(maps.Values(l.Top[at])))
			}
			if math.Abs(sum-want.Logp) > 1e-3 || greedy != want.Greedy {
				t.Errorf("request %d, choice %d: %v, greedy %v, transformers %+v", i, k, sum, greedy, want)
			}
		}
	}
	if scores < 30 || texts < 10 {
		t.Errorf("%d log-likelihoods and %d texts: want more", scores, texts)
	}
}
