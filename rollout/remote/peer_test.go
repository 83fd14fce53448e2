package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/posttrain/posttrain/ask"
)

// transport answers requests without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := f(r)
	if response != nil {
		response.Request = r
	}
	return response, err
}

// peer is a client whose server is a function.
func peer(t testing.TB, answer transport, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{Server: Server{BaseURL: "http://judge/v1"}, Model: "tiny", Wait: time.Microsecond}
	for _, c := range change {
		c(&o)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.http.Transport = answer
	return r
}

func response(code int, header http.Header, body io.Reader) *http.Response {
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(body), ProtoMajor: 1, ProtoMinor: 1}
}

// endless is a body that never ends.
type endless struct{ read *atomic.Int64 }

func (e endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	e.read.Add(int64(len(b)))
	return len(b), nil
}

// TestRemoteBoundsReplies: of a reply without end no more is read than its answers may have, whatever its status is.
func TestRemoteBoundsReplies(t *testing.T) {
	for _, c := range []struct {
		code, samples int
		most          int64
		want          string
	}{
		{200, 1, 4 << 20, "the reply is longer than 4 MiB: want a chat completion"},
		{200, 100, 64 << 20, "the reply is longer than 64 MiB: want a chat completion"},
		{500, 1, 4 << 20, "the server fails, tried once (500 Internal Server Error)"},
	} {
		var read atomic.Int64
		r := peer(t, func(*http.Request) (*http.Response, error) {
			return response(c.code, nil, endless{&read}), nil
		}, func(o *Options) { o.Retries = -1 })
		q := talk("")
		q.Samples = c.samples
		_, err := r.Answer(t.Context(), []ask.Question{q})
		if err == nil || err.Error() != "http://judge/v1: "+c.want || read.Load() > c.most+c.most/2 {
			t.Errorf("%v after %d bytes, want %s", err, read.Load(), c.want)
		}
	}
}

