package judge

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/posttrain/posttrain/rollout"
)

// Options say who judges, how hard it is asked and what that may cost.
type Options struct {
	BaseURL string // of an OpenAI-compatible server, such as https://api.openai.com/v1
	Model   string // as the server calls it
	KeyName string // the environment variable that holds the key; none is sent where it is empty or not set

	Temperature float64
	MaxTokens   int // of a reply; 0: 400

	Cache string // file that keeps the replies; empty: none are kept

	Parallel          int           // requests under way at a time; 0: 8. With twice as many askers none waits while replies go to the disk
	RequestsPerMinute int           // evenly spaced; 0: no limit
	TokensPerMinute   int           // of prompts and replies; 0: no limit
	Timeout           time.Duration // of one try; 0: 1 minute
	Retries           int           // tries after the first; 0: 8, negative: none
	Wait              time.Duration // before the second try, doubled for each further one; 0: 1 second
	Grace             time.Duration // how long Close waits for the requests under way; 0: 10 seconds, negative: not at all

	MaxRequests     int     // that this client may send, retries included; 0: no limit
	MaxCost         float64 // that this client may cause, in the currency of the prices; 0: no limit
	PromptPrice     float64 // of a million tokens of prompts
	CompletionPrice float64 // of a million tokens of replies
}

// The longest wait that doubling leads to.
const longestWait = time.Minute

func (o *Options) check() error {
	for _, n := range []struct {
		name  string
		value float64
	}{
		{"temperature", o.Temperature}, {"tokens of a reply", float64(o.MaxTokens)},
		{"requests a minute", float64(o.RequestsPerMinute)}, {"tokens a minute", float64(o.TokensPerMinute)},
		{"budget of requests", float64(o.MaxRequests)}, {"budget of cost", o.MaxCost},
		{"price of prompts", o.PromptPrice}, {"price of replies", o.CompletionPrice},
	} {
		if !(n.value >= 0) || math.IsInf(n.value, 1) {
			return fmt.Errorf("judge: %s %v: want 0 or more", n.name, n.value)
		}
	}
	switch {
	case o.Wait < 0:
		return fmt.Errorf("judge: wait of %v between tries: want 0 or more", o.Wait)
	case o.MaxCost > 0 && o.PromptPrice == 0 && o.CompletionPrice == 0:
		return errors.New("judge: a budget of cost needs the prices of a million tokens, of prompts and of replies")
	}
	return nil
}

func (o *Options) settle() {
	o.MaxTokens = either(o.MaxTokens, 400)
	o.Parallel = either(o.Parallel, 8)
	o.Timeout = either(o.Timeout, time.Minute)
	o.Retries = max(either(o.Retries, 8), 0)
	o.Wait = either(o.Wait, time.Second)
	o.Grace = max(either(o.Grace, 10*time.Second), 0)
}

func either[T comparable](value, otherwise T) T {
	if value == *new(T) {
		return otherwise
	}
	return value
}

// remote is the client of one try; the waits and the further tries are ours.
func (o *Options) remote() (*rollout.Remote, error) {
	r, err := rollout.NewRemote(rollout.RemoteOptions{BaseURL: o.BaseURL, Model: o.Model, Key: o.key(), KeyName: o.KeyName,
		Parallel: o.Parallel, Timeout: o.Timeout, Retries: -1})
	if err != nil {
		return nil, fmt.Errorf("judge: %w", err)
	}
	return r, nil
}

func (o *Options) key() string {
	if o.KeyName == "" {
		return ""
	}
	return os.Getenv(o.KeyName)
}

// cost of so many tokens.
func (o *Options) cost(prompt, completion int) float64 {
	return (float64(prompt)*o.PromptPrice + float64(completion)*o.CompletionPrice) / 1e6
}
