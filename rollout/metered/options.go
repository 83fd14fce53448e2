package metered

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/rollout/remote"
)

// Options say which model is asked, how fast and at what cost: the section of a judge.
type Options struct {
	remote.Server     `yaml:",inline" defaults:"base_url=https://api.openai.com/v1 timeout=1m"`
	Model             string `yaml:"model" words:"a model's name on the server" flag:"model" help:"the judge's name on the server"`
	RequestsPerMinute int    `yaml:"requests_per_minute" want:">=0" zero:"no limit" flag:"requests-per-minute" help:"most requests in a minute (0 = no limit)"` // evenly spaced
	Retries           int    `yaml:"retries" want:">=0" default:"8" help:"tries after the first"`
	MaxNew            int    `yaml:"max_new_tokens" want:">=1" default:"400" help:"most tokens of a reply"`
	// the budget: requests of this client, retries included, and cost in the prices' currency
	MaxRequests     int     `yaml:"max_requests" want:">=0" zero:"no limit" flag:"max-requests" help:"budget: requests of this call (0 = no limit)"`
	MaxCost         float64 `yaml:"max_cost" want:">=0" zero:"no limit" flag:"max-cost" help:"budget: what this call's requests may cost (0 = no limit)"`
	PromptPrice     float64 `yaml:"prompt_price" want:">=0" flag:"prompt-price" help:"price of a million tokens of prompts"`
	CompletionPrice float64 `yaml:"completion_price" want:">=0" flag:"completion-price" help:"price of a million tokens of replies"`
	Cache           string  `yaml:"cache" path:"" words:"a file, or nothing: one in the run folder" flag:"cache" help:"file that keeps the replies (default: in the run folder)"`

	Name        string        `yaml:"-"` // what errors call the server, such as "judge"; may be empty
	Temperature float64       `yaml:"-"`
	TopLogprobs int           `yaml:"-"` // likeliest first tokens of a reply to report (Reply.Top), where the server can; 0: none
	OfServer    bool          `yaml:"-"` // of the replies in the cache only this base URL's are used
	Wait        time.Duration `yaml:"-"` // before the second try, doubled each time; 0: a second
	Grace       time.Duration `yaml:"-"` // how long Close waits for requests under way; 0: 10 seconds, negative: not at all

	// Warn hears that a request failed and is sent again, at most once in a minute; may be nil.
	Warn func(format string, args ...any) `yaml:"-"`
}

// longestWait limits the doubling of Wait.
const longestWait = time.Minute

// HasPrice says that requests cost something.
func (o Options) HasPrice() bool { return o.PromptPrice > 0 || o.CompletionPrice > 0 }

// CheckCost wants prices where the cost of the section is bounded.
func (o Options) CheckCost(g *config.Given) {
	if o.MaxCost > 0 && !o.HasPrice() {
		g.Refuse("max_cost", o.MaxCost, "without prices nothing costs anything; give %s and %s, each of a million tokens",
			g.Key("prompt_price"), g.Key("completion_price"))
	}
}

// faults are values out of range, and a budget of cost without prices.
func (o Options) faults() []fault.Fault {
	o.KeyEnv = cmp.Or(o.KeyEnv, remote.DefaultKeyEnv) // a program may name none
	faults := fault.Check(o)
	if o.Wait < 0 {
		faults.Add("wait", o.Wait, "want a time, 0 (1s) or more")
	}
	if o.MaxCost > 0 && !o.HasPrice() {
		faults.Add("max_cost", o.MaxCost, "want the prices of a million tokens, of prompts and of replies, as well")
	}
	return faults
}

func (o *Options) setDefaults() {
	o.MaxNew = cmp.Or(o.MaxNew, 400)
	o.Parallel = cmp.Or(o.Parallel, 8)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
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
	return remote.New(remote.Options{Server: o.Server, Model: o.Model, Retries: -1})
}

// server names the server in a cache.
func (o *Options) server() string { return strings.TrimRight(o.BaseURL, "/") }

// cost is the price of a request's tokens.
func (o *Options) cost(t tokens) float64 {
	return (float64(t.prompt)*o.PromptPrice + float64(t.completion)*o.CompletionPrice) / 1e6
}
