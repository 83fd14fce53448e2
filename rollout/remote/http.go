package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/sashabaranov/go-openai"

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
	Filtered                   // the server's filter refuses this prompt; others may pass
)

// Error is a server's error in one line, without the key.
type Error struct {
	Kind Failure
	Wait time.Duration // requested by the server before the next try; 0: not requested

	Status int // of HTTP; 0: there was no reply, or it is of no use
	text   string
}

func (e *Error) Error() string { return e.text }

// Patience says when a failed request is sent again.
type Patience struct {
	Retries int           // tries after the first
	Wait    time.Duration // before the second try, doubled before each later one
	Longest time.Duration // limits the doubling

	// Warn hears that a request failed and is sent again, at most once in a minute; may be nil.
	Warn func(format string, args ...any)

	answered atomic.Bool  // there is such a server
	warned   atomic.Int64 // the time of the last warning in nanoseconds
}

// triesOfStranger limits the tries of a server that has never answered and is unreachable or speaks another protocol:
// its address is probably wrong.
const triesOfStranger = 3

// NoteAnswer notes that the address is right.
func (p *Patience) NoteAnswer() { p.answered.Store(true) }

// Again says whether another try may help after the failed one and those before it, and how long to wait first: as long
// as the server asks for, and a wait that doubles with each try. That is shortened at random by up to a half, so that
// requests that failed together do not return together.
func (p *Patience) Again(failed *Error, before int) (wait time.Duration, again bool) {
	most := p.Retries
	if (failed.Kind == Unreachable || failed.Kind == Foreign) && !p.answered.Load() {
		most = min(most, triesOfStranger-1)
	}
	wait = p.Wait
	for range before {
		wait = min(2*wait, max(p.Longest, wait))
	}
	wait = failed.Wait + wait - rand.N(wait/2+1)
	again = failed.Kind != Refused && failed.Kind != Filtered && before < most
	if again {
		p.warn(failed, wait, most-before)
	}
	return wait, again
}

// warn reports the first failure at once, because the last try may be minutes away.
func (p *Patience) warn(failed *Error, wait time.Duration, left int) {
	now, last := time.Now().UnixNano(), p.warned.Load()
	due := last == 0 || now-last > int64(time.Minute)
	if p.Warn != nil && due && p.warned.CompareAndSwap(last, now) {
		p.Warn("%v; the next try is in %v, tries left: %d", failed, wait.Round(100*time.Millisecond), left)
	}
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

// Bounds on what is read of a reply.
const (
	maxAnswerBytes = 4 << 20  // for each answer that is asked for
	maxReplyBytes  = 64 << 20 // in all
	maxHeaderBytes = 1 << 20
)

// try is one request; number counts from 1.
type try struct {
	*Client
	number int
}

// send sends a request for n answers and returns a reply with one choice or more.
func (t try) send(ctx context.Context, body []byte, n int) (reply, error) {
	text, err := t.exchange(ctx, http.MethodPost, completionsPath, body, min(n*maxAnswerBytes, maxReplyBytes))
	if err != nil {
		return reply{}, err
	}
	return t.read(text, n)
}

// exchange sends a request and returns the body of the reply, of at most some bytes. A request under way continues for
// the grace period after its context is cancelled, but not beyond its deadline.
func (t try) exchange(ctx context.Context, method, path string, body []byte, most int) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	later, done := graceContext(ctx, t.options.Grace)
	defer done()
	request, err := t.request(later, method, path, body)
	if err != nil {
		return nil, err
	}
	response, err := t.http.Do(request)
	if err != nil {
		return nil, t.transportError(err)
	}
	t.patience.NoteAnswer()
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, int64(most)+1))
	tooLong := len(text) > most
	if tooLong {
		text = nil
	}
	switch {
	case err != nil:
		return nil, t.transportError(err)
	case response.StatusCode/100 != 2:
		err := t.statusError(response, text)
		if failed, ok := errors.AsType[*Error](err); ok {
			failed.Status = response.StatusCode
		}
		return nil, err
	case tooLong:
		return nil, t.fail(Foreign, 0, "the reply is longer than %d MiB: want a chat completion", most>>20)
	}
	return text, nil
}

