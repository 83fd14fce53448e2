// Package web makes the HTTP clients of this program. Requests have keys: a client takes them to no other address, and
// what a server repeats of them is in no header and no error.
package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/posttrain/posttrain/internal/secret"
)

// Options say what differs between clients.
type Options struct {
	Timeout time.Duration         // of a request with its reply; 0: none
	Tune    func(*http.Transport) // changes the transport; may be nil
	// Follow follows redirects, without the key to another host, port or scheme. Else a redirect is the reply.
	Follow bool
}

// New makes a client.
func New(o Options) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if o.Tune != nil {
		o.Tune(transport)
	}
	c := &http.Client{Timeout: o.Timeout, Transport: discreet{transport}, CheckRedirect: stay}
	if o.Follow {
		c.CheckRedirect = follow
	}
	return c
}

// Retrying makes a client that sends a request again where check says so, at most that many times. It gives the last
// reply, whatever its status.
func Retrying(o Options, most int, check retryablehttp.CheckRetry) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient, c.Logger, c.RetryMax, c.CheckRetry = New(o), nil, most, check
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c
}

func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// follow goes to another host without the key. Of the head of a file the first host has all: it is not followed to a
// store of files.
func follow(req *http.Request, via []*http.Request) error {
	elsewhere := req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme
	switch {
	case len(via) >= 10:
		return fmt.Errorf("%d redirections", len(via))
	case elsewhere && req.Method == http.MethodHead:
		return http.ErrUseLastResponse
	case elsewhere:
		for _, name := range keyHeaders {
			req.Header.Del(name)
		}
	}
	return nil
}

// keyHeaders are the headers that have keys.
var keyHeaders = []string{"Authorization", "Api-Key"}

// keysOf are the keys of a request, in each form in which a server may repeat them.
func keysOf(req *http.Request) (keys []secret.Key) {
	add := func(key string) {
		if len(key) >= shortest {
			keys = append(keys, secret.New(key))
		}
	}
	for _, name := range keyHeaders {
		value := req.Header.Get(name)
		add(value[strings.LastIndexByte(value, ' ')+1:])
	}
	if _, password, is := req.BasicAuth(); is {
		add(password)
	}
	return keys
}

// shortest is the least length of a key that is hidden: a shorter one is in many words.
const shortest = 4

// discreet hides the keys of requests in what is printed of replies: in status, headers and errors.
type discreet struct{ http.RoundTripper }

func (d discreet) RoundTrip(req *http.Request) (*http.Response, error) {
	keys := keysOf(req)
	hide := func(text string) string {
		for _, key := range keys {
			text = key.Hide(text)
		}
		return text
	}
	resp, err := d.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, hideIn(err, hide)
	}
	resp.Status = hide(resp.Status)
	for _, values := range resp.Header {
		for i := range values {
			values[i] = hide(values[i])
		}
	}
	resp.Body = body{resp.Body, hide}
	return resp, nil
}

// body hides keys in the errors of reading.
type body struct {
	io.ReadCloser
	hide func(string) string
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, hideIn(err, b.hide)
}

// hideIn gives an error without keys. One that has none stays, with its type.
func hideIn(err error, hide func(string) string) error {
	if err == nil || hide(err.Error()) == err.Error() {
		return err
	}
	return errors.New(hide(err.Error()))
}
