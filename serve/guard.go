package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// guard rejects requests from other sites' web pages, requests without the token, and all requests while the server
// stops.
//
// A web page can make a browser send requests to this machine. If the browser names the page's origin, it must be the
// server's address; a site whose own name was pointed at this machine (DNS rebinding) is recognised by the Host header.
func (s *Server) guard(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.origins.Check(r) != nil || s.options.Token == "" && foreign(r):
			newProblem(http.StatusForbidden, "cross_origin", "requests from other sites' web pages are refused, "+
				"and, without a token, requests to a host name other than this machine's").write(w)
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

// foreign says whether a request reaches this machine locally but under another host name.
func foreign(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() {
		return false
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	ip := net.ParseIP(host)
	return host != "localhost" && !(ip != nil && ip.IsLoopback())
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

// body reads a request's body up to the limit.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTimeout)) // fails harmlessly if the connection has no deadlines
	defer control.SetReadDeadline(time.Time{})           // it must not end the answer
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.MaxRequest))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, newProblem(http.StatusRequestEntityTooLarge, "request_too_large",
			"the request has more than %d bytes", s.options.MaxRequest)
	case err != nil:
		return nil, refuse("", "the body cannot be read: %v", err)
	}
	return body, nil
}
