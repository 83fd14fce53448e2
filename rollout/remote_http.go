package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/posttrain/posttrain/data"
)

// Failure is a kind of server error, by what may help.
type Failure int

// Kinds of failure.
const (
	Refused     Failure = iota // the server refuses the request or the key: another try does not help
	Busy                       // the server cannot answer now: 408, 429, 5xx
	Unreachable                // no connection
	Lost                       // a timeout or broken connection: the server may have answered, and charged for it
	Foreign                    // not a chat completion: another kind of server, or a garbled reply
)

// RemoteError is a server's error in one line, without the key.
type RemoteError struct {
	Kind Failure
	Wait time.Duration // requested by the server before the next try; 0: not requested
	text string
}

func (e *RemoteError) Error() string { return e.text }

// Patience says when a failed request is sent again.
type Patience struct {
	Retries  int           // tries after the first
	Wait     time.Duration // before the second try, doubled before each later one
	Longest  time.Duration // limits the doubling
	answered atomic.Bool   // there is such a server
}

// triesOfStranger limits the tries of a server that has never answered and is unreachable or speaks another protocol:
// its address is probably wrong.
const triesOfStranger = 3

// NoteAnswer notes that the address is right.
func (p *Patience) NoteAnswer() { p.answered.Store(true) }

// Again says whether another try may help after the failed one and those before it, and how long to wait first: as long
// as the server asks for, and a wait that doubles with each try. That is shortened at random by up to a half, so that
// requests that failed together do not return together.
func (p *Patience) Again(failed *RemoteError, before int) (wait time.Duration, again bool) {
	most := p.Retries
	if (failed.Kind == Unreachable || failed.Kind == Foreign) && !p.answered.Load() {
		most = min(most, triesOfStranger-1)
	}
	wait = p.Wait
	for range before {
		wait = min(2*wait, max(p.Longest, wait))
	}
	return failed.Wait + wait - rand.N(wait/2+1), failed.Kind != Refused && before < most
}

// Pause waits. If the context ends first, it returns the cause.
func Pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try sends one request of a client; number counts from 1. Do returns a whole reply that is no error, or a
// [*RemoteError].
type try struct {
	*Remote
	number int
}

// Do sends a request whose body is a JSON object. A request under way continues for the grace period after its context
// is cancelled, but not beyond its deadline.
func (t try) Do(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	body, err := io.ReadAll(req.Body)
	if err == nil {
		body, err = t.withTemperature(body)
	}
	if err != nil {
		return nil, err
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
	req.ContentLength = int64(len(body))
	later, done := graceContext(ctx, t.options.Grace)
	defer done()
	resp, err := t.http.Do(req.WithContext(later))
	if err != nil {
		return nil, t.transportError(err)
	}
	t.patience.NoteAnswer()
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, t.transportError(err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, t.statusError(resp, reply)
	}
	resp.Body = io.NopCloser(bytes.NewReader(reply))
	return resp, nil
}

// withTemperature adds a temperature of 0, which go-openai omits although servers have other defaults; not for models
// with a fixed temperature.
func (r *Remote) withTemperature(body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	if fields["temperature"] != nil || reasons(r.options.Model) {
		return body, nil
	}
	fields["temperature"] = json.RawMessage("0")
	return json.Marshal(fields)
}

// graceContext returns a context that ends some time after ctx is cancelled, or at its deadline.
func graceContext(ctx context.Context, grace time.Duration) (later context.Context, done func()) {
	var cancel context.CancelFunc
	if deadline, ok := ctx.Deadline(); ok {
		later, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
	} else {
		later, cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(later, func() { timer.Stop() })
	})
	return later, func() { stop(); cancel() }
}

// waitOf returns the wait that a server asks for, in milliseconds as OpenAI does, in seconds or as a date; otherwise 0.
func waitOf(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 {
		return limitWait(ms, time.Millisecond)
	}
	after := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(after, 64); err == nil && seconds >= 0 {
		return limitWait(seconds, time.Second)
	}
	if date, err := http.ParseTime(after); err == nil {
		return limitWait(float64(time.Until(date)), 1)
	}
	return 0
}

func limitWait(n float64, unit time.Duration) time.Duration {
	return time.Duration(min(max(n*float64(unit), 0), float64(longestWait)))
}

// fail makes an error of one line without the key.
func (r *Remote) fail(kind Failure, wait time.Duration, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if key := r.options.Key; key != "" {
		text = strings.ReplaceAll(text, key, "***")
	}
	return &RemoteError{kind, wait, r.options.BaseURL + ": " + text}
}

// transportError describes the error of a request without a whole reply. Of some errors, such as an untrusted
// certificate, another try does not help.
func (t try) transportError(err error) error {
	var timeout net.Error
	var unsent *url.Error
	var dial *net.OpError
	kind := Lost
	if again, _ := retryablehttp.DefaultRetryPolicy(context.Background(), nil, err); !again {
		kind = Refused
	} else if errors.As(err, &dial) && dial.Op == "dial" {
		kind = Unreachable
	}
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return t.fail(kind, 0, "no reply within %v, %s", t.options.Timeout, t)
	case errors.As(err, &unsent):
		return t.fail(kind, 0, "no server answers (%s), %s", short(unsent.Err.Error()), t)
	}
	return t.fail(kind, 0, "the reply is incomplete, %s", t)
}

// statusError describes a reply whose status is an error. A spent quota is a 429, too, but another try does not help.
func (t try) statusError(resp *http.Response, reply []byte) error {
	code, kind := resp.StatusCode, Refused
	if again, _ := retryablehttp.DefaultRetryPolicy(context.Background(), resp, nil); again &&
		!bytes.Contains(reply, []byte("insufficient_quota")) || code == http.StatusRequestTimeout {
		kind = Busy
	}
	said := fmt.Sprintf("%d %s", code, http.StatusText(code))
	if message := messageOf(reply); message != "" {
		said += ": " + message
	}
	problem := "the server refuses the request"
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		problem = t.aboutKey()
	case code == http.StatusNotFound:
		problem = fmt.Sprintf("there is no model %q, or the base URL is not that of an OpenAI-compatible server, "+
			"which usually ends in /v1", t.options.Model)
	case code == http.StatusTooManyRequests:
		problem = "too many requests or a spent quota, " + t.String()
	case code >= 500:
		problem = "the server fails, " + t.String()
	}
	return t.fail(kind, waitOf(resp.Header), "%s (%s)", problem, said)
}

// messageOf is what a server says about an error, in one line.
func messageOf(reply []byte) string {
	var said struct{ Error struct{ Message string } }
	if json.Unmarshal(reply, &said) == nil && said.Error.Message != "" {
		return short(said.Error.Message)
	}
	return short(string(reply))
}

func (r *Remote) aboutKey() string {
	name := r.options.KeyName
	switch {
	case name == "":
		return "the server refuses the key"
	case r.options.Key == "":
		return "the server requires a key: set " + name + " in the environment"
	}
	return "the server refuses the key of " + name
}

func (t try) String() string {
	if t.number == 1 {
		return "tried once"
	}
	return fmt.Sprintf("tried %d times", t.number)
}

// short shortens a message to one line.
func short(text string) string { return data.OneLine(text, 160) }
