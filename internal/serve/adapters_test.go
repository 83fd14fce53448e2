package serve_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/tokenizer"
)

// askModel starts a request to a model for some tokens.
func (r *running) askModel(ctx context.Context, model string, tokens int) <-chan asked {
	out := make(chan asked, 1)
	go func() {
		c, err := r.client.CreateChatCompletion(ctx, says("Hello", func(q *openai.ChatCompletionRequest) {
			q.Model, q.MaxTokens = model, tokens
		}))
		out <- asked{c, err}
	}()
	return out
}

// withAdapters starts a server whose adapters sample with p. closed gets a value when one is closed.
func withAdapters(t *testing.T, base serve.Sampler, p serve.Sampler) (r *running, closed chan bool) {
	closed = make(chan bool, 20)
	return start(t, base, func(o *serve.Options) {
		o.LoadAdapter = func(folder string) (*serve.Adapter, error) {
			if folder == "bad" {
				return nil, errors.New("bad/adapter_config.json: no such file")
			}
			return &serve.Adapter{Sampler: p, Close: func() { closed <- true }}, nil
		}
	}), closed
}

func (r *running) adapter(t *testing.T, path, body string, status int, says string) {
	t.Helper()
	got := r.send(t, "POST", "/v1/"+path, body, nil)
	if got.status != status || !strings.Contains(got.body, says) {
		t.Errorf("%s %s: %+v, want %d and %q", path, body, got, status, says)
	}
}

// TestAdaptersTakeTurns: requests to the model and to an adapter are answered in the order of their arrival, each by
// its own sampler, and replies name the model.
func TestAdaptersTakeTurns(t *testing.T) {
	base, other := newPaced(), newPaced()
	r, closed := withAdapters(t, base, other)
	r.adapter(t, "load_lora_adapter", `{"lora_name":"v1","lora_path":"f"}`, http.StatusOK, "added successfully")
	first := r.ask(t.Context(), 2)
	base.join(t)
	second := r.askModel(t.Context(), "v1", 2)
	r.waitForQueue(t, 1)
	third := r.ask(t.Context(), 3) // waits for the second, although the base has free rows
	r.waitForQueue(t, 2)
	base.step(t)
	base.step(t)
	tokens(t, first, 2)
	other.join(t)
	if h := r.health(t); h.Waiting != 1 {
		t.Errorf("%+v: want the third request to wait", h)
	}
	close(other.steps)
	if got := <-second; got.err != nil || got.reply.Model != "v1" || got.reply.Usage.CompletionTokens != 2 {
		t.Errorf("%+v", got)
	}
	close(base.steps)
	tokens(t, third, 3)
	r.adapter(t, "unload_lora_adapter", `{"lora_name":"v1"}`, http.StatusOK, "removed successfully")
	soon(t, "the adapter's end", closed)
	got := <-r.askModel(t.Context(), "v1", 1)
	checkError(t, got.err, http.StatusNotFound, "model_not_found", "v1")
}

// TestAdaptersAreChecked: what cannot be loaded or unloaded is named, and the model list has the adapters.
func TestAdaptersAreChecked(t *testing.T) {
	p := newPaced()
	r, closed := withAdapters(t, p, p)
	r.adapter(t, "load_lora_adapter", `{"lora_name":"v1","lora_path":"bad"}`, http.StatusBadRequest, "no such file")
	r.adapter(t, "load_lora_adapter", `{"lora_path":"f","lora_name":"`+strings.Repeat("a", 257)+`"}`, http.StatusBadRequest,
		"lora_name: want a name of at most 256 bytes")
	r.adapter(t, "load_lora_adapter", `{"lora_path":"f"}`, http.StatusBadRequest, "lora_name: want a name")
	r.adapter(t, "load_lora_adapter", `{"lora_name":"v1"}`, http.StatusBadRequest, "lora_path: want a folder")
	r.adapter(t, "load_lora_adapter", `{"lora_name":"tiny","lora_path":"f"}`, http.StatusBadRequest, "already")
	r.adapter(t, "load_lora_adapter", `{"lora_name":"v0","lora_path":"f"}`, http.StatusOK, "added")
	r.adapter(t, "load_lora_adapter", `{"lora_name":"v0","lora_path":"f"}`, http.StatusBadRequest, "already")
	list, err := r.client.ListModels(t.Context())
	if err != nil || len(list.Models) != 2 || list.Models[1].ID != "v0" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, name := range strings.Split("abcdefg", "") {
		r.adapter(t, "load_lora_adapter", `{"lora_name":"`+name+`","lora_path":"f"}`, http.StatusOK, "added")
	}
	r.adapter(t, "load_lora_adapter", `{"lora_name":"v9","lora_path":"f"}`, http.StatusBadRequest, "unload one")
	r.adapter(t, "unload_lora_adapter", `{"lora_name":"v9"}`, http.StatusNotFound, "no adapter")
	r.stop()
	r.wait(t)
	for range 8 {
		soon(t, "the adapters' end", closed)
	}
	plain := start(t, newPaced(), nil) // without the option
	plain.adapter(t, "load_lora_adapter", `{"lora_name":"v1","lora_path":"f"}`, http.StatusForbidden,
		"--weight-updates")
}

// TestAdaptersHaveTemplates: chats of an adapter go through the chat template of its own, with or without tools, and
// chats of the model through the model's.
func TestAdaptersHaveTemplates(t *testing.T) {
	const folder = "../../tokenizer/testdata/qwen2-older"
	own, err := tokenizer.Load(folder) // with a template that takes tools
	if err != nil {
		t.Fatal(err)
	}
	bare := tokenizer.ChatOptions{Template: "[{{ messages[0].content }}]"}
	r, s, tok := scripted(t, folder, bare, []int32{2}, func(o *serve.Options) {
		o.LoadAdapter = func(string) (*serve.Adapter, error) {
			return &serve.Adapter{Sampler: o.Sampler, Encoder: &batch.Encoder{Tokenizer: own}, Close: func() {}}, nil
		}
	})
	r.adapter(t, "load_lora_adapter", `{"lora_name":"v1","lora_path":"f"}`, http.StatusOK, "added")
	for _, c := range []struct{ model, more, want string }{{"tiny", "", "[Hi]"}, {"v1", "", "<|im_start|>user\nHi"},
		{"tiny", "," + tools, "- look: Looks."}, {"v1", "," + tools, `"name": "look"`}} {
		r.read(t, "/v1/chat/completions", `{"model":"`+c.model+`","messages":[{"role":"user","content":"Hi"}]`+c.more+`}`,
			&struct{}{})
		if got := s.prompt(tok); !strings.Contains(got, c.want) {
			t.Errorf("%s%s: the prompt is %q, want %q", c.model, c.more, got, c.want)
		}
	}
}
