package main

import (
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/rollout/local"

	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/serve"
)

// serveFlags choose a model and how it is served.
type serveFlags struct {
	samplingFlags
	addr, name, tokenEnv string
	maxRequest           int64
	maxQueue, rows       int
	grace                time.Duration
	quiet                bool
}

func newServe(s streams) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Put a model behind an OpenAI-compatible endpoint",
		Long: "Put a model behind an OpenAI-compatible endpoint: POST /v1/chat/completions (whole or streamed), GET /v1/models, GET /healthz.\n" +
			"Requests that wait are answered together. Only this machine is served unless --addr says otherwise; clients must send the\n" +
			"token of the environment variable POSTTRAIN_SERVE_TOKEN where it is set. Ctrl-C, or SIGTERM, lets it finish what it has taken;\n" +
			"the exit code is 0 then.",
		Example: "  posttrain serve --model DIR\n  posttrain serve --model DIR --name judge --addr 127.0.0.1:9000",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return usageError{err}
			}
			return serveModel(cmd.Context(), s, f)
		},
	}
	f.register(cmd)
	return cmd
}

func (f *serveFlags) register(cmd *cobra.Command) {
	f.answers = 1
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", embedded.Name, "model folder in Hugging Face layout, or embedded")
	flags.StringVar(&f.backend, "backend", "auto", "auto, go, onnx[:LIB] or xla[:cpu|:cuda|:PLUGIN]")
	flags.StringVar(&f.addr, "addr", "127.0.0.1:8080", "address and port to serve on; port 0: a free one")
	flags.StringVar(&f.name, "name", "", "the model's name to clients (default: the folder's)")
	flags.StringVar(&f.tokenEnv, "token-env", "POSTTRAIN_SERVE_TOKEN", "environment variable that holds the token which clients must send; none where it is not set")
	flags.IntVar(&f.MaxNew, "max-new-tokens", serve.DefaultMaxNew, "most tokens of an answer to a request that does not say max_tokens")
	flags.Int64Var(&f.maxRequest, "max-request-bytes", serve.DefaultMaxRequest, "largest request that is read")
	flags.IntVar(&f.maxQueue, "max-queue", serve.DefaultMaxQueue, "requests that may wait; more are told to come again (429)")
	flags.IntVar(&f.rows, "max-batch", serve.DefaultRows, "answers that are sampled together")
	flags.DurationVar(&f.grace, "grace", serve.DefaultGrace, "time to finish in after Ctrl-C")
	flags.BoolVar(&f.quiet, "quiet", false, "log no requests")
	f.length = flags.Lookup("max-new-tokens")
}

// check refuses what cannot be served.
func (f *serveFlags) check(given func(string) bool) error {
	_, _, err := net.SplitHostPort(f.addr)
	switch {
	case err != nil:
		return fmt.Errorf("--addr %q: want HOST:PORT, such as 127.0.0.1:8080", f.addr)
	case given("name") && f.name == "":
		return errors.New("--name is empty: want a name")
	case !fault.IsVariable(f.tokenEnv): // it may be the token itself
		return errors.New("--token-env: want the name of an environment variable, such as POSTTRAIN_SERVE_TOKEN, not the token itself")
	case given("token-env") && os.Getenv(f.tokenEnv) == "":
		return fmt.Errorf("--token-env %s: this environment variable is not set", f.tokenEnv)
	case strings.ContainsFunc(os.Getenv(f.tokenEnv), func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%s: the token has white space or other characters in it that no client can send: want one word", f.tokenEnv)
	case f.maxRequest < 1:
		return fmt.Errorf("--max-request-bytes %d: want 1 or more", f.maxRequest)
	case f.maxQueue < 1:
		return fmt.Errorf("--max-queue %d: want 1 or more", f.maxQueue)
	case f.rows < 1 || f.rows > serve.DefaultRows:
		return fmt.Errorf("--max-batch %d: want 1 to %d", f.rows, serve.DefaultRows)
	case f.grace <= 0:
		return fmt.Errorf("--grace %v: want more than 0, such as 1m", f.grace)
	}
	return f.samplingFlags.check()
}

// serveModel loads the model, and serves it until the context ends.
func serveModel(ctx context.Context, s streams, f serveFlags) error {
	l, err := net.Listen("tcp", f.addr)
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err // without the address again
	}
	if err != nil {
		return fmt.Errorf("--addr %s: %w", f.addr, err)
	}
	defer l.Close()
	m, err := openSampler(f.samplingFlags)
	if err != nil {
		return err
	}
	defer m.Close()
	if !m.Tokenizer.HasTemplate() {
		return fmt.Errorf("%s has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): there is no way to make prompts of messages", f.model)
	}
	o := f.options(m)
	if !f.quiet {
		o.Log = logTo(s)
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && o.Token == "" {
		fmt.Fprintf(s.err, "warning: --addr %s: everybody who reaches this machine is served: set a token in %s\n", f.addr, f.tokenEnv)
	}
	fmt.Fprintf(s.out, "serving %s on http://%s/v1\n", o.Name, l.Addr())
	return serve.New(o).Run(ctx, l)
}

func (f *serveFlags) options(m *local.Model) serve.Options {
	name := f.name
	if name == "" {
		name = f.model
		if path, err := filepath.Abs(f.model); err == nil && f.model != embedded.Name {
			name = filepath.Base(path)
		}
	}
	return serve.Options{
		Name: name, Sampler: m.Sampler, Config: m.Model.Config, Encoder: &batch.Encoder{Tokenizer: m.Tokenizer}, Decoder: m.Tokenizer,
		Token: os.Getenv(f.tokenEnv), MaxNew: f.MaxNew, MaxRequest: f.maxRequest, MaxQueue: f.maxQueue, Rows: f.rows, Grace: f.grace,
	}
}

// logTo writes lines to standard error, whole ones whoever writes at the same time.
func logTo(s streams) func(string) {
	var mu sync.Mutex
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(s.err, "%s %s\n", time.Now().Format(time.DateTime), line)
	}
}