// request makes the HTTP request. Its body is in memory: the transport can send it again.
func (t try) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	address := t.options.address(t.options.Model, path)
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	if t.options.Key != "" {
		request.Header.Set(t.options.keyHeader(t.options.Key))
	}
	return request, nil
}

// Exchange sends JSON to a path below the base URL and reads the reply into a value. It tries again as Answer does. A
// body of nil is a GET.
func (r *Client) Exchange(ctx context.Context, path string, body, into any) error {
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
		method = http.MethodPost
	}
	return r.insist(ctx, func(tries int) error {
		text, err := try{r, tries + 1}.exchange(ctx, method, path, text, maxReplyBytes)
		if err != nil || into == nil {
			return err
		}
		if err := json.Unmarshal(text, into); err != nil {
			return r.fail(Foreign, 0, "%s: the reply is not what is expected there: %s", path, r.short(err.Error()))
		}
		return nil
	})
}

const completionsPath = "/chat/completions"

// A reply is what is read of a chat completion. The library's types have more fields: a hostile reply would take a
// hundred times its size.
type reply struct {
	Choices choices
	Usage   struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
}

type choice struct {
	Message struct {
		Content string
		// thoughts: the older name, and the name in newer vLLM, OpenRouter and Ollama; some servers send both
		Reasoning string `json:"reasoning_content"`
		Newer     string `json:"reasoning"`
		ToolCalls []struct {
			Function struct {
				Name      string
				Arguments json.RawMessage // a text that should be JSON; of some servers an object
			}
		} `json:"tool_calls"`
	}
	Finish   openai.FinishReason `json:"finish_reason"`
	Logprobs *struct {
		Content []struct {
			Top []struct {
				Token   string
				Logprob *float64 // null: NaN or infinite
			} `json:"top_logprobs"`
		}
	}
}

// thoughts are those that the server returns apart from the answer.
func (c *choice) thoughts() string { return cmp.Or(c.Message.Reasoning, c.Message.Newer) }

// choices keep at most maxChoices of a list.
type choices []choice

const maxChoices = 1 << 10

// UnmarshalJSON reads the first choices of a list.
func (c *choices) UnmarshalJSON(text []byte) error {
	*c = nil
	list := json.NewDecoder(bytes.NewReader(text))
	if opening, err := list.Token(); err != nil || opening == nil {
		return err
	} else if opening != json.Delim('[') {
		return errors.New("choices is not a list")
	}
	for list.More() && len(*c) < maxChoices {
		var one choice
		if err := list.Decode(&one); err != nil {
			return err
		}
		*c = append(*c, one)
	}
	return nil
}

// read reads a chat completion for n answers.
func (r *Client) read(text []byte, n int) (whole reply, err error) {
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&whole); err != nil {
		return reply{}, r.fail(Foreign, 0, "the reply is no chat completion (%s): want the base URL of an "+
			"OpenAI-compatible server, which usually ends in /v1", r.short(err.Error()))
	}
	if len(whole.Choices) == 0 && marked(text) { // Google
		return reply{}, r.fail(Filtered, 0, "the server's filter refuses the prompt (the reply has no choices)")
	}
	if len(whole.Choices) == 0 {
		return reply{}, r.fail(Foreign, 0, "the reply has no choices")
	}
	whole.Choices = whole.Choices[:min(n, len(whole.Choices))]
	for _, c := range whole.Choices {
		if slices.Contains(brokenOff, c.Finish) {
			return reply{}, r.fail(Lost, 0, "the server broke an answer off (finish_reason %s)", c.Finish)
		}
	}
	return whole, nil
}

// brokenOff are the reasons of servers that failed within an answer, what there is of it being no answer: vLLM and
// SGLang, OpenRouter and Together, watsonx, DeepSeek.
var brokenOff = []openai.FinishReason{"abort", "error", "cancelled", "insufficient_system_resource"}

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

