package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/endpoint"
)

func newServe(s streams) *cobra.Command {
	c := configured[endpoint.Options]{spec: endpoint.Spec}
	c.run = func(ctx context.Context, o endpoint.Options, r run.Reporter) (string, error) {
		o.Log = logTo(s)
		o.Ready = func(name, url string) { fmt.Fprintf(s.out, "serving %s on %s\n", name, url) }
		return "", endpoint.Run(ctx, o, r)
	}
	return c.command(s, &cobra.Command{
		Use:   "serve",
		Short: "Put a model behind an OpenAI-compatible endpoint",
		Long: "Put a model behind an OpenAI-compatible endpoint: POST /v1/chat/completions (whole or streamed), GET\n" +
			"/v1/models and /healthz. A request joins those under way at their next token. Only this machine is served unless --addr says otherwise. Clients must send the token of the\n" +
			"environment variable POSTTRAIN_SERVE_TOKEN if it is set. After Ctrl-C or SIGTERM the server finishes\n" +
			"the requests that it has accepted, and exits with code 0.",
		Example: "  posttrain serve --model DIR\n" +
			"  posttrain serve --model DIR --name judge --addr 127.0.0.1:9000",
	})
}

// logTo writes lines to standard error, each as a whole, even if several goroutines write.
func logTo(s streams) func(string) {
	var mu sync.Mutex
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(s.err, "%s %s\n", time.Now().Format(time.DateTime), fault.Escape(line))
	}
}
