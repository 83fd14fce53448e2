package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/remote"
)

// protocol is how an engine is given weights and asked for a completion.
type protocol interface {
	// give gives a server the weights that were written, and drop frees the weights of another name.
	give(ctx context.Context, s *server, w written) error
	drop(ctx context.Context, s *server, name string) error
	// holds is how many versions of the weights a server keeps: of vllm the present one and those that completions may
	// still be drawn from.
	holds() int
	// ask returns the path and the body of a request to the weights of that name.
	ask(r rollout.Request, weights string) (path string, body any)
	// read returns the tokens of a reply, with their log-probs, and the name of the weights that drew them; "":
	// unknown.
	read(text json.RawMessage) (tokens []int32, logps []float32, weights string, err error)
}

var protocols = map[string]protocol{SGLang: sglangProtocol{}, VLLM: vllmProtocol{}}

// root is an address without the path of OpenAI's protocol.
func root(address string) string { return strings.TrimSuffix(strings.TrimRight(address, "/"), "/v1") }

// given is a number of a reply. It is not null, which Go reads as 0, the log-prob of a token that is certain: servers
// write null for NaN and infinity.
type given[T int32 | float32] struct{ value T }

// UnmarshalJSON implements [json.Unmarshaler].
func (g *given[T]) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return errors.New("found null: want a number")
	}
	return json.Unmarshal(text, &g.value)
}

func plain[T int32 | float32](numbers []given[T]) []T {
	all := make([]T, len(numbers))
	for i, g := range numbers {
		all[i] = g.value
	}
	return all
}

// draws say how tokens are drawn, in the names that both engines have. What is off is sent, too: vLLM takes what is missing
// from the model's generation_config.json.
type draws struct {
	Temperature float64  `json:"temperature"`
	TopP        float64  `json:"top_p"`
	TopK        int      `json:"top_k"`
	MinP        float64  `json:"min_p"`
	Repetition  float64  `json:"repetition_penalty"`
	Stop        []string `json:"stop,omitempty"`
	StopTokens  []int32  `json:"stop_token_ids,omitempty"`
	SkipSpecial bool     `json:"skip_special_tokens"`
}

func drawsOf(r rollout.Request) draws {
	return draws{r.Temperature, cmp.Or(r.TopP, 1), cmp.Or(r.TopK, -1), r.MinP, 1, r.Stop, r.StopTokens, false} // 0: off
}

// vllmProtocol is OpenAI's completions with vLLM's fields for token ids, and its endpoints for adapters.
type vllmProtocol struct{}

func (vllmProtocol) ask(r rollout.Request, weights string) (string, any) {
	return "/v1/completions", struct {
		draws
		Model    string  `json:"model"`
		Prompt   []int32 `json:"prompt"`
		MaxNew   int     `json:"max_tokens"`
		Seed     int64   `json:"seed"` // signed, with the same bits
		N        int     `json:"n"`
		Logprobs int     `json:"logprobs"` // 0: of the drawn tokens alone
		IDs      bool    `json:"return_token_ids"`
	}{drawsOf(r), weights, r.Prompt, r.MaxNew, int64(r.Seed), 1, 0, true}
}

func (vllmProtocol) read(text json.RawMessage) ([]int32, []float32, string, error) {
	var reply struct {
		Model   string
		Choices []struct {
			Tokens   []given[int32] `json:"token_ids"`
			Logprobs struct {
				Logps []given[float32] `json:"token_logprobs"`
			}
		}
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return nil, nil, "", err
	}
	if len(reply.Choices) != 1 || len(reply.Choices[0].Tokens) == 0 {
		return nil, nil, "", fmt.Errorf("%d choices, or no token_ids: want one choice with the ids of its tokens",
			len(reply.Choices))
	}
	c := reply.Choices[0]
	return plain(c.Tokens), plain(c.Logprobs.Logps), reply.Model, nil
}

// give loads an adapter under a name of its own, and looks whether it is there: servers have said so of missing
// folders.
func (vllmProtocol) give(ctx context.Context, s *server, w written) error {
	adapter := map[string]any{"lora_name": w.name, "lora_path": w.folder}
	refused := s.Exchange(ctx, "/v1/load_lora_adapter", adapter, nil)
	failed, ok := errors.AsType[*remote.Error](refused)
	if refused != nil && (!ok || failed.Status != http.StatusBadRequest) { // 400 where it has the name already
		return s.offers(refused, "takes no adapters: start vLLM with --enable-lora and "+
			"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True")
	}
	var models struct{ Data []struct{ ID string } }
	if err := s.Exchange(ctx, "/v1/models", nil, &models); err != nil {
		return err
	}
	switch {
	case slices.Contains(models.Data, struct{ ID string }{w.name}):
		return nil
	case refused != nil:
		return refused
	}
	return s.Fail("/v1/load_lora_adapter accepts %s, but /v1/models does not list it", w.name)
}

