package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/fleet"
	"github.com/posttrain/posttrain/rollout/local"
)

func TestMain(m *testing.M) { os.Exit(expect.NoLeaks(m)) }

// policy is the embedded model with weights that a test changes.
type policy struct {
	model   *model.Model
	version int
}

func (p *policy) Version() int              { return p.version }
func (p *policy) Write(folder string) error { return p.model.Save(folder, "float32") }

// Logps is not called without probes.
func (p *policy) Logps(_, answers [][]int32) ([][]float32, error) {
	return nil, fmt.Errorf("%d answers", len(answers))
}

// learn changes the weights so that other tokens are drawn.
func (p *policy) learn() {
	p.version++
	for _, param := range p.model.Params {
		for i := range param.Data {
			param.Data[i] *= 1 + 0.05*float32(i%7)/7
		}
	}
}

func load(t *testing.T) *model.Model {
	t.Helper()
	fsys := expect.Must(fs.Sub(embedded.Files, embedded.Model))(t)
	return expect.Must(model.LoadFS(fsys, "embedded model"))(t)
}

// launch runs posttrain serve with the embedded model; stop ends it at once.
func launch(t *testing.T) (address string, stop func()) {
	t.Helper()
	m := expect.Must(local.Open("go", embedded.Name))(t)
	l := expect.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve.New(serve.Options{Name: "policy", Sampler: m.Sampler, Config: m.Model.Config,
			Encoder: &batch.Encoder{Tokenizer: m.Tokenizer}, Decoder: m.Tokenizer, Reload: m.Reload,
			Grace: time.Millisecond}).Run(ctx, l)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		m.Close()
	})
	t.Cleanup(stop)
	return "http://" + l.Addr().String(), stop
}

// newFleet makes a fleet of addresses, with the warnings that it gives.
func newFleet(t *testing.T, p *policy, addresses ...string) (*fleet.Fleet, func() string) {
	t.Helper()
	_, tok, err := local.Load(embedded.Name)
	expect.OK(t, err)
	var mu sync.Mutex
	var warnings []string
	warn := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		warnings = append(warnings, fmt.Sprintf(format, args...))
	}
	f := expect.Must(fleet.New(fleet.Options{Engine: fleet.SGLang, URLs: addresses, Folder: t.TempDir(), Retries: -1,
		Wait: time.Millisecond, Timeout: time.Hour, Parallel: 4}, p, p.model.Config, tok, warn))(t)
	return f, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(warnings, "\n")
	}
}

// requests are some prompts with two samples each.
func requests() (all []rollout.Request) {
	for i := range 4 {
		r := rollout.Request{Sampling: rollout.Sampling{MaxNew: 12, Temperature: 1}, Seed: rollout.DrawSeed(1<<63+5, i),
			Prompt: []int32{int32(40 + i), 50, 60}}
		all = append(all, r.Samples(2)...)
	}
	return all
}

// localSample samples in this process with a policy's weights.
func localSample(t *testing.T, p *policy) []rollout.Completion {
	t.Helper()
	e := expect.Must(backend.Open("go"))(t)
	defer e.Close()
	weights := expect.Must(rollout.Upload(e, p.model, model.GraphOptions{}))(t)
	defer backend.FinalizeAll(weights...)
	_, tok, err := local.Load(embedded.Name)
	expect.OK(t, err)
	s := rollout.NewCached(e, p.model.Config, func() []compute.Buffer { return weights }, rollout.Options{Decoder: tok})
	defer s.Close()
	return expect.Must(s.Sample(t.Context(), requests()))(t)
}

// same checks that completions are the local sampler's.
func same(t *testing.T, got, want []rollout.Completion) {
	t.Helper()
	for i, w := range want {
		g := got[i]
		if !slices.Equal(g.Tokens, w.Tokens) || g.Text != w.Text || g.Reason != w.Reason ||
			len(g.Logps) != len(w.Logps) {
			t.Errorf("request %d: %+v, want %+v", i, g, w)
			continue
		}
		for k := range w.Logps {
			if d := g.Logps[k] - w.Logps[k]; d > 1e-4 || d < -1e-4 {
				t.Errorf("request %d, token %d: %v, want %v", i, k, g.Logps[k], w.Logps[k])
			}
		}
	}
}

