package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/launch"
	"github.com/posttrain/posttrain/internal/plain"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/endpoint"
)

func newServe(s streams) *cobra.Command {
	launcher := ""
	c := configured[endpoint.Options]{spec: endpoint.Spec, flags: serveFlags}
	c.run = func(ctx context.Context, o endpoint.Options, r run.Reporter) (string, error) {
		if launcher != "" {
			p, err := launch.Find(launcher, os.Getenv)
			if err == nil {
				o.Addr, err = addToPort(o.Addr, p.Local)
			}
			if err != nil {
				return "", usageError{err}
			}
		}
		o.Log = logTo(s)
		o.Ready = func(name, url string) { fmt.Fprintf(s.out, "serving %s on %s\n", name, url) }
		return "", endpoint.Run(ctx, o, r)
	}
	cmd := c.command(s, &cobra.Command{
		Use:   "serve",
		Short: "Put a model behind an OpenAI-compatible endpoint",
		Long: "Put a model behind an OpenAI-compatible endpoint: POST /v1/chat/completions (whole or streamed), GET\n" +
			"/v1/models, /healthz and, for Prometheus, /metrics. A request joins those under way at their next\n" +
			"token. Only this machine is served unless --addr says otherwise. Clients must send the token of the\n" +
			"environment variable POSTTRAIN_SERVE_TOKEN if it is set. After Ctrl-C or SIGTERM the server finishes\n" +
			"the requests that it has accepted, and exits with code 0.",
		Example: "  posttrain serve --model DIR\n" +
			"  posttrain serve --model DIR --name judge --addr 127.0.0.1:9000",
	})
	cmd.Flags().StringVar(&launcher, "launch", "", launchHelp+": its rank among the processes of\n"+
		"this machine is added to the port")
	return cmd
}

// addToPort moves an address of a fixed port.
func addToPort(addr string, by int) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "0" {
		return addr, err
	}
	n, err := strconv.Atoi(port)
	if err != nil || n+by > 65535 {
		return "", fmt.Errorf("addr %s: found local rank %d, want a port as a number that leaves room for it", addr, by)
	}
	return net.JoinHostPort(host, strconv.Itoa(n+by)), nil
}

var serveFlags = []config.Flag{
	{Name: "model", Key: "model", Help: modelHelp + " (default embedded)"},
	{Name: "adapter", Key: "adapter", Help: adapterHelp},
	{Name: "cache-gb", Key: "cache_gb", Help: cacheHelp},
	{Name: "backend", Key: "backend", Help: backendHelp + " (default auto)"},
	{Name: "chat-template", Key: "chat.template",
		Help: "file with a chat template in the place of the model's own"},
	{Name: "chat-variables", Key: "chat.variables", Exact: true,
		Help: "variable of the chat template, such as enable_thinking=false (may be repeated)"},
	{Name: "chat-date", Key: "chat.date",
		Help: "day that the chat template prints as today, such as 2026-01-31"},
	{Name: "addr", Key: "addr", Help: "address and port to serve on; port 0 takes a free one (default 127.0.0.1:8080)"},
	{Name: "name", Key: "name", Help: "the model's name to clients (default: the folder's)"},
	{Name: "token-env", Key: "token_env",
		Help: "environment variable with the token that clients must send, if it is set (default " +
			endpoint.DefaultTokenEnv + ")"},
	{Name: "max-new-tokens", Key: "max_new_tokens",
		Help: "most tokens of an answer if the request has no max_tokens (default 1024)"},
	{Name: "max-request-bytes", Key: "max_request_bytes",
		Help: "size of the largest request that is read (default 4194304)"},
	{Name: "max-request-tokens", Key: "max_request_tokens",
		Help: "most tokens that a request may ask for, n times max_tokens (default 131072)"},
	{Name: "max-queue", Key: "max_queue", Help: "requests that may wait; more get status 429 (default 64)"},
	{Name: "max-batch", Key: "max_batch", Help: "answers under way at once (default 128)"},
	{Name: "grace", Key: "grace", Help: "time to finish requests in after Ctrl-C (default 1m)"},
	{Name: "allowed-hosts", Key: "allowed_hosts",
		Help: "names of this server, separated by commas, that clients may use if there is no token, besides\n" +
			"localhost, addresses and this machine's name; *.example.org for all below it, * for any"},
	{Name: "weight-updates", Key: "weight_updates",
		Help: "let clients, such as a trainer, pause the server and replace its weights by those of a folder of\n" +
			"this machine"},
	{Name: "quiet", Key: "quiet", Help: "do not log requests"},
}

// logTo writes lines to standard error, each as a whole, even if several goroutines write.
func logTo(s streams) func(string) {
	var mu sync.Mutex
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(s.err, "%s %s\n", time.Now().Format(time.DateTime), plain.Escape(line))
	}
}
