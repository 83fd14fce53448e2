package serve

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Time-outs of connections; bodies (guard.go) and streams (stream.go) set them for themselves.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Minute
	idleTimeout   = 2 * time.Minute
)

// Run serves on a listener until the context ends. Then it stops: it takes no new requests, answers those that it has
// taken, and breaks off what is not done after the time of grace, which is no error.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	inner, breakOff := context.WithCancelCause(context.Background())
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		s.work(inner)
	}()
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		s.stop(server, breakOff)
	}
	breakOff(errStopped)
	<-worked
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// farewell is how long replies to requests that are broken off may take.
const farewell = 2 * time.Second

// stop lets the requests that were taken come to their ends.
func (s *Server) stop(server *http.Server, breakOff context.CancelCauseFunc) {
	s.stopping.Store(true)
	grace, cancel := context.WithTimeout(context.Background(), s.options.Grace)
	defer cancel()
	if server.Shutdown(grace) == nil {
		return
	}
	breakOff(errStopped)
	rest, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if server.Shutdown(rest) != nil {
		server.Close()
	}
}