// TestFleetIsTheSampler: two servers draw the tokens of the local sampler, from the weights of the moment. Folders of
// old weights are removed.
func TestFleetIsTheSampler(t *testing.T) {
	p := &policy{model: load(t)}
	first, _ := launch(t)
	second, _ := launch(t)
	f, warnings := newFleet(t, p, first, second+"/v1")
	var before []rollout.Completion
	for range 4 {
		got := expect.Must(f.Sample(t.Context(), requests()))(t)
		same(t, got, localSample(t, p))
		alike := func(a, b rollout.Completion) bool { return a.Text == b.Text }
		if before != nil && slices.EqualFunc(got, before, alike) {
			t.Error("other weights draw the same tokens")
		}
		before = got
		p.learn()
	}
	if w := warnings(); w != "" {
		t.Error(w)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestServersFail: while one server answers, nothing is lost. Without one there is an error that names them; a server
// that comes back gets the weights.
func TestServersFail(t *testing.T) {
	p := &policy{model: load(t)}
	first, stopFirst := launch(t)
	second, stopSecond := launch(t)
	f, warnings := newFleet(t, p, first, second)
	expect.Must(f.Sample(t.Context(), requests()))(t)
	stopFirst()
	p.learn()
	for range 2 { // the second time the lost server is asked again
		got := expect.Must(f.Sample(t.Context(), requests()))(t)
		same(t, got, localSample(t, p))
	}
	if w := warnings(); !strings.Contains(w, first) {
		t.Errorf("%q: want the server that failed in it", w)
	}
	stopSecond()
	if _, err := f.Sample(t.Context(), requests()); err == nil || !strings.Contains(err.Error(), second) {
		t.Errorf("%v: want an error that names %s", err, second)
	}
}

// fake is a server whose replies a test writes.
func fake(t *testing.T, generate func(n int, version string, w http.ResponseWriter)) string {
	t.Helper()
	var mu sync.Mutex
	n, given := 0, struct {
		Version string `json:"weight_version"`
	}{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.Path {
		case "/update_weights_from_disk":
			json.NewDecoder(r.Body).Decode(&given)
			fallthrough
		default:
			fmt.Fprint(w, `{"success":true}`)
		case "/generate":
			n++
			generate(n, given.Version, w)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestRepliesAreChecked: a reply that cannot be the policy's is an error that says what is wrong.
func TestRepliesAreChecked(t *testing.T) {
	for meta, want := range map[string]string{
		`"weight_version":"VERSION","output_token_logprobs":[[-1,99999999,null]]`: "has another model or tokenizer",
		`"weight_version":"VERSION","output_token_logprobs":[[0.5,3,null]]`:       "log-prob 0.5",
		`"weight_version":"VERSION","output_token_logprobs":[[-1,3,null]]`:        "breaks off after 1 tokens",
		`"weight_version":"VERSION","output_token_logprobs":[[-1,"a",null]]`:      "want log-prob and token id",
		`"weight_version":"VERSION","output_token_logprobs":[[null,3,null]]`:      "want log-prob and token id",
		`"weight_version":"VERSION","output_token_logprobs":[[-1,null,null]]`:     "want log-prob and token id",
		`"weight_version":"VERSION","output_token_logprobs":[[-1e39,3,null]]`:     "want log-prob and token id",
		`"weight_version":"VERSION","output_token_logprobs":[[NaN,3,null]]`:       "not what is expected",
		`"weight_version":"VERSION","output_token_logprobs":[]`:                   "no output_token_logprobs",
		`"weight_version":"","output_token_logprobs":[[-1,3,null]]`:               `it has the weights ""`,
		``: "not what is expected",
	} {
		address := fake(t, func(_ int, version string, w http.ResponseWriter) {
			if meta == "" {
				fmt.Fprint(w, "nothing")
				return
			}
			fmt.Fprintf(w, `{"meta_info":{%s}}`, strings.ReplaceAll(meta, "VERSION", version))
		})
		f, _ := newFleet(t, &policy{model: load(t)}, address)
		_, err := f.Sample(t.Context(), requests()[:1])
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v, want %q", meta, err, want)
		}
	}
}

// TestRestartedServer: a server that has lost its weights is given them again, and asked again.
func TestRestartedServer(t *testing.T) {
	twelve := strings.TrimSuffix(strings.Repeat(`[-1,3,null],`, 12), ",")
	address := fake(t, func(n int, version string, w http.ResponseWriter) {
		if n == 3 {
			version = "base"
		}
		fmt.Fprintf(w, `{"meta_info":{"weight_version":%q,"output_token_logprobs":[%s]}}`, version, twelve)
	})
	f, warnings := newFleet(t, &policy{model: load(t)}, address)
	got := expect.Must(f.Sample(t.Context(), requests()))(t)
	for i, c := range got {
		if len(c.Tokens) != 12 {
			t.Errorf("request %d: %+v", i, c)
		}
	}
	if !strings.Contains(warnings(), `it has the weights "base"`) {
		t.Error(warnings())
	}
}

// TestARefusedRequestIsMissing: a request that a server refuses is one completion less.
func TestARefusedRequestIsMissing(t *testing.T) {
	twelve := strings.Repeat(`[-1,3,null],`, 12)
	address := fake(t, func(n int, version string, w http.ResponseWriter) {
		if n == 2 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"meta_info":{"weight_version":%q,"output_token_logprobs":[%s]}}`, version,
			strings.TrimSuffix(twelve, ","))
	})
	f, warnings := newFleet(t, &policy{model: load(t)}, address)
	got := expect.Must(f.Sample(t.Context(), requests()))(t)
	missing := 0
	for _, c := range got {
		if c.Reason == rollout.Missing {
			missing++
		} else if len(c.Tokens) != 12 || c.Reason != rollout.Length {
			t.Errorf("%+v", c)
		}
	}
	if missing != 1 || !strings.Contains(warnings(), "a completion is missing") {
		t.Errorf("%d missing, %q: want one", missing, warnings())
	}
}

// TestAllRequestsAreRefused: the error says why.
func TestAllRequestsAreRefused(t *testing.T) {
	address := fake(t, func(_ int, _ string, w http.ResponseWriter) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"token id 50: the model has ids 0 to 49"}}`)
	})
	f, _ := newFleet(t, &policy{model: load(t)}, address)
	_, err := f.Sample(t.Context(), requests())
	expect.Error(t, err, "token id 50: the model has ids 0 to 49")
}

// TestWeightsAreRefused: a server that keeps its weights is an error before anything is drawn.
func TestWeightsAreRefused(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"success":false,"message":"no such folder"}`)
	}))
	defer s.Close()
	f, _ := newFleet(t, &policy{model: load(t)}, s.URL)
	_, err := f.Sample(t.Context(), requests())
	expect.Error(t, err, "no such folder", s.URL)
}

// TestEndpointsAreMissing: servers that take no weights or no adapters are named, with how to start them.
func TestEndpointsAreMissing(t *testing.T) {
	for engine, want := range map[string]string{fleet.SGLang: "takes no weights", fleet.VLLM: "--enable-lora"} {
		for _, status := range []int{http.StatusNotFound, http.StatusForbidden} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(status)
			}))
			f, err := fleet.New(fleet.Options{Engine: engine, URLs: []string{s.URL}, Folder: t.TempDir(), Retries: -1},
				&noisy{}, load(t).Config, nil, t.Logf)
			expect.OK(t, err)
			_, err = f.Sample(t.Context(), requests())
			if err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "--weight-updates") {
				t.Errorf("%s, %d: %v: want %q", engine, status, err, want)
			}
			s.Close()
		}
	}
}

// TestSampleEnds: the context's cause is the error.
func TestSampleEnds(t *testing.T) {
	address, _ := launch(t)
	f, _ := newFleet(t, &policy{model: load(t)}, address)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := fmt.Errorf("enough")
	cancel(cause)
	if _, err := f.Sample(ctx, requests()); err != cause {
		t.Errorf("%v, want %v", err, cause)
	}
}

// TestOptions: every fault is named.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    fleet.Options
		want string
	}{
		{fleet.Options{}, ""},
		{fleet.Options{Engine: "sglang", URLs: []string{"http://a:1"}}, ""},
		{fleet.Options{URLs: []string{"http://a:1"}}, "no engine samples elsewhere"},
		{fleet.Options{Engine: "other", URLs: []string{"http://a:1"}}, "want sglang"},
		{fleet.Options{Engine: "sglang"}, "one server or more"},
		{fleet.Options{Engine: "sglang", URLs: []string{"a:1"}}, "want an address"},
		{fleet.Options{Engine: "sglang", URLs: []string{"http://a:1", "http://a:1/v1/"}}, "twice"},
	} {
		text := ""
		for _, f := range c.o.Check() {
			text += f.Error()
		}
		if (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%+v: %q, want %q", c.o, text, c.want)
		}
	}
}

// noisy is a policy whose log-probs are always -2, and whose weights are a number.
type noisy struct{ version int }

func (p *noisy) Version() int              { return p.version }
func (p *noisy) Write(folder string) error { return os.MkdirAll(folder, 0o755) }

func (p *noisy) Logps(_, answers [][]int32) (logps [][]float32, err error) {
	for _, a := range answers {
		logps = append(logps, slices.Repeat([]float32{-2}, len(a)))
	}
	return logps, nil
}

// TestNoiseIsNoAlarm: a thousand swaps on a server that rounds to bfloat16, and then one that gives other weights.
func TestNoiseIsNoAlarm(t *testing.T) {
	r, shift := rand.New(rand.NewPCG(1, 2)), 0.0
	address := fake(t, func(_ int, version string, w http.ResponseWriter) {
		var tokens []string
		for range 16 {
			tokens = append(tokens, fmt.Sprintf("[%.6f,3,null]", -2+shift+0.02*r.NormFloat64()))
		}
		fmt.Fprintf(w, `{"meta_info":{"weight_version":%q,"output_token_logprobs":[%s]}}`, version,
			strings.Join(tokens, ","))
	})
	_, tok, err := local.Load(embedded.Name)
	expect.OK(t, err)
	p := &noisy{}
	f := expect.Must(fleet.New(fleet.Options{Engine: fleet.SGLang, URLs: []string{address}, Folder: t.TempDir(),
		Probes: [][]int32{{1, 2}, {3}, {4}, {5}}}, p, load(t).Config, tok, t.Logf))(t)
	one := []rollout.Request{{Sampling: rollout.Sampling{MaxNew: 16, Temperature: 1}, Prompt: []int32{1}}}
	for ; p.version < 1000; p.version++ {
		if _, err := f.Sample(t.Context(), one); err != nil {
			t.Fatalf("swap %d: %v", p.version, err)
		}
	}
	shift = 0.1
	if _, err := f.Sample(t.Context(), one); err == nil || !strings.Contains(err.Error(), "it has other weights") {
		t.Errorf("%v: want an alarm", err)
	}
}

// TestVersionsDoNotGoBack: neither the policy's, nor a server's.
func TestVersionsDoNotGoBack(t *testing.T) {
	twelve := strings.TrimSuffix(strings.Repeat(`[-1,3,null],`, 12), ",")
	first := ""
	address := fake(t, func(_ int, version string, w http.ResponseWriter) {
		if first == "" {
			first = version
		}
		fmt.Fprintf(w, `{"meta_info":{"weight_version":%q,"output_token_logprobs":[%s]}}`, first, twelve)
	})
	p := &policy{model: load(t), version: 7}
	f, _ := newFleet(t, p, address)
	expect.Must(f.Sample(t.Context(), requests()))(t)
	p.version = 9
	_, err := f.Sample(t.Context(), requests())
	expect.Error(t, err, "-v7\": want \"", "-v9\"")
	p.version = 8
	_, err = f.Sample(t.Context(), requests())
	expect.Error(t, err, "the policy's version is 8, but the servers were given 9")
}

// adapters is a server of adapters.
type adapters struct {
	mu    sync.Mutex
	names []string
	fail  bool // the next completion
	gone  []string
}

func (s *adapters) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var q struct {
		Name       string `json:"lora_name"`
		Model      string
		TopK       int      `json:"top_k"`
		MinP       *float64 `json:"min_p"`
		Repetition float64  `json:"repetition_penalty"`
	}
	json.NewDecoder(r.Body).Decode(&q)
	if r.URL.Path == "/v1/completions" && (q.TopK != -1 || q.MinP == nil || *q.MinP != 0 || q.Repetition != 1) {
		w.WriteHeader(http.StatusBadRequest) // it would draw by the model's generation_config.json
		return
	}
	at := slices.Index(s.names, q.Name+q.Model)
	switch {
	case r.URL.Path == "/v1/models":
		var list []string
		for _, name := range s.names {
			list = append(list, fmt.Sprintf(`{"id":%q}`, name))
		}
		fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(list, ","))
	case r.URL.Path == "/v1/load_lora_adapter" && at >= 0:
		w.WriteHeader(http.StatusBadRequest)
	case r.URL.Path == "/v1/load_lora_adapter":
		s.names = append(s.names, q.Name)
	case at < 0:
		w.WriteHeader(http.StatusNotFound)
	case r.URL.Path == "/v1/unload_lora_adapter":
		s.names, s.gone = slices.Delete(s.names, at, at+1), append(s.gone, q.Name)
	case s.fail:
		s.fail = false
		w.WriteHeader(http.StatusBadGateway)
	default:
		fmt.Fprintf(w, `{"model":%q,"choices":[{"token_ids":[3,3],"logprobs":{"token_logprobs":[-1,-1]}}]}`, q.Model)
	}
}

// TestAdaptersOfAServerThatFailed: a server that still has an adapter when it is given that again goes on, and frees
// the ones of before.
func TestAdaptersOfAServerThatFailed(t *testing.T) {
	s := &adapters{}
	server := httptest.NewServer(s)
	defer server.Close()
	_, tok, err := local.Load(embedded.Name)
	expect.OK(t, err)
	p := &noisy{}
	f, err := fleet.New(fleet.Options{Engine: fleet.VLLM, URLs: []string{server.URL}, Folder: t.TempDir(), Retries: -1},
		p, load(t).Config, tok, t.Logf)
	expect.OK(t, err)
	one := requests()[:1]
	one[0].MaxNew = 2
	for ; p.version < 6; p.version++ {
		s.fail = p.version == 3
		expect.Must(f.Sample(t.Context(), one))(t)
	}
	if len(s.names) != 2 || len(s.gone) != 4 {
		t.Errorf("the server has %v and freed %v: want two and four", s.names, s.gone)
	}
	if err := f.Close(); err != nil || len(s.names) != 0 {
		t.Errorf("%v, %v", s.names, err)
	}
}

// TestCloseBesideAHungServer: a server that never answers keeps Close neither for long nor from the other servers.
func TestCloseBesideAHungServer(t *testing.T) {
	t.Parallel()
	good, hung := &adapters{}, &adapters{}
	hangs, asked := make(chan struct{}), make(chan struct{})
	beside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/unload_lora_adapter" {
			close(asked)
			<-hangs
		}
		hung.ServeHTTP(w, r)
	}))
	defer beside.Close()
	defer close(hangs)
	server := httptest.NewServer(good)
	defer server.Close()
	_, tok, err := local.Load(embedded.Name)
	expect.OK(t, err)
	folder := filepath.Join(t.TempDir(), "weights")
	f := expect.Must(fleet.New(fleet.Options{Engine: fleet.VLLM, URLs: []string{beside.URL, server.URL}, Folder: folder,
		Retries: 5}, &noisy{}, load(t).Config, tok, t.Logf))(t)
	few := requests()[:2]
	few[0].MaxNew, few[1].MaxNew = 2, 2
	expect.Must(f.Sample(t.Context(), few))(t)
	err = f.Close()
	expect.Error(t, err, beside.URL, "no reply within 10s; it may keep weights that are used no more")
	<-asked
	if len(good.names) != 0 || len(good.gone) != 1 {
		t.Errorf("the server that answers has %v and freed %v: want none and one", good.names, good.gone)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v: want no folder of weights", err)
	}
}
