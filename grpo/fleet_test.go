package grpo

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/fleet"
)

// tinyServer serves the model of a tiny loop.
type tinyServer struct {
	engine  *backend.Engine
	model   *model.Model
	weights []compute.Buffer
	change  func(next *model.Model) // sees weights before they are taken; may be nil
}

// serveTiny serves a model until the test ends.
func serveTiny(t *testing.T, m *model.Model, change func(next *model.Model)) (address string) {
	t.Helper()
	s := &tinyServer{engine: backendtest.Go(t), model: m.Base(), change: change}
	sampler := expect.Must(s.sampler(s.model))(t)
	l := expect.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- serve.New(serve.Options{Name: "tiny", Sampler: sampler, Config: m.Config, Decoder: framed{},
			Reload: s.reload, LoadAdapter: s.adapter, Grace: time.Millisecond}).Run(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		sampler.Close()
	})
	return "http://" + l.Addr().String()
}

// sampler samples from the model; reload changes the weights of the first one.
func (s *tinyServer) sampler(m *model.Model) (*rollout.Cached, error) {
	weights, err := rollout.Upload(s.engine, m, model.GraphOptions{})
	live := func() []compute.Buffer { return weights }
	if s.weights == nil {
		s.weights = weights
		live = func() []compute.Buffer { return s.weights }
	}
	return rollout.NewCached(s.engine, m.Config, live, rollout.Options{Decoder: framed{}}), err
}

func (s *tinyServer) reload(folder string) error {
	next, err := model.Load(folder)
	if err != nil {
		return err
	}
	if s.change != nil {
		s.change(next)
	}
	s.weights, err = rollout.Upload(s.engine, next, model.GraphOptions{})
	return err
}

func (s *tinyServer) adapter(folder string) (*serve.Adapter, error) {
	next, err := s.model.LoadAdapter(folder)
	if err != nil {
		return nil, err
	}
	if s.change != nil {
		s.change(next)
	}
	sampler, err := s.sampler(next)
	return &serve.Adapter{Sampler: sampler, Close: sampler.Close}, err
}

// learning is the policy of a loop.
type learning struct{ *Loop }

func (p learning) Version() int { return p.Learner.Version() }

func (p learning) Write(folder string) error {
	return p.Export.Write(folder, p.Learner, "float32")
}

func (p learning) Logps(prompts, answers [][]int32) (logps [][]float32, err error) {
	var groups []Group
	for i, prompt := range prompts {
		groups = append(groups, Group{Group: batch.Group{Prompt: prompt, Answers: [][]int32{answers[i]}}})
	}
	measured, err := (&Trainer{Learner: p.Learner}).Measure(groups, nil)
	for _, m := range measured {
		logps = append(logps, m[0])
	}
	return logps, err
}

