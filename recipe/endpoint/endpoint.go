// Package endpoint is the recipe of posttrain serve: a model behind an OpenAI-compatible endpoint.
package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
)

// Command is the command that runs this recipe.
const Command = "serve"

// TokenVariable is the environment variable with the token that clients must send, where it is set.
const TokenVariable = "POSTTRAIN_SERVE_TOKEN"

// Options say which model is served, where, and within which limits.
type Options struct {
	recipe.LocalModel `yaml:",inline"`

	Chat local.Chat `yaml:"chat"`

	Addr string `yaml:"addr" default:"127.0.0.1:8080" flag:"addr" help:"address and port to serve on; port 0 takes a free one"`
	Name string `yaml:"name,omitempty" flag:"name" help:"the model's name to clients (default: the folder's)"`

	MaxNew    int           `yaml:"max_new_tokens" want:">=1" default:"1024" flag:"max-new-tokens" help:"most tokens of an answer if the request has no max_tokens"`
	MaxTokens int           `yaml:"max_request_tokens" want:">=1" default:"131072" flag:"max-request-tokens" help:"most tokens that a request may ask for, n times max_tokens"`
	MaxQueue  int           `yaml:"max_queue" want:">=1" default:"64" flag:"max-queue" help:"requests that may wait; more get status 429"`
	MaxBatch  int           `yaml:"max_batch" want:">=1 <=128" default:"128" flag:"max-batch" help:"answers under way at once"`
	Grace     time.Duration `yaml:"grace" want:">0" default:"1m" flag:"grace" help:"time to finish requests in after Ctrl-C"`
	Quiet     bool          `yaml:"quiet" flag:"quiet" help:"do not log requests"`

	WeightUpdates bool `yaml:"weight_updates" flag:"weight-updates" help:"let clients, such as a trainer, pause the server and replace its weights by those of a folder of this machine"`

	Log   func(line string)      `yaml:"-"` // gets a line per request, without its text; may be nil
	Ready func(name, url string) `yaml:"-"` // is called when requests are accepted; may be nil
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{Command: Command})

// Check names the options that are out of range.
func (o Options) Check() []fault.Fault {
	faults := fault.Check(o)
	if _, _, err := net.SplitHostPort(o.Addr); err != nil {
		faults.Add("addr", o.Addr, "want HOST:PORT, such as 127.0.0.1:8080")
	}
	return faults
}

// Run loads the model and serves it until the context ends. A nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) error {
	if err := Spec.Verify(&o); err != nil {
		return err
	}
	if strings.ContainsFunc(os.Getenv(TokenVariable), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%s: the token in it has white space or other characters that no client can send: want one word",
			TokenVariable)
	}
	l, err := net.Listen("tcp", o.Addr)
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err // without the address again
	}
	if err != nil {
		return fmt.Errorf("addr %s: %w", o.Addr, err)
	}
	defer l.Close()
	m, err := open(o)
	if err != nil {
		return err
	}
	defer m.Close()
	recipe.ReportEngine(m.Engine, r)
	server := o.server(m)
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && server.Token == "" {
		const open = "addr %s: everyone who can reach this machine is served: set a token in %s"
		run.Listen(r).Warn(open, o.Addr, TokenVariable)
	}
	if !m.Tokenizer.HasTemplate() {
		run.Listen(r).Warn("%s has no chat template: chats are refused, and /v1/completions answers", o.Model)
	}
	if o.Ready != nil {
		o.Ready(server.Name, fmt.Sprintf("http://%s/v1", l.Addr()))
	}
	return serve.New(server).Run(ctx, l)
}

func open(o Options) (*local.Model, error) {
	m, err := local.OpenWith(local.Options{Backend: o.Backend, Model: o.Model, Adapter: o.Adapter, CacheGB: o.CacheGB,
		Chat: o.Chat})
	if err != nil {
		return nil, err
	}
	if err = recipe.CheckLength(o.MaxNew, serve.DefaultMaxNew, m.Model.Config.MaxPositions); err != nil {
		m.Close()
	}
	return m, err
}

func (o Options) server(m *local.Model) serve.Options {
	log := o.Log
	if o.Quiet {
		log = nil
	}
	so := serve.Options{
		Name: cmp.Or(o.Name, nameOf(o.Model)), Sampler: m.Sampler, Config: m.Model.Config,
		Encoder: &batch.Encoder{Tokenizer: m.Tokenizer}, Decoder: m.Tokenizer, Token: os.Getenv(TokenVariable),
		MaxNew: o.MaxNew, MaxTokens: o.MaxTokens, MaxQueue: o.MaxQueue, Rows: o.MaxBatch,
		Grace: o.Grace, Log: log,
	}
	if host, _, _ := net.SplitHostPort(o.Addr); host != "" { // checked
		so.Hosts = []string{host}
	}
	if o.WeightUpdates {
		so.Reload = m.Reload
		so.LoadAdapter = func(folder string) (*serve.Adapter, error) {
			a, err := m.Adapted(folder)
			if err != nil {
				return nil, err
			}
			return &serve.Adapter{Sampler: a.Sampler, Encoder: &batch.Encoder{Tokenizer: a.Tokenizer}, Close: a.Close}, nil
		}
	}
	return so
}

// nameOf names a model by its folder.
func nameOf(model string) string {
	if model == embedded.Name {
		return model
	}
	return hub.Short(model)
}