// TestRemoteKeepsFewOfManyChoices: a reply of a million empty choices takes no more memory than a few times its size.
func TestRemoteKeepsFewOfManyChoices(t *testing.T) {
	body := `{"choices": [{}` + strings.Repeat(",{}", 1<<20) + `]}`
	r := peer(t, func(*http.Request) (*http.Response, error) {
		return response(200, nil, strings.NewReader(body)), nil
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	answers, err := r.Answer(t.Context(), []ask.Question{talk("")})
	runtime.ReadMemStats(&after)
	if used := int(after.TotalAlloc - before.TotalAlloc); err != nil || len(answers[0]) != 1 || used > 10*len(body) {
		t.Errorf("%d answers, %v, %d bytes for a reply of %d", len(answers), err, used, len(body))
	}
}

// TestRemoteRefusesRedirects: nothing is sent to the other address, and the error names it.
func TestRemoteRefusesRedirects(t *testing.T) {
	for code, to := range map[int]string{
		301: "https://elsewhere/v1/chat/completions", 302: "/v2/chat/completions",
		307: "http://judge:8443/v1/chat/completions?key=sk-secret-0123456789", 308: "http://127.0.0.1:1/",
	} {
		asked := 0
		r := peer(t, func(q *http.Request) (*http.Response, error) {
			asked++
			return response(code, http.Header{"Location": {to}}, strings.NewReader("")), nil
		}, func(o *Options) { o.Key = "sk-secret-0123456789" })
		_, err := r.Answer(t.Context(), []ask.Question{talk("")})
		want := map[int]string{301: "https://elsewhere/v1", 302: "http://judge/v2", 307: "http://judge:8443/v1",
			308: "http://127.0.0.1:1/"}[code]
		if err == nil || !strings.HasSuffix(err.Error(), "set the base URL to "+want) || asked != 1 {
			t.Errorf("%d: %v after %d requests, want one that names %s", code, err, asked, want)
		}
	}
}

// TestRemoteBodyCanBeSentAgain: HTTP/2 sends a request again after GOAWAY, from GetBody.
func TestRemoteBodyCanBeSentAgain(t *testing.T) {
	r := peer(t, func(q *http.Request) (*http.Response, error) {
		first, _ := io.ReadAll(q.Body)
		for range 2 {
			again, err := q.GetBody()
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := io.ReadAll(again); !bytes.Equal(b, first) || int64(len(b)) != q.ContentLength {
				t.Errorf("%s again is %s, length %d", first, b, q.ContentLength)
			}
		}
		return response(200, nil, strings.NewReader(replyJSON("x"))), nil
	})
	if _, err := r.Answer(t.Context(), []ask.Question{talk("")}); err != nil {
		t.Fatal(err)
	}
}

// TestRemoteWarnsEarly: the user hears of the first failed try, with what failed and how many tries are left, and then
// no more for a minute.
func TestRemoteWarnsEarly(t *testing.T) {
	var warnings []string
	asked := 0
	r := peer(t, func(*http.Request) (*http.Response, error) {
		if asked++; asked == 2 && len(warnings) != 1 {
			t.Errorf("%d warnings before the second try", len(warnings))
		}
		return response(500, nil, strings.NewReader("oops")), nil
	}, func(o *Options) {
		o.Retries = 3
		o.Warn = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	})
	_, err := r.Answer(t.Context(), []ask.Question{talk("")})
	const want = "http://judge/v1: the server fails, tried once (500 Internal Server Error: oops); " +
		"the next try is in 0s, tries left: 3"
	if err == nil || asked != 4 || len(warnings) != 1 || warnings[0] != want {
		t.Errorf("%v after %d tries: %q, want %q", err, asked, warnings, want)
	}
}

// randomKey is a key of the characters that keys have.
func randomKey(rng *rand.Rand) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+=~:"
	key := make([]byte, 16+rng.IntN(60))
	for i := range key {
		key[i] = letters[rng.IntN(len(letters))]
	}
	return string(key)
}

// breakUp puts line ends and the like into a key.
func breakUp(rng *rand.Rand, key string) string {
	gaps := []string{"\n", "\r\n", " ", "\t", "\u2028", "\u200b", "\n    ", "\x00", `\n`, `\r\n`,
		`\u000a`, `\x00`, "%0A"}
	var out strings.Builder
	for i := range len(key) {
		for rng.IntN(20) == 0 {
			out.WriteString(gaps[rng.IntN(len(gaps))])
		}
		out.WriteByte(key[i])
	}
	return out.String()
}

// holds reports whether a text, or the text without what may break a key, has eight characters in a row of the key.
func holds(text, key string) bool {
	escapes := strings.NewReplacer(`\n`, "", `\r`, "", `\t`, "", `\u000a`, "", `\x00`, "", "%0A", "",
		`\u2028`, "", `\u200b`, "")
	whole := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.In(r, unicode.C, unicode.Z) {
			return -1
		}
		return r
	}, escapes.Replace(text))
	for i := range len(key) - 7 {
		if strings.Contains(whole, key[i:i+8]) {
			return true
		}
	}
	return false
}

// echoes are the ways in which a server can repeat a key.
var echoes = []func(key string) (*http.Response, error){
	func(key string) (*http.Response, error) { // an error with a message
		b, err := json.Marshal(map[string]any{"error": map[string]any{"message": key}})
		return response(400, nil, bytes.NewReader(b)), err
	},
	func(key string) (*http.Response, error) { return response(401, nil, strings.NewReader(key)), nil },
	func(key string) (*http.Response, error) {
		return response(503, http.Header{"Retry-After": {key}, "X": {key}}, strings.NewReader("<p>"+key)), nil
	},
	func(key string) (*http.Response, error) {
		return response(307, http.Header{"Location": {"http://" + key[:3] + "/" + key + "?" + key}}, http.NoBody), nil
	},
	func(key string) (*http.Response, error) { return response(200, nil, strings.NewReader(key)), nil },
	func(key string) (*http.Response, error) {
		return response(200, nil, strings.NewReader(`{"choices": "`+key+`"}`)), nil
	},
	func(key string) (*http.Response, error) { return nil, fmt.Errorf("malformed HTTP response %q", key) },
	func(key string) (*http.Response, error) {
		message := map[string]any{"content": key, "reasoning_content": "so " + key}
		choice := map[string]any{"finish_reason": key, "message": message}
		b, err := json.Marshal(map[string]any{"choices": []any{choice}, "model": key, "id": key})
		return response(200, nil, bytes.NewReader(b)), err
	},
}

