package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/sashabaranov/go-openai"

	"github.com/posttrain/posttrain/data"
)

// sending is the state of a request under way.
type sending struct {
	tries   int
	passing bool          // another try may help
	status  int           // of the last reply; 0: no reply
	wait    time.Duration // requested by the last reply
}

// sendingKey is the key of a *sending in a request's context.
type sendingKey struct{}

func sendingOf(ctx context.Context) *sending {
	if s, ok := ctx.Value(sendingKey{}).(*sending); ok {
		return s
	}
	return new(sending)
}

// retrier sends requests until one is answered.
type retrier struct{ client *retryablehttp.Client }

func newRetrier(o RemoteOptions) retrier {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = o.Retries, o.Wait, longestWait
	c.HTTPClient.Timeout = o.Timeout
	if t, ok := c.HTTPClient.Transport.(*http.Transport); ok {
		t.MaxIdleConnsPerHost = o.Parallel
	}
	if o.Grace > 0 {
		c.HTTPClient.Transport = graceful{c.HTTPClient.Transport, o.Grace}
	}
	var answered atomic.Bool // the server has answered once
	c.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		again, ended := checkRetry(ctx, resp, err)
		s := sendingOf(ctx)
		s.note(again, resp)
		if resp != nil {
			answered.Store(true)
		}
		stranger := unreachable(err) && !answered.Load() && s.tries >= triesOfStranger
		return again && !stranger, ended
	}
	c.RequestLogHook = func(_ retryablehttp.Logger, req *http.Request, before int) {
		sendingOf(req.Context()).tries = before + 1
	}
	c.Backoff = func(least, most time.Duration, try int, resp *http.Response) time.Duration {
		return min(retryablehttp.DefaultBackoff(least, most, try, resp), most) // Retry-After may exceed most
	}
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler // the last reply says more than the number of tries
	return retrier{c}
}

// triesOfStranger limits the tries of an unreachable server that never answered: its address is probably wrong.
const triesOfStranger = 3

func unreachable(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// Do sends a request whose body is a JSON object.
func (r retrier) Do(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if body, err = withTemperature(body); err != nil {
		return nil, err
	}
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	again, err := retryablehttp.FromRequest(req)
	if err != nil {
		return nil, err
	}
	return r.client.Do(again)
}

// withTemperature adds a temperature of 0, which go-openai omits although servers have other defaults; not for models
// with a fixed temperature.
func withTemperature(body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	var model string
	if err := json.Unmarshal(fields["model"], &model); err != nil {
		return nil, err
	}
	if fields["temperature"] != nil || reasons(model) {
		return body, nil
	}
	fields["temperature"] = json.RawMessage("0")
	return json.Marshal(fields)
}

// checkRetry retries as the library does (429, 5xx, our timeouts, failed connections), and also after a server's
// timeout (408) and a broken reply, but not after a spent quota, which is a 429 too.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	again, ended := retryablehttp.DefaultRetryPolicy(ctx, resp, err)
	again = again || ended == nil && resp != nil && resp.StatusCode == http.StatusRequestTimeout
	if err != nil || resp == nil {
		return again, ended
	}
	body, broken := readWhole(resp)
	switch {
	case broken != nil:
		return ctx.Err() == nil, ctx.Err()
	case resp.StatusCode/100 == 2: // even if the context has ended meanwhile
		return false, nil
	case ended != nil:
		return false, ended
	}
	return again && !bytes.Contains(body, []byte("insufficient_quota")), nil
}

// readWhole reads a reply's body and makes it readable again.
func readWhole(resp *http.Response) (body []byte, broken error) {
	body, broken = io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{broken}))
	return body, broken
}

// graceful lets a request under way continue for the grace period after its context is cancelled, but not beyond its
// deadline. It sends nothing after the end.
type graceful struct {
	http.RoundTripper
	grace time.Duration
}