// Fail makes an error of a server whose replies are of no use, for callers of [Client.Exchange].
func (r *Client) Fail(format string, args ...any) error { return r.fail(Foreign, 0, format, args...) }

// fail makes an error of one line without the key.
func (r *Client) fail(kind Failure, wait time.Duration, format string, args ...any) error {
	text := r.key.Hide(r.options.BaseURL + ": " + fmt.Sprintf(format, args...))
	return &Error{Kind: kind, Wait: wait, text: text}
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
		return t.fail(kind, 0, "no server answers (%s), %s", t.short(unsent.Err.Error()), t)
	}
	return t.fail(kind, 0, "the reply is incomplete, %s", t)
}

// statusError describes a reply whose status is an error. A spent quota is a 429, too, but another try does not help.
func (t try) statusError(resp *http.Response, text []byte) error {
	code, kind := resp.StatusCode, Refused
	if again, _ := retryablehttp.DefaultRetryPolicy(context.Background(), resp, nil); again &&
		!bytes.Contains(text, []byte("insufficient_quota")) || code == http.StatusRequestTimeout {
		kind = Busy
	}
	if kind == Refused && filters(code, text) {
		kind = Filtered
	}
	said := fmt.Sprintf("%d %s", code, http.StatusText(code))
	if message := t.messageOf(text); message != "" {
		said += ": " + message
	}
	problem := "the server refuses the request"
	switch {
	case kind == Filtered:
		problem = "the server's filter refuses the prompt"
	case code/100 == 3:
		return t.fail(kind, 0, "%s", t.redirection(resp))
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		problem = t.aboutKey()
	case code == http.StatusNotFound:
		problem = t.options.aboutModel(t.options.Model)
	case code == http.StatusTooManyRequests:
		problem = "too many requests or a spent quota, " + t.String()
	case code >= 500:
		problem = "the server fails, " + t.String()
	}
	return t.fail(kind, waitOf(resp.Header), "%s (%s)", problem, said)
}

// filterMarks are in the errors of servers whose filter refuses a prompt: OpenAI, Azure, Google, Anthropic, OpenRouter,
// Alibaba, DeepSeek, Moonshot, Zhipu.
var filterMarks = []string{"content_filter", "contentfilter", "content_policy_violation", "content management policy",
	"content filtering policy", "responsibleaipolicyviolation", "invalid_prompt", "prohibited_content", "moderation",
	"data_inspection_failed", "datainspectionfailed", "content exists risk", "considered high risk", `"1301"`}

// filters says that a reply of a status comes from a filter.
func filters(code int, text []byte) bool {
	return slices.Contains([]int{400, 403, 422, 451}, code) && marked(text)
}

func marked(text []byte) bool {
	text = bytes.ToLower(text)
	return slices.ContainsFunc(filterMarks, func(mark string) bool { return bytes.Contains(text, []byte(mark)) })
}

// redirection says where a server redirects to. Nothing is sent there: it would get the prompts, and perhaps the key.
func (r *Client) redirection(resp *http.Response) string {
	to, err := resp.Location()
	if err != nil {
		return fmt.Sprintf("the server redirects (%d) without an address: want another base URL", resp.StatusCode)
	}
	path := r.key.Hide(strings.TrimSuffix(to.Path, completionsPath)) // before String, which escapes it
	address := url.URL{Scheme: to.Scheme, Host: to.Host, Path: path}
	return fmt.Sprintf("the server redirects (%d) to another address, which is not followed: if you trust it, "+
		"set the base URL to %s", resp.StatusCode, r.short(address.String()))
}

// messageOf is what a server says about an error, in one line.
func (r *Client) messageOf(text []byte) string {
	var said struct{ Error struct{ Message string } }
	if json.Unmarshal(text, &said) == nil && said.Error.Message != "" {
		return r.short(said.Error.Message)
	}
	return r.short(string(text))
}

func (r *Client) aboutKey() string {
	name := r.options.KeyEnv
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

// short is the beginning of a message in one line, without the key.
func (r *Client) short(text string) string { return data.OneLine(r.key.Hide(text), 160) }
