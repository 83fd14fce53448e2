package metered

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/rollout/remote"
)

// Options say which model is asked, how fast and at what cost.
type Options struct {
	Name    string // what errors call the server, such as "judge"; may be empty
	BaseURL string // of an OpenAI-compatible server, such as https://api.openai.com/v1
	Model   string // as the server calls it
	KeyName string // environment variable with the key; no key is sent if it is empty or not set

	APIVersion string // of Azure OpenAI, see [remote.Dialect]; "": another server

	ThinkOpened bool // the chat template opens the think block: see [remote.Client.Ask]

	Temperature float64 `yaml:"temperature" want:">=0"`
	MaxTokens   int     `yaml:"max_tokens" want:">=0" zero:"400"` // of a reply

	TopLogprobs int // likeliest first tokens of a reply to report (Reply.Top), where the server can; 0: none

	Cache    string // file that keeps the replies; "": they are not kept
	OfServer bool   // of the replies in the cache only this base URL's are used

	// Requests under way at a time. Twice as many callers keep the server busy while replies go to disk.
	Parallel          int           `yaml:"parallel" want:">=0" zero:"8"`
	RequestsPerMinute int           `yaml:"requests_per_minute" want:">=0" zero:"no limit"` // evenly spaced
	Timeout           time.Duration `yaml:"timeout" want:">=0" zero:"1m"`                   // of one try
	Retries           int           // tries after the first; 0: 8, negative: none
	Wait              time.Duration `yaml:"wait" want:">=0" zero:"1s"` // before the second try, doubled each time
	Grace             time.Duration // how long Close waits for requests under way; 0: 10 seconds, negative: not at all

	// Warn hears that a request failed and is sent again, at most once in a minute; may be nil.
	Warn func(format string, args ...any)

	MaxRequests     int     `yaml:"max_requests" want:">=0" zero:"no limit"` // of this client, retries included
	MaxCost         float64 `yaml:"max_cost" want:">=0" zero:"no limit"`     // of this client, in the prices' currency
	PromptPrice     float64 `yaml:"prompt_price" want:">=0"`                 // per million prompt tokens
	CompletionPrice float64 `yaml:"completion_price" want:">=0"`             // per million reply tokens
}

// longestWait limits the doubling of Wait.
const longestWait = time.Minute

// Check names values out of range, and a budget of cost without prices.
func (o Options) Check() []fault.Fault {
	faults := fault.Check(o)
	if o.MaxCost > 0 && o.PromptPrice == 0 && o.CompletionPrice == 0 {
		faults.Add("max_cost", o.MaxCost, "want the prices of a million tokens, of prompts and of replies, as well")
	}
	return faults
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

// warn puts the server's name before a warning.
func (o *Options) warn(format string, args ...any) {
	if o.Warn != nil {
		o.Warn("%v", o.blame(fmt.Errorf(format, args...)))
	}
}

// remote makes a client that sends each request once; waits and retries are ours.
func (o *Options) remote() (*remote.Client, error) {
	return remote.New(remote.Options{BaseURL: o.BaseURL, Model: o.Model, Key: os.Getenv(o.KeyName),
		KeyName: o.KeyName, Dialect: remote.Dialect{APIVersion: o.APIVersion}, ThinkOpened: o.ThinkOpened,
		Parallel: o.Parallel, Timeout: o.Timeout, Retries: -1})
}

// server names the server in a cache.
func (o *Options) server() string { return strings.TrimRight(o.BaseURL, "/") }

// cost is the price of a request's tokens.
func (o *Options) cost(t tokens) float64 {
	return (float64(t.prompt)*o.PromptPrice + float64(t.completion)*o.CompletionPrice) / 1e6
}
