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

// guard turns away who must not be served: web pages of other sites, who does not have the token, and everybody while
// the server stops.
//
// A page can let a browser ask a server of this machine. Where it says whose page it is, that is compared with the
// server's own address; a page whose site's name leads to this machine all of a sudden is known by that name.
func (s *Server) guard(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.elsewhere.Check(r) != nil || s.options.Token == "" && foreign(r):
			other(http.StatusForbidden, invalidRequest, "cross_origin", "requests of web pages elsewhere are not served, nor are those under names that are not this machine's where no token is set").write(w)
		case !s.knows(r):
			w.Header().Set("WWW-Authenticate", "Bearer")
			other(http.StatusUnauthorized, invalidRequest, "invalid_api_key", "wrong or missing token: want the header Authorization: Bearer TOKEN").write(w)
		case s.stopping.Load():
			s.stopped().write(w)
		default:
			next(w, r)
		}
	})
}

// foreign tells whether a request reaches this machine from itself, but under a name that is not its own.
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

// knows compares tokens in a time that tells nothing of them.
func (s *Server) knows(r *http.Request) bool {
	if s.options.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(s.options.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

func (s *Server) stopped() *problem {
	p := other(http.StatusServiceUnavailable, serverError, "stopping", "the server is stopping")
	p.retry = 10 * time.Second
	return p
}

// body reads a request's body, up to the limit.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTimeout)) // where the connection has no deadlines, there is none to set
	defer control.SetReadDeadline(time.Time{})           // or the answer would have to be there by then
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.MaxRequest))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, other(http.StatusRequestEntityTooLarge, invalidRequest, "request_too_large", "the request has more than %d bytes", s.options.MaxRequest)
	case err != nil:
		return nil, refuse("", "the body cannot be read: %v", err)
	}
	return body, nil
}
