package remote

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/sashabaranov/go-openai"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

// isOpenAI recognises OpenAI's own server, and the resources of Azure OpenAI.
func isOpenAI(baseURL string) bool {
	u, err := url.Parse(baseURL)
	return err == nil && (u.Hostname() == "api.openai.com" || strings.HasSuffix(u.Hostname(), ".openai.azure.com"))
}

// address is where a request goes. Azure OpenAI has a path for each deployment; a base URL that ends in /openai, as its
// pages show it, is the same resource.
func (s Server) address(model, path string) string {
	base := strings.TrimRight(s.BaseURL, "/")
	if s.APIVersion == "" {
		return base + path
	}
	return strings.TrimSuffix(base, "/openai") + "/openai/deployments/" + url.PathEscape(model) + path +
		"?api-version=" + url.QueryEscape(s.APIVersion)
}

// keyHeader is the header of a request that has the key.
func (s Server) keyHeader(key string) (name, value string) {
	if s.APIVersion != "" {
		return openai.AzureAPIKeyHeader, key
	}
	return "Authorization", "Bearer " + key
}

// aboutModel says what a server means that finds nothing at the address.
func (s Server) aboutModel(model string) string {
	if s.APIVersion != "" {
		return fmt.Sprintf("there is no deployment %q, no api_version %q, or the base URL is not that of an Azure "+
			"OpenAI resource, such as https://NAME.openai.azure.com", model, s.APIVersion)
	}
	return fmt.Sprintf("there is no model %q, or the base URL is not that of an OpenAI-compatible server, which "+
		"usually ends in /v1", model)
}

// continuation are the fields of a request whose last message is the beginning of the answer.
type continuation struct {
	Continue bool  `json:"continue_final_message,omitempty"`
	Generate *bool `json:"add_generation_prompt,omitempty"`
}

func (q *request) prefill(beginning string) {
	q.Messages = append(q.Messages, openai.ChatCompletionMessage{Role: "assistant", Content: beginning})
	q.continuation = continuation{Continue: true, Generate: new(bool)}
}

// checkContinues makes sure, once, that the server continues the beginning of an answer. One that does not know the
// fields would close the message and begin another: its prompt has more tokens, as many as without the fields.
func (r *Client) checkContinues(ctx context.Context) error {
	r.checking.Lock()
	defer r.checking.Unlock()
	if r.continues {
		return nil
	}
	var lengths [2]int // of the prompt in tokens: continued, closed
	for i := range lengths {
		q := r.request(ask.Question{Sampling: rollout.Sampling{MaxNew: 1}, Prefill: data.ThinkOpen + "\n",
			Prompt: data.Text{Messages: []data.Message{{Role: "user", Content: "Hello"}}}}, 1, 0)
		if i == 1 {
			q.continuation = continuation{}
		}
		reply, err := r.persist(ctx, q)
		if err != nil {
			return err
		}
		lengths[i] = reply.Usage.Prompt
	}
	if slices.Contains(lengths[:], 0) || lengths[0] >= lengths[1] {
		return r.fail(Refused, 0, "the server does not continue the beginning of an answer: a prompt has %d tokens "+
			"with continue_final_message and %d without it, want fewer with it; ask without continue and prefill",
			lengths[0], lengths[1])
	}
	r.continues = true
	return nil
}
