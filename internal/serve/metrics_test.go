package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
)

// TestMetrics: what Prometheus reads counts two answered requests and a refused one.
func TestMetrics(t *testing.T) {
	r := start(t, nil, nil)
	prompt, drawn := 0, 0
	for range 2 {
		got := r.chat(t, says(question, func(q *openai.ChatCompletionRequest) { q.MaxTokens = 3 }))
		prompt, drawn = prompt+got.Usage.PromptTokens, drawn+got.Usage.CompletionTokens
	}
	refused, err := http.Post(r.url+"/v1/completions", "application/json", strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	refused.Body.Close()
	response, err := http.Get(r.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`posttrain_requests_total{path="/v1/chat/completions",status="200"} 2`,
		`posttrain_requests_total{path="/v1/completions",status="400"} 1`,
		`posttrain_request_seconds_count{path="/v1/chat/completions"} 2`,
		fmt.Sprintf("posttrain_prompt_tokens_total %d\n", prompt),
		fmt.Sprintf("posttrain_generated_tokens_total %d\n", drawn),
		"posttrain_requests_running 0\n", "posttrain_requests_waiting 0\n", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("lacks %s:\n%s", want, text)
		}
	}
}