// cached is a proxy that answers prompts which it has seen from a server with old weights, as one does whose cache of
// keys and values survives a swap.
func cached(t *testing.T, fresh, old string) (address string) {
	var mu sync.Mutex
	seen, version := map[string]bool{}, ""
	forward := func(to, path string, body []byte) []byte {
		r, err := http.Post(to+path, "application/json", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return nil
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		return text
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		var q struct {
			Prompt  json.RawMessage `json:"input_ids"`
			Version string          `json:"weight_version"`
		}
		json.Unmarshal(body, &q)
		to := fresh
		switch {
		case q.Version != "":
			version = q.Version
		case r.URL.Path == "/generate" && seen[string(q.Prompt)]:
			text := string(forward(old, r.URL.Path, body))
			io.WriteString(w, strings.Replace(text, `"weight_version":""`, `"weight_version":"`+version+`"`, 1))
			return
		case r.URL.Path == "/generate":
			seen[string(q.Prompt)] = true
		}
		w.Write(forward(to, r.URL.Path, body))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// swap lets two tensors of a model change places.
func swap(m *model.Model, a, b string) {
	find := func(part string) *model.Param {
		return m.Params[slices.IndexFunc(m.Params, func(p *model.Param) bool { return strings.Contains(p.Name, part) })]
	}
	x, y := find(a), find(b)
	x.Data, y.Data = y.Data, x.Data
}

// TestWrongSwapsAreNamed: servers that take the weights wrongly are named after the first swap that goes wrong, with
// what may be wrong.
func TestWrongSwapsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		server func(t *testing.T, m *model.Model) string
		want   string
	}{
		"ignored": {func(t *testing.T, m *model.Model) string {
			return serveTiny(t, m, func(next *model.Model) { *next = *model.Init(m.Config, 7) })
		}, "it has other weights"},
		"gate for up": {func(t *testing.T, m *model.Model) string {
			swaps := 0
			return serveTiny(t, m, func(next *model.Model) {
				if swaps++; swaps > 1 {
					swap(next, "gate_proj", "up_proj")
				}
			})
		}, "it has other weights"},
		"twice the update": {func(t *testing.T, m *model.Model) string {
			return serveTiny(t, m, func(next *model.Model) {
				for i, p := range next.Params {
					for k := range p.Data {
						p.Data[k] += p.Data[k] - m.Params[i].Data[k]
					}
				}
			})
		}, "it has other weights"},
		"stale cache": {func(t *testing.T, m *model.Model) string {
			return cached(t, serveTiny(t, m, nil), serveTiny(t, m, nil))
		}, "in a prefix cache"},
	} {
		t.Run(name, func(t *testing.T) {
			l := tiny(t, backendtest.Go(t), newFolder(t))
			l.Train.LearningRate, l.Train.WarmupSteps, l.Validation.Every = 3e-2, 0, 0
			m := model.Init(l.Learner.Config(), 7)
			tinyFleet(t, l, fleet.SGLang, c.server(t, m))
			wantError(t, l.Run(t.Context()), c.want)
			if l.Step() != 1 {
				t.Errorf("step %d: want the run to end after the first update", l.Step())
			}
		})
	}
}

// adapted is the model of the tiny loop with an adapter.
func adapted(t *testing.T) *model.Model {
	t.Helper()
	return expect.Must(adapt(model.Init(testkit.Config(t, "llama"), 7)))(t)
}

func adapt(m *model.Model) (*model.Model, error) {
	modules, err := m.Config.AdapterModules(nil)
	if err != nil {
		return nil, err
	}
	hash, err := m.Hash()
	return m.Adapt(model.LoRA{Rank: 4, Alpha: 8, Modules: modules, Base: hash}, 3), err
}

// tinyFleet lets servers sample for a loop.
func tinyFleet(t *testing.T, l *Loop, engine string, urls ...string) {
	t.Helper()
	f := expect.Must(newTinyFleet(l, engine, fleet.Options{Folder: t.TempDir(), URLs: urls}))(t)
	t.Cleanup(func() { f.Close() })
}

func newTinyFleet(l *Loop, engine string, o fleet.Options) (*fleet.Fleet, error) {
	o.Engine, o.Probes = engine, [][]int32{{2, 32, 4}, {2, 35, 36, 4}, {33, 34}, {2, 40, 41, 42}}
	f, err := fleet.New(o, learning{l}, l.Export.Model.Config, framed{}, nil)
	l.Sampler = f
	return f, err
}

// TestServersEqualTheSampler: a whole run whose completions two servers draw ends with the bits of a run that samples
// by itself. Servers are given whole weights, or adapters.
func TestServersEqualTheSampler(t *testing.T) {
	for engine, m := range map[string]*model.Model{
		fleet.SGLang: model.Init(testkit.Config(t, "llama"), 7), fleet.VLLM: adapted(t)} {
		t.Run(engine, func(t *testing.T) {
			var ends [2][][]float32
			for i := range ends {
				l := tinyOf(t, backendtest.Go(t), m, newFolder(t))
				if i == 1 {
					tinyFleet(t, l, engine, serveTiny(t, m, nil), serveTiny(t, m, nil))
				}
				mustRun(t, l)
				weights := expect.Must(l.Learner.ReadWeights())(t)
				ends[i] = weights
			}
			if !reflect.DeepEqual(ends[0], ends[1]) {
				t.Error("the weights differ")
			}
		})
	}
}

// TestAnotherModelIsNamed: servers of another model than the adapter's end the run before a step, also where nothing
// says on which weights the adapter was trained.
func TestAnotherModelIsNamed(t *testing.T) {
	other := serveTiny(t, model.Init(testkit.Config(t, "llama"), 8), nil)
	for _, want := range []string{"the adapter was trained on other weights than the model's", "another model's"} {
		m := adapted(t)
		if want == "another model's" {
			m.Config.LoRA.Base = ""
		}
		l := tinyOf(t, backendtest.Go(t), m, newFolder(t))
		tinyFleet(t, l, fleet.VLLM, other)
		wantError(t, l.Run(t.Context()), other, want)
		if l.Step() != 0 {
			t.Errorf("step %d: want no step", l.Step())
		}
	}
}

// TestWrongAdaptersAreNamed: as TestWrongSwapsAreNamed, of servers that take adapters.
func TestWrongAdaptersAreNamed(t *testing.T) {
	first := func(next *model.Model, m *model.Model) {
		for i, p := range next.Trained() {
			copy(p.Data, m.Trained()[i].Data)
		}
	}
	m := adapted(t)
	for name, c := range map[string]struct {
		change func(next *model.Model)
		want   string
	}{
		"ignored":     {func(next *model.Model) { first(next, m) }, "it has other weights"},
		"twice alpha": {func(next *model.Model) { next.Config.LoRA.Alpha *= 2 }, "an adapter that counts twice"},
		"gate for up": {func(next *model.Model) {
			swap(next, "gate_proj.lora_A", "up_proj.lora_A")
			swap(next, "gate_proj.lora_B", "up_proj.lora_B")
		}, "it has other weights"},
	} {
		t.Run(name, func(t *testing.T) {
			l := tinyOf(t, backendtest.Go(t), m, newFolder(t))
			l.Train.LearningRate, l.Train.WarmupSteps, l.Validation.Every = 1e-1, 0, 0
			tinyFleet(t, l, fleet.VLLM, serveTiny(t, m, c.change))
			wantError(t, l.Run(t.Context()), c.want)
			if l.Step() > 2 {
				t.Errorf("step %d: want the run to end at its first wrong swap", l.Step())
			}
		})
	}
}
