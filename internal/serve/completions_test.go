package serve_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
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
			Logps   []float32 `json:"token_logprobs"`
			Offsets []int     `json:"text_offset"`
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
		`{}`:                    "prompt: want a text or a list of token ids",
		`{"prompt":null}`:       "prompt: want a text or a list of token ids",
		`{"prompt":[]}`:         "prompt: the prompt has no tokens",
		`{"prompt":["a","b"]}`:  "one text, or one list of token ids",
		`{"prompt":[99999999]}`: "prompt: token id 99999999: the model has ids 0 to",
		`{"prompt":[-1]}`:       "prompt: token id -1",
		`{"prompt":[1.5]}`:      "one list of token ids",
		`{"prompt":"a","stop_token_ids":[900000]}`: "token id 900000",
		`{"prompt":"a","logprobs":2}`:              "logprobs: 2 is not supported",
		`{"prompt":"a","logprobs":1}`:              "logprobs: 1 is not supported",
		`{"prompt":"a","echo":true}`:               "echo: true is not supported",
		`{"prompt":"a","stream":true}`:             "stream: true is not supported",
		`{"prompt":"a","prompt_logprobs":0}`:       "prompt_logprobs: 0 is not supported",
		`{"prompt":"a","messages":[]}`:             "messages: unknown field",
		`{"prompt":"a","n":0}`:                     "n: found 0",
		`{"prompt":"a","model":"other"}`:           "there is no",
		`{"prompt":"a","max_tokens":99999999999}`:  "max_tokens",
	} {
		got := r.send(t, "POST", "/v1/completions", body, nil)
		message, _, _, _ := got.error(t)
		if got.status/100 != 4 || !strings.Contains(message, want) {
			t.Errorf("%s: %d %q, want %q", body, got.status, message, want)
		}
	}
}
