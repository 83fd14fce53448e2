package serve_test

import (
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sashabaranov/go-openai"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

const question = "Please book the tickets for $665."

// TestChatIsTheSamplers: a reply has the text, reason, log-probs and counts of the sampler's own completion.
func TestChatIsTheSamplers(t *testing.T) {
	r := start(t, nil, nil)
	seed := 7
	got := r.chat(t, says(question, func(q *openai.ChatCompletionRequest) {
		q.Seed, q.N, q.LogProbs, q.MaxTokens, q.Temperature = &seed, 3, true, 60, 0.8
	}))
	prompt := r.prompt(t, data.Text{Messages: []data.Message{{Role: "user", Content: question}}})
	want, err := r.world.sampler.Sample(t.Context(), rollout.Request{Sampling: rollout.Sampling{MaxNew: 60,
		Temperature: float64(float32(0.8))}, Prompt: prompt, Seed: 7}.Samples(3))
	if err != nil {
		t.Fatal(err)
	}
	drawn := 0
	for i, c := range want {
		drawn += len(c.Tokens)
		shown, reason := c.Tokens, map[string]openai.FinishReason{"eos": "stop", "length": "length"}[c.Reason]
		if c.Reason == rollout.EOS {
			shown = shown[:len(shown)-1]
		}
		choice := got.Choices[i]
		if choice.Message.Content != c.Text || choice.FinishReason != reason || choice.Index != i ||
			choice.Message.Role != "assistant" || len(choice.LogProbs.Content) != len(shown) {
			t.Errorf("choice %d: %+v, want %+v", i, choice, c)
			continue
		}
		text := ""
		for k, l := range choice.LogProbs.Content {
			if text += l.Token; math.Abs(l.LogProb-float64(c.Logps[k])) > 1e-4 || string(l.Bytes) != l.Token {
				t.Errorf("choice %d, token %d: %+v, want %v", i, k, l, c.Logps[k])
			}
		}
		if text != c.Text {
			t.Errorf("choice %d: the tokens are %q, the text %q", i, text, c.Text)
		}
	}
	if u := got.Usage; u.PromptTokens != len(prompt) || u.CompletionTokens != drawn ||
		u.TotalTokens != len(prompt)+drawn {
		t.Errorf("usage %+v, want %d and %d", u, len(prompt), drawn)
	}
	if got.Model != "tiny" || got.Object != "chat.completion" || !strings.HasPrefix(got.ID, "chatcmpl-") ||
		got.Created == 0 {
		t.Errorf("%+v", got)
	}
}

// TestSeeds: the same seed gives the same answers, alone or in a batch, whole or streamed; without a seed they
// differ.
func TestSeeds(t *testing.T) {
	r := start(t, nil, nil)
	seed := 3
	seeded := func(q *openai.ChatCompletionRequest) { q.Seed, q.N = &seed, 2 }
	first := r.chat(t, says(question, seeded))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			q := says(question, seeded)
			if i%2 == 1 {
				q = says("Hello", nil)
			}
			got, err := r.client.CreateChatCompletion(t.Context(), q)
			if err != nil || i%2 == 0 && !reflect.DeepEqual(texts(got), texts(first)) {
				t.Errorf("%v: %q, at first %q", err, texts(got), texts(first))
			}
		})
	}
	wg.Wait()
	if s := r.stream(t, says(question, seeded)); s.texts[0] != texts(first)[0] || s.texts[1] != texts(first)[1] {
		t.Errorf("streamed %v, at first %q", s.texts, texts(first))
	}
	if texts(first)[0] == texts(first)[1] {
		t.Errorf("both answers are %q", texts(first)[0])
	}
	free := map[string]bool{}
	for range 4 {
		free[texts(r.chat(t, says(question, nil)))[0]] = true
	}
	if len(free) == 1 {
		t.Errorf("without a seed, always %v", free)
	}
}

func texts(c openai.ChatCompletionResponse) (out []string) {
	for _, choice := range c.Choices {
		out = append(out, choice.Message.Content)
	}
	return out
}

// TestStream: the pieces make up the reply, with its log-probs, reasons and usage; there are many pieces.
func TestStream(t *testing.T) {
	r := start(t, nil, nil)
	seed := 5
	ask := func(q *openai.ChatCompletionRequest) {
		q.Seed, q.N, q.LogProbs, q.MaxTokens = &seed, 2, true, 30
	}
	whole := r.chat(t, says(question, ask))
	q := says(question, ask)
	q.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	s := r.stream(t, q)
	for i, choice := range whole.Choices {
		var logprobs []float64
		for _, l := range choice.LogProbs.Content {
			logprobs = append(logprobs, l.LogProb)
		}
		if s.texts[i] != choice.Message.Content || s.reasons[i] != string(choice.FinishReason) ||
			!slices.Equal(s.logprobs[i], logprobs) {
			t.Errorf("choice %d: streamed %q, %s, %v, whole %+v", i, s.texts[i], s.reasons[i], s.logprobs[i], choice)
		}
	}
	if s.chunks < 20 || s.usage == nil || !reflect.DeepEqual(*s.usage, whole.Usage) {
		t.Errorf("%d chunks, usage %+v, want %+v", s.chunks, s.usage, whole.Usage)
	}
	if s := r.stream(t, says(question, nil)); s.usage != nil {
		t.Errorf("usage %+v, want none unless asked for", s.usage)
	}
}