// TestKeyIsInNoSink: whatever a server does with a key, no text that is printed or stored has a piece of it: not where
// a message is cut inside the key, and not where line ends break it.
func TestKeyIsInNoSink(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 3))
	for range 3000 {
		key := randomKey(rng)
		said := strings.Repeat("p", rng.IntN(170)) + breakUp(rng, key) + strings.Repeat("q", rng.IntN(20))
		var sinks []string
		echo := rng.IntN(len(echoes))
		r := peer(t, func(*http.Request) (*http.Response, error) { return echoes[echo](said) },
			func(o *Options) {
				o.Key, o.KeyEnv, o.Retries = key, "KEY", 1
				o.Warn = func(format string, args ...any) { sinks = append(sinks, fmt.Sprintf(format, args...)) }
			})
		answers, err := r.Answer(t.Context(), []ask.Question{talk("")})
		if err != nil {
			sinks = append(sinks, err.Error())
		} else {
			sinks = append(sinks, answers[0][0].Text, answers[0][0].Reason)
		}
		for _, text := range sinks {
			if holds(text, key) || err != nil && strings.ContainsAny(text, "\r\n") {
				t.Fatalf("echo %d of key %q as %q: %q", echo, key, said, text)
			}
		}
	}
}

// FuzzReply: whatever a server sends, the client gets a reply with a choice or an error of one short line. KEY is
// replaced by the key, which is never in it.
func FuzzReply(f *testing.F) {
	const key = "sk-very-secret-0123456789"
	for _, body := range []string{replyJSON("yes"), replyJSON("yes", "no"), `{}`, `{"choices": null}`, `{"choices": [`,
		`{"choices": [{"message": {"content": null}, "finish_reason": "KEY"}], "usage": {"prompt_tokens": -1}}`,
		`{"error": {"message": "Incorrect API key provided: KEY"}}`, "<html>\x1b[31mKEY</html>", "insufficient_quota",
		`{"choices": [{"message": {"tool_calls": [{"function": {"name": "KEY", "arguments": "{KEY"}}, null]}}]}`,
		`{"choices": [{"message": {"content": ["a"]}}]}`, strings.Repeat("[", 100), ""} {
		for i, code := range []int{200, 401, 307, 429, 500} {
			wait := []string{"", "3", "NaN", "1e300", "Fri, 31 Dec 1999 23:59:59 GMT"}[i]
			f.Add(code, wait, "http://other/v1/KEY/chat/completions", []byte(body))
		}
	}
	var next func() (*http.Response, error)
	r := peer(f, func(*http.Request) (*http.Response, error) { return next() },
		func(o *Options) { o.Key, o.KeyEnv, o.Retries = key, "KEY_ENV", -1 })
	f.Fuzz(func(t *testing.T, code int, wait, location string, body []byte) {
		code = 200 + (code%400+400)%400
		body = bytes.ReplaceAll(body, []byte("KEY"), []byte(key))
		header := http.Header{"Retry-After": {wait}, "Retry-After-Ms": {wait[:len(wait)/2]},
			"Location": {strings.ReplaceAll(location, "KEY", key)}}
		next = func() (*http.Response, error) { return response(code, header, bytes.NewReader(body)), nil }
		a, _, err := r.Ask(t.Context(), talk(""), 0)
		var failed *Error
		switch {
		case err == nil && (strings.Contains(a.Text, key) || len(a.Reason) > 20):
			t.Errorf("answer %+v", a)
		case err == nil:
		case !errors.As(err, &failed):
			t.Errorf("%T: %v", err, err)
		case failed.Wait < 0 || failed.Wait > longestWait:
			t.Errorf("a wait of %v", failed.Wait)
		case len(failed.text) > 1000 || strings.ContainsAny(failed.text, "\r\n") || strings.Contains(failed.text, key):
			t.Errorf("%q: want one short line without the key", failed.text)
		}
	})
}