// drop ignores names that the server does not have, as one that was started anew.
func (vllmProtocol) drop(ctx context.Context, s *server, name string) error {
	err := s.Exchange(ctx, "/v1/unload_lora_adapter", map[string]any{"lora_name": name}, nil)
	if failed, ok := errors.AsType[*remote.Error](err); ok && failed.Status == http.StatusNotFound {
		return nil
	}
	return err
}

func (vllmProtocol) holds() int { return 2 }

// offers explains an endpoint that is not there, or not allowed.
func (s *server) offers(err error, otherwise string) error {
	failed, ok := errors.AsType[*remote.Error](err)
	if ok && (failed.Status == http.StatusNotFound || failed.Status == http.StatusForbidden) {
		return s.Fail("the server %s, or posttrain serve with --weight-updates (%d %s)", otherwise, failed.Status,
			http.StatusText(failed.Status))
	}
	return err
}

// sglangProtocol is what SGLang's own servers speak.
type sglangProtocol struct{}

func (sglangProtocol) ask(r rollout.Request, _ string) (string, any) {
	type ownDraws struct {
		draws
		MaxNew int   `json:"max_new_tokens"`
		Seed   int64 `json:"sampling_seed"`
	}
	return "/generate", struct {
		Prompt   []int32  `json:"input_ids"`
		Draws    ownDraws `json:"sampling_params"`
		Logprobs bool     `json:"return_logprob"`
	}{r.Prompt, ownDraws{drawsOf(r), r.MaxNew, int64(r.Seed)}, true}
}

func (sglangProtocol) read(text json.RawMessage) (tokens []int32, logps []float32, weights string, err error) {
	var reply struct {
		Meta struct {
			Version  string               `json:"weight_version"`
			Logprobs [][3]json.RawMessage `json:"output_token_logprobs"` // log-prob, id, text
		} `json:"meta_info"`
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return nil, nil, "", err
	}
	for i, l := range reply.Meta.Logprobs {
		var logp given[float32]
		var token given[int32]
		if json.Unmarshal(l[0], &logp) != nil || json.Unmarshal(l[1], &token) != nil {
			return nil, nil, "", fmt.Errorf("output_token_logprobs %d is %s: want log-prob and token id", i, l)
		}
		tokens, logps = append(tokens, token.value), append(logps, logp.value)
	}
	if len(tokens) == 0 {
		return nil, nil, "", fmt.Errorf("no output_token_logprobs: want one for each token")
	}
	return tokens, logps, reply.Meta.Version, nil
}

// give replaces the weights. The server waits with new requests meanwhile.
func (sglangProtocol) give(ctx context.Context, s *server, w written) error {
	if err := s.Exchange(ctx, "/pause_generation", map[string]any{"mode": "retract"}, nil); err != nil {
		return s.offers(err, "takes no weights: want one of SGLang")
	}
	var outcome struct {
		Success bool
		Message string
	}
	err := s.Exchange(ctx, "/update_weights_from_disk", map[string]any{"model_path": w.folder, "weight_version": w.name,
		"abort_all_requests": false, "flush_cache": true}, &outcome)
	if err == nil && !outcome.Success {
		err = s.Fail("the server keeps its weights: %s", outcome.Message)
	}
	still, stop := context.WithTimeout(context.WithoutCancel(ctx), farewell) // also of a run that was interrupted
	defer stop()
	if goOn := s.Exchange(still, "/continue_generation", map[string]any{}, nil); err == nil {
		err = goOn
	}
	return err
}

// drop has nothing to do: the weights were replaced.
func (sglangProtocol) drop(context.Context, *server, string) error { return nil }

func (sglangProtocol) holds() int { return 1 }

// complete makes a completion of a server's tokens by the rules of the local samplers.
func (f *Fleet) complete(r rollout.Request, tokens []int32, logps []float32) (rollout.Completion, error) {
	if len(tokens) != len(logps) {
		return rollout.Completion{}, fmt.Errorf("%d tokens with %d log-probs", len(tokens), len(logps))
	}
	s := rollout.NewStream(r, f.config, f.decoder)
	for i, token := range tokens {
		switch logp := float64(logps[i]); {
		case token < 0 || int(token) >= f.config.VocabSize:
			return rollout.Completion{}, fmt.Errorf("token id %d: the model has ids 0 to %d, so the server has "+
				"another model or tokenizer", token, f.config.VocabSize-1)
		case math.IsNaN(logp) || logp > 0 || s.IsComplete():
			return rollout.Completion{}, fmt.Errorf("token %d of %d has log-prob %v after the end %q: want tokens up "+
				"to the first that ends the answer, with log-probs of at most 0", i, len(tokens), logp, s.Reason)
		}
		s.Take(token, logps[i])
	}
	if !s.IsComplete() {
		return rollout.Completion{}, fmt.Errorf("the answer breaks off after %d tokens", len(tokens))
	}
	return s.Completion, nil
}
