package metered

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/posttrain/posttrain/rollout"
)

// Options say which model is asked, how fast and at what cost.
type Options struct {
	Name    string // what errors call the server, such as "judge"; may be empty
	BaseURL string // of an OpenAI-compatible server, such as https://api.openai.com/v1
	Model   string // as the server calls it
	KeyName string // environment variable with the key; no key is sent if it is empty or not set

	Temperature float64
	MaxTokens   int // of a reply; 0: 400

	Cache string // file that keeps the replies; "": they are not kept

	// Requests under way at a time; 0: 8. Twice as many callers keep the server busy while replies go to disk.
	Parallel          int
	RequestsPerMinute int           // evenly spaced; 0: no limit
	TokensPerMinute   int           // of prompts and replies; 0: no limit
	Timeout           time.Duration // of one try; 0: 1 minute
	Retries           int           // tries after the first; 0: 8, negative: none
	Wait              time.Duration // before the second try, doubled before each later one; 0: 1 second
	Grace             time.Duration // how long Close waits for requests under way; 0: 10 seconds, negative: not at all

	MaxRequests     int     // sent by this client, retries included; 0: no limit
	MaxCost         float64 // of this client, in the currency of the prices; 0: no limit
	PromptPrice     float64 // per million prompt tokens
	CompletionPrice float64 // per million reply tokens
}

// longestWait limits the doubling of Wait.
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
			return fmt.Errorf("%s %v: want 0 or more", n.name, n.value)
		}
	}
	switch {
	case o.Wait < 0:
		return fmt.Errorf("wait of %v between tries: want 0 or more", o.Wait)
	case o.MaxCost > 0 && o.PromptPrice == 0 && o.CompletionPrice == 0:
		return errors.New("a budget of cost needs the prices of a million tokens, of prompts and of replies")
	}
	return nil
}

func (o *Options) setDefaults() {
	o.MaxTokens = cmp.Or(o.MaxTokens, 400)
	o.Parallel = cmp.Or(o.Parallel, 8)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.Retries = max(cmp.Or(o.Retries, 8), 0)
	o.Wait = cmp.Or(o.Wait, time.Second)
	o.Grace = max(cmp.Or(o.Grace, 10*time.Second), 0)
}

// blame puts the server's name before an error.
func (o *Options) blame(err error) error {
	if o.Name == "" || err == nil {
		return err
	}
	return fmt.Errorf("%s: %w", o.Name, err)
}

// remote makes a client that sends each request once; waits and retries are ours.
func (o *Options) remote() (*rollout.Remote, error) {
	key := ""
	if o.KeyName != "" {
		key = os.Getenv(o.KeyName)
	}
	return rollout.NewRemote(rollout.RemoteOptions{BaseURL: o.BaseURL, Model: o.Model, Key: key, KeyName: o.KeyName,
		Parallel: o.Parallel, Timeout: o.Timeout, Retries: -1})
}

// cost is the price of a request's tokens.
func (o *Options) cost(t tokens) float64 {
	return (float64(t.prompt)*o.PromptPrice + float64(t.completion)*o.CompletionPrice) / 1e6
}