func (l graceful) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	later, done := after(ctx, l.grace)
	defer done()
	resp, err := l.RoundTripper.RoundTrip(req.WithContext(later))
	if err == nil {
		readWhole(resp)
	}
	return resp, err
}

// after returns a context that ends some time after ctx is cancelled, or at its deadline.
func after(ctx context.Context, grace time.Duration) (later context.Context, done func()) {
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

// failing ends a body with an error, or with EOF if it is nil.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// note keeps what a reply says about the next try; resp may be nil.
func (s *sending) note(again bool, resp *http.Response) {
	s.passing, s.status, s.wait = again, 0, 0
	if resp != nil {
		s.status, s.wait = resp.StatusCode, waitOf(resp.Header)
	}
}

// waitOf returns the wait that a server asks for, in milliseconds as OpenAI does, in seconds or as a date; otherwise 0.
func waitOf(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 {
		return bounded(ms, time.Millisecond)
	}
	after := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(after, 64); err == nil && seconds >= 0 {
		return bounded(seconds, time.Second)
	}
	if date, err := http.ParseTime(after); err == nil {
		return bounded(float64(time.Until(date)), 1)
	}
	return 0
}

func bounded(n float64, unit time.Duration) time.Duration {
	return time.Duration(min(max(n*float64(unit), 0), float64(longestWait)))
}

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

// explain describes a client's error for the user.
func (r *Remote) explain(err error, s sending) error {
	text := r.describe(err, triesText(s.tries))
	if key := r.options.Key; key != "" {
		text = strings.ReplaceAll(text, key, "***")
	}
	return &RemoteError{s.failure(err), s.wait, r.options.BaseURL + ": " + text}
}

func (s sending) failure(err error) Failure {
	switch {
	case !s.passing && s.status/100 == 2:
		return Foreign
	case !s.passing:
		return Refused
	case s.status/100 > 2:
		return Busy
	case unreachable(err):
		return Unreachable
	}
	return Lost
}

func (r *Remote) describe(err error, tried string) string {
	var api *openai.APIError
	var request *openai.RequestError
	var timeout net.Error
	var unsent *url.Error
	switch {
	case errors.As(err, &api) && api.HTTPStatusCode > 0:
		return r.status(api.HTTPStatusCode, api.Message, tried)
	case errors.As(err, &request):
		return r.status(request.HTTPStatusCode, string(request.Body), tried)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no reply within %v, %s", r.options.Timeout, tried)
	case errors.As(err, &unsent):
		return fmt.Sprintf("no server answers (%s), %s", short(unsent.Err.Error()), tried)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the reply is incomplete, " + tried
	case errors.As(err, new(*json.SyntaxError)), errors.As(err, new(*json.UnmarshalTypeError)),
		errors.Is(err, io.EOF):
		return fmt.Sprintf("the reply is no chat completion (%s): want the base URL of an OpenAI-compatible server, "+
			"which usually ends in /v1", short(err.Error()))
	}
	return short(err.Error())
}

// status describes a reply whose status is an error.
func (r *Remote) status(code int, message, tried string) string {
	said := fmt.Sprintf("%d %s", code, http.StatusText(code))
	if message = short(message); message != "" {
		said += ": " + message
	}
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return r.aboutKey() + " (" + said + ")"
	case code == http.StatusNotFound:
		return fmt.Sprintf("there is no model %q, or the base URL is not that of an OpenAI-compatible server, "+
			"which usually ends in /v1 (%s)", r.options.Model, said)
	case code == http.StatusTooManyRequests:
		return fmt.Sprintf("too many requests or a spent quota, %s (%s)", tried, said)
	case code >= 500:
		return fmt.Sprintf("the server fails, %s (%s)", tried, said)
	}
	return "the server refuses the request (" + said + ")"
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

func triesText(n int) string {
	if n == 1 {
		return "tried once"
	}
	return fmt.Sprintf("tried %d times", n)
}

// short shortens a message to one line.
func short(text string) string { return data.OneLine(text, 160) }
