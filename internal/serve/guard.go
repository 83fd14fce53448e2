package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/config"
)

// connections gives every connection its limits and rejects requests to other host names.
//
// A body may never arrive. Until body has read the whole of it, the connection has a deadline, and closes after the
// reply: net/http would wait for the rest before it sends the reply, to use the connection again.
func (s *Server) connections(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			control.SetReadDeadline(time.Now().Add(s.options.Timeouts.Unread)) // fails harmlessly without a connection
		}
		w = &patient{w, control, s.options.Timeouts.Write}
		if s.options.Token == "" && !s.hosts.Own(r.Host) {
			newProblem(http.StatusForbidden, "cross_origin", "the host name %q is not this server's: want an address, "+
				"localhost or this machine's name, or a server with a token", short([]byte(config.HostOf(r.Host)))).write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// patient writes replies in pieces and gives the client some time to read each of them.
type patient struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// pieceBytes is the size of a piece.
const pieceBytes = 64 << 10

func (p *patient) Write(text []byte) (written int, err error) {
	for first := true; err == nil && (first || written < len(text)); first = false {
		var n int
		p.control.SetWriteDeadline(time.Now().Add(p.patience)) // fails harmlessly without a connection
		n, err = p.ResponseWriter.Write(text[written:min(written+pieceBytes, len(text))])
		written += n
	}
	return written, err
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// guard rejects requests from other sites' web pages, requests without the token, and all requests while the server
// stops. A web page can make a browser send requests to this machine; the browser names the page's origin.
func (s *Server) guard(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.origins.Check(r) != nil:
			newProblem(http.StatusForbidden, "cross_origin",
				"requests from other sites' web pages are refused").write(w)
		case !s.isAuthorized(r):
			w.Header().Set("WWW-Authenticate", "Bearer")
			newProblem(http.StatusUnauthorized, "invalid_api_key",
				"wrong or missing token: want the header Authorization: Bearer TOKEN").write(w)
		case s.stopping.Load():
			stopProblem().write(w)
		default:
			next(w, r)
		}
	})
}

// isAuthorized compares tokens in constant time.
func (s *Server) isAuthorized(r *http.Request) bool {
	if s.options.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(s.options.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

func stopProblem() *problem {
	p := newProblem(http.StatusServiceUnavailable, "stopping", "the server is stopping")
	p.retry = 10 * time.Second
	return p
}

// body reads a request's body up to the limits of size and time.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(s.options.Timeouts.Body)) // fails harmlessly without a connection
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.MaxRequest))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, newProblem(http.StatusRequestEntityTooLarge, "request_too_large",
			"the request has more than %d bytes", s.options.MaxRequest)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, newProblem(http.StatusRequestTimeout, "request_timeout",
			"the body did not arrive within %v", s.options.Timeouts.Body)
	case err != nil:
		return nil, refuse("", "the body cannot be read: %v", err)
	}
	w.Header().Del("Connection")
	control.SetReadDeadline(time.Time{}) // it must not end the answer
	return body, nil
}
