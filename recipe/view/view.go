// Package view is the recipe of posttrain view: runs beside one another on a web page of this machine.
//
// Glossary:
//   - run: a run folder of ours, or a log of TRL or verl that package doctor reads ([openSource]);
//   - curve: a metric of a run over its steps, thinned to what a page can draw ([curve]);
//   - set: the samples of a run that belong together, those of a step or of a test;
//   - answer: what the page asks for by its address, a JSON object. A page in a file has all answers with it
//     ([View.Write]).
//
// The files of a run are read again when they change, and of those that grow the new lines alone.
package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/serve"
)

// Command is the command that runs this recipe.
const Command = "view"

// Options say what is shown, and where.
type Options struct {
	Runs   []string // folders or logs
	Listen string   // HOST:PORT; port 0: a free one
	Out    string   // a file to write the page into instead; "": serve it

	Ready func(url string) // is called when requests are accepted; may be nil
}

// Run serves the page until the context ends, or writes it.
func Run(ctx context.Context, o Options, r run.Reporter) error {
	v, err := Open(o.Runs)
	if err != nil {
		return err
	}
	if o.Out != "" {
		return v.Write(o.Out)
	}
	l, err := listen(o.Listen)
	if err != nil {
		return err
	}
	defer l.Close()
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		run.Listen(r).Warn("--listen %s: everyone who can reach this machine can read the runs", o.Listen)
	}
	if o.Ready != nil {
		o.Ready(fmt.Sprintf("http://%s/", l.Addr()))
	}
	host, _, _ := net.SplitHostPort(o.Listen) // listened on
	return v.serve(ctx, l, serve.OwnHosts([]string{host}))
}

func listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err // without the address again
	}
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w: want HOST:PORT, such as 127.0.0.1:0 for a free port", addr, err)
	}
	return l, nil
}

// View are the runs of a page. It is safe for concurrent use.
type View struct {
	mu   sync.Mutex
	runs []*source
}

// Open reads the runs. What is no run, or named twice, is an error.
func Open(paths []string) (*View, error) {
	v, seen := &View{}, map[string]string{}
	for _, path := range paths {
		whole, err := filepath.Abs(path)
		if err == nil {
			whole, err = filepath.EvalSymlinks(whole)
		}
		if err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", path, run.Cause(err))
		}
		if seen[whole] != "" {
			return nil, fmt.Errorf("%s: this run is named twice: want each once", path)
		}
		seen[whole] = path
		s, err := openSource(path, whole)
		if err != nil {
			return nil, err
		}
		v.runs = append(v.runs, s)
	}
	v.name()
	return v, nil
}

// name names the runs after their folders, or after their paths where two folders have one name.
func (v *View) name() {
	count := map[string]int{}
	for _, s := range v.runs {
		count[filepath.Base(s.whole)]++
	}
	for _, s := range v.runs {
		if s.name = filepath.Base(s.whole); count[s.name] > 1 {
			s.name = filepath.ToSlash(filepath.Clean(s.path))
		}
	}
}

// serve answers requests until the context ends.
func (v *View) serve(ctx context.Context, l net.Listener, hosts serve.Hosts) error {
	server := &http.Server{Handler: v.Handler(hosts), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0)}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(end) != nil {
		server.Close()
	}
	return nil
}