// TestStop: an answer and its tokens end before a stop text, whole and streamed.
func TestStop(t *testing.T) {
	r := start(t, nil, nil)
	seed := 5
	ask := func(q *openai.ChatCompletionRequest) { q.Seed, q.MaxTokens, q.LogProbs = &seed, 30, true }
	free := r.chat(t, says(question, ask)).Choices[0].Message.Content
	stop := free[len(free)/2 : len(free)/2+4]
	want, _, _ := strings.Cut(free, stop)
	q := says(question, func(q *openai.ChatCompletionRequest) { ask(q); q.Stop = []string{"never there", stop} })
	got := r.chat(t, q).Choices[0]
	if got.Message.Content != want || got.FinishReason != "stop" {
		t.Errorf("stop %q: %q, %s, want %q", stop, got.Message.Content, got.FinishReason, want)
	}
	text := ""
	for _, l := range got.LogProbs.Content {
		text += l.Token
	}
	if !strings.HasPrefix(text, want) || len(text) > len(want)+8 {
		t.Errorf("tokens %q of the text %q", text, want)
	}
	if s := r.stream(t, q); s.texts[0] != want || s.reasons[0] != "stop" {
		t.Errorf("streamed %q, %s, want %q", s.texts[0], s.reasons[0], want)
	}
}

// TestLimits: the request's limit counts, then the server's, then the model's positions.
func TestLimits(t *testing.T) {
	r := start(t, nil, nil)
	cold := func(n int) func(q *openai.ChatCompletionRequest) {
		return func(q *openai.ChatCompletionRequest) { q.MaxTokens = n; q.LogitBias = map[string]int{} }
	}
	for n, want := range map[int]int{0: 12, 5: 5} {
		if got := r.chat(t, says("Hello", cold(n))); got.Usage.CompletionTokens != want ||
			got.Choices[0].FinishReason != "length" {
			t.Errorf("max_tokens %d: %+v", n, got)
		}
	}
	long := says(strings.Repeat("a b ", 120), cold(100000))
	if got := r.chat(t, long); got.Usage.TotalTokens > 512 {
		t.Errorf("%+v: the model has 512 positions", got.Usage)
	}
}

// TestGreedy: temperature 0 and top_p 0 take the likeliest tokens.
func TestGreedy(t *testing.T) {
	r := start(t, nil, nil)
	body := `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text",` +
		`"text":"Hello"}]}],"max_tokens":6,`
	first := r.send(t, "POST", "/v1/chat/completions", body+`"temperature":0,"logprobs":true,"top_logprobs":1}`, nil)
	if first.status != http.StatusOK || strings.Count(first.body, `"top_logprobs":[{`) != 6 {
		t.Errorf("%+v", first)
	}
	content := func(body string) string {
		_, rest, _ := strings.Cut(body, `"content":"`)
		text, _, _ := strings.Cut(rest, `","refusal"`)
		return text
	}
	for _, rule := range []string{`"top_p":0}`, `"top_k":1}`, `"min_p":1}`, `"temperature":0,"seed":4,"n":1}`} {
		if got := r.send(t, "POST", "/v1/chat/completions", body+rule, nil); content(got.body) == "" ||
			content(got.body) != content(first.body) {
			t.Errorf("%s: %s, want %q", rule, got.body, content(first.body))
		}
	}
}

func TestModels(t *testing.T) {
	r := start(t, nil, nil)
	list, err := r.client.ListModels(t.Context())
	if err != nil || len(list.Models) != 1 || list.Models[0].ID != "tiny" || list.Models[0].Object != "model" {
		t.Errorf("%+v, %v", list, err)
	}
	if m, err := r.client.GetModel(t.Context(), "tiny"); err != nil || m.ID != "tiny" {
		t.Errorf("%+v, %v", m, err)
	}
	_, err = r.client.GetModel(t.Context(), "gpt-4o")
	checkError(t, err, http.StatusNotFound, "model_not_found", "gpt-4o", "tiny")
	_, err = r.client.CreateChatCompletion(t.Context(),
		says("Hello", func(q *openai.ChatCompletionRequest) { q.Model = "gpt-4o" }))
	checkError(t, err, http.StatusNotFound, "model_not_found", "gpt-4o", "tiny")
	if h := r.health(t); h.Status != "ok" || h.Model != "tiny" || h.Running != 0 || h.Waiting != 0 {
		t.Errorf("%+v", h)
	}
}

// checkError checks an error as the client sees it.
func checkError(t *testing.T, err error, status int, code any, says ...string) {
	t.Helper()
	e, ok := err.(*openai.APIError)
	if !ok || e.HTTPStatusCode != status || e.Code != code {
		t.Errorf("%#v, want status %d, code %v", err, status, code)
		return
	}
	for _, part := range says {
		if !strings.Contains(e.Message, part) {
			t.Errorf("%q, want %q in it", e.Message, part)
		}
	}
}
