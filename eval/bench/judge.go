package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
)

// UsageName is the file that says what all calls of the command have asked the judge for, by the judge's name.
const UsageName = "usage.json"

// Judge is a server's model that judges, with how fast and at what cost it is asked.
type Judge struct {
	Server            `yaml:",inline"`
	Model             string  `yaml:"model" words:"a model's name on the server" flag:"model" help:"the judge's name on the server"`
	RequestsPerMinute int     `yaml:"requests_per_minute" want:">=0" flag:"requests-per-minute" help:"most requests in a minute (0 = no limit)"`
	TokensPerMinute   int     `yaml:"tokens_per_minute" want:">=0" flag:"tokens-per-minute" help:"most tokens of prompts and replies in a minute (0 = no limit)"`
	Retries           int     `yaml:"retries" want:">=0"` // tries after the first
	MaxNew            int     `yaml:"max_new_tokens" want:">=1"`
	MaxRequests       int     `yaml:"max_requests" want:">=0" flag:"max-requests" help:"budget: requests of this call (0 = no limit)"`
	MaxCost           float64 `yaml:"max_cost" want:">=0" zero:"no limit" flag:"max-cost" help:"budget: what this call's requests may cost (0 = no limit)"`
	PromptPrice       float64 `yaml:"prompt_price" want:">=0" flag:"prompt-price" help:"price of a million tokens of prompts"`
	CompletionPrice   float64 `yaml:"completion_price" want:">=0" flag:"completion-price" help:"price of a million tokens of replies"`
	Cache             string  `yaml:"cache" path:"" words:"a file, or nothing: one in the run folder" flag:"cache" help:"file that keeps the replies (default: in the run folder)"`
}

// DefaultJudge has no model yet.
func DefaultJudge(maxNew int) Judge {
	return Judge{Server: Server{BaseURL: DefaultBaseURL, KeyEnv: DefaultKeyEnv, Parallel: 8, Timeout: time.Minute},
		Retries: 8, MaxNew: maxNew}
}

// CheckKey wants the key without which the server of a section of the options refuses.
func (s Server) CheckKey(section string) error {
	return checkKey(section, s.KeyEnv, s.BaseURL, s.APIVersion)
}

// HasPrice says that requests cost something.
func (j Judge) HasPrice() bool { return j.PromptPrice > 0 || j.CompletionPrice > 0 }

// Identify notes which judge it is.
func (j Judge) Identify() map[string]string {
	all := map[string]string{"model": j.Model, "base_url": strings.TrimRight(j.BaseURL, "/"),
		"max_new_tokens": fmt.Sprint(j.MaxNew)}
	if j.ThinkOpened {
		all["think_opened"] = "true"
	}
	return all
}

// Open opens the judge's client, with its cache in the run folder unless the options name another. The run's own has
// the replies of this server alone: the server may change as long as there is no verdict. topLogprobs is the number of
// likeliest first tokens that replies should have; 0: none.
func (j Judge) Open(s *Store, topLogprobs int, warn func(format string, args ...any)) (*metered.Client, error) {
	o := j.Metered()
	o.Name, o.TopLogprobs, o.Warn = "judge", topLogprobs, warn
	o.Cache, o.OfServer = cmp.Or(j.Cache, s.Path("judge-cache.jsonl")), j.Cache == ""
	return metered.Open(o)
}

// Metered are the options of a client of the server, without a name.
func (j Judge) Metered() metered.Options {
	return metered.Options{
		BaseURL: j.BaseURL, Model: j.Model, KeyName: j.KeyEnv, APIVersion: j.APIVersion, MaxTokens: j.MaxNew,
		ThinkOpened: j.ThinkOpened, Cache: j.Cache,
		Parallel: j.Parallel, RequestsPerMinute: j.RequestsPerMinute, TokensPerMinute: j.TokensPerMinute,
		Timeout: j.Timeout, Retries: cmp.Or(j.Retries, -1), // -1: no retries
		MaxRequests: j.MaxRequests,
		MaxCost:     j.MaxCost, PromptPrice: j.PromptPrice, CompletionPrice: j.CompletionPrice,
	}
}

// Values are what the progress bar shows of the judge: its requests and, if prices are set, the cost.
func (j Judge) Values(c *metered.Client, p Progress) map[string]float64 {
	values := map[string]float64{}
	if p.Unparsed > 0 {
		values["unparsed"] = float64(p.Unparsed)
	}
	if c != nil {
		t := c.Stats()
		values["requests"] = float64(t.Requests)
		if j.HasPrice() {
			values["cost"] = t.Cost
		}
	}
	return values
}

// CloseNamed waits for the requests under way, adds the usage of this call to that of earlier ones in usage.json, and
// reports both under the name of what was asked.
func (j Judge) CloseNamed(name string, c *metered.Client, s *Store, r run.Reporter) error {
	err := c.Close()
	t := c.Stats()
	if t.Replies+t.Requests == 0 {
		return err
	}
	return errors.Join(err, j.noteUsage(name, t, s.Path(UsageName), r))
}

func (j Judge) noteUsage(name string, t metered.Stats, path string, r run.Reporter) error {
	var all map[string]metered.Stats
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Warn("%s cannot be read: a new one is begun", path)
	}
	if err != nil || all == nil {
		all = map[string]metered.Stats{}
	}
	before := all[j.Model]
	all[j.Model] = before.Plus(t)
	r.Say("%s: %s", name, j.describe(t))
	if before.Requests > 0 {
		r.Say("%s, with earlier calls: %s", name, j.describe(all[j.Model]))
	}
	return data.WriteJSON(path, all)
}

func (j Judge) describe(t metered.Stats) string {
	cost := ""
	if j.HasPrice() {
		cost = fmt.Sprintf(", cost %.4g", t.Cost)
	}
	return fmt.Sprintf("%d replies, %d of them from the cache; %d requests, %d of them further tries; "+
		"%d tokens of prompts, %d of replies%s",
		t.Replies, t.Cached, t.Requests, t.Retried, t.PromptTokens, t.CompletionTokens, cost)
}

// Patience is the number of replies without a single verdict that stops a judge's stage.
const Patience = 10

// Replies counts a judge's replies, those of earlier calls too.
type Replies struct {
	Form string // such as "Answer: Yes", for the error

	all, unparsed int
	strange       string // the last reply without a verdict
}

// Count takes note of a reply.
func (r *Replies) Count(reply string, parsed bool) {
	r.all++
	if !parsed {
		r.unparsed++
		r.strange = reply
	}
}

// Check returns an error if there are enough replies, and none of them has a verdict.
func (r *Replies) Check(enough int) error {
	if r.all < enough || r.unparsed < r.all {
		return nil
	}
	return fmt.Errorf("the judge gives no verdicts: none of %d replies has a line such as %q (the last one: %.80q): "+
		"want another judge or other prompts", r.all, r.Form, strings.Join(strings.Fields(r.strange), " "))
}
