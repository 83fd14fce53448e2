package serve_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/rollout"
)

// generated is a reply of /generate.
type generated struct {
	Text string
	IDs  []int32 `json:"output_ids"`
	Meta struct {
		Finish     struct{ Type string } `json:"finish_reason"`
		Prompt     int                   `json:"prompt_tokens"`
		Completion int                   `json:"completion_tokens"`
		Version    string                `json:"weight_version"`
		Logprobs   [][]any               `json:"output_token_logprobs"`
	} `json:"meta_info"`
}

func (r *running) generate(t *testing.T, body string) (out generated) {
	t.Helper()
	r.read(t, "/generate", body, &out)
	return out
}

// TestGenerateIsTheSamplers: a request in the form of SGLang gets the sampler's tokens and log-probs.
func TestGenerateIsTheSamplers(t *testing.T) {
	r := start(t, nil, nil)
	prompt := r.prompt(t, data.Text{Plain: question})
	want, err := r.world.sampler.Sample(t.Context(), []rollout.Request{{Prompt: prompt, Seed: 9,
		Sampling: rollout.Sampling{MaxNew: 30, Temperature: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := json.Marshal(prompt)
	got := r.generate(t, `{"input_ids":`+string(ids)+`,"return_logprob":true,"sampling_params":`+
		`{"max_new_tokens":30,"temperature":1,"sampling_seed":9,"n":1}}`)
	if !slices.Equal(got.IDs, want[0].Tokens) || got.Text != want[0].Text || got.Meta.Prompt != len(prompt) ||
		got.Meta.Completion != len(got.IDs) || len(got.Meta.Logprobs) != len(got.IDs) {
		t.Errorf("%+v, want %+v", got, want[0])
	}
	for i, l := range got.Meta.Logprobs {
		d := math.Abs(l[0].(float64) - float64(want[0].Logps[i]))
		if l[1].(float64) != float64(got.IDs[i]) || d > 1e-4 {
			t.Errorf("token %d: %v, want %d with %v", i, l, got.IDs[i], want[0].Logps[i])
		}
	}
	for body, says := range map[string]string{
		`{}`:                           "input_ids or text",
		`{"text":"a","input_ids":[1]}`: "input_ids or text",
		`{"text":"a","stream":true}`:   "stream: true is not supported",
		`{"text":"a","sampling_params":{"regex":"x"}}`: "sampling_params: regex: unknown field",
	} {
		reply := r.send(t, "POST", "/generate", body, nil)
		message, _, _, _ := reply.error(t)
		if reply.status != http.StatusBadRequest || !strings.Contains(message, says) {
			t.Errorf("%s: %d %q, want %q", body, reply.status, message, says)
		}
	}
}

// TestWeightsChangeBetweenRequests: an update waits for the answers under way, and requests that come meanwhile begin
// after it.
func TestWeightsChangeBetweenRequests(t *testing.T) {
	p, reloaded := newPaced(), make(chan string, 1)
	r := start(t, p, func(o *serve.Options) {
		o.Reload = func(folder string) error {
			reloaded <- folder
			return nil
		}
	})
	first := r.ask(t.Context(), 2)
	p.join(t)
	updated := make(chan reply, 1)
	go func() {
		updated <- r.send(t, "POST", "/update_weights_from_disk", `{"model_path":"next","weight_version":"v1",`+
			`"load_format":null,"flush_cache":true,"abort_all_requests":false}`, nil)
	}()
	p.step(t)
	select {
	case <-reloaded:
		t.Error("the weights changed while an answer was under way")
	default:
	}
	p.step(t)
	tokens(t, first, 2)
	if folder := soon(t, "new weights", reloaded); folder != "next" {
		t.Errorf("weights of %s", folder)
	}
	got := soon(t, "the reply", updated)
	if got.status != http.StatusOK || !strings.Contains(got.body, `"success":true`) {
		t.Errorf("%+v", got)
	}
	close(p.steps)
	if got := r.generate(t, `{"text":"a","sampling_params":{"max_new_tokens":1}}`); got.Meta.Version != "v1" {
		t.Errorf("%+v, want version v1", got.Meta)
	}
}

// TestPause: a paused server keeps requests until it continues.
func TestPause(t *testing.T) {
	p := newPaced()
	close(p.steps)
	r := start(t, p, func(o *serve.Options) { o.Reload = func(string) error { return errors.New("bad weights") } })
	for range 2 { // a second time changes nothing
		if got := r.send(t, "POST", "/pause_generation", `{"mode":"retract"}`, nil); got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
	}
	waits := r.ask(t.Context(), 3)
	r.waitForQueue(t, 1)
	got := r.send(t, "POST", "/update_weights_from_disk", `{"model_path":"x"}`, nil)
	if got.status != http.StatusBadRequest || !strings.Contains(got.body, "bad weights") ||
		!strings.Contains(got.body, `"success":false`) {
		t.Errorf("%+v", got)
	}
	if h := r.health(t); h.Waiting != 1 {
		t.Errorf("%+v: want the request to wait", h)
	}
	r.send(t, "POST", "/continue_generation", "", nil)
	tokens(t, waits, 3)
}

// TestWeightsAreFixed: without the option clients can neither pause the server nor change its weights.
func TestWeightsAreFixed(t *testing.T) {
	r := start(t, newPaced(), nil)
	for _, path := range []string{"/update_weights_from_disk", "/pause_generation", "/continue_generation"} {
		got := r.send(t, "POST", path, `{}`, nil)
		if message, _, _, code := got.error(t); got.status != http.StatusForbidden || code != "weights_fixed" ||
			!strings.Contains(message, "--weight-updates") {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// TestAdaptersKeepTheWeights: weights that a loaded adapter shares are not replaced.
func TestAdaptersKeepTheWeights(t *testing.T) {
	p, reloaded := newPaced(), false
	r := start(t, p, func(o *serve.Options) {
		o.Reload = func(string) error {
			reloaded = true
			return nil
		}
		o.LoadAdapter = func(string) (*serve.Adapter, error) { return &serve.Adapter{Sampler: p, Close: func() {}}, nil }
	})
	r.adapter(t, "load_lora_adapter", `{"lora_name":"v1","lora_path":"f"}`, http.StatusOK, "added")
	got := r.send(t, "POST", "/update_weights_from_disk", `{"model_path":"x"}`, nil)
	if got.status != http.StatusBadRequest || !strings.Contains(got.body, "v1 share the weights: unload") || reloaded {
		t.Errorf("%+v", got)
	}
}
