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

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/backend/backendtest"
	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/fleet"
	"github.com/posttrain/posttrain/serve"
)

// serveTiny serves the model of a tiny loop until the test ends. change sees weights before they are taken; it may be
// nil.
func serveTiny(t *testing.T, m *model.Model, change func(next *model.Model)) (address string) {
	t.Helper()
	e := backendtest.Go(t)
	weights, err := rollout.Upload(e, m)
	if err != nil {
		t.Fatal(err)
	}
	s := rollout.NewCached(e, m.Config, func() []compute.Buffer { return weights }, rollout.Options{Decoder: framed{}})
	reload := func(folder string) error {
		next, err := model.Load(folder)
		if err != nil {
			return err
		}
		if change != nil {
			change(next)
		}
		weights, err = rollout.Upload(e, next)
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- serve.New(serve.Options{Name: "tiny", Sampler: s, Config: m.Config, Decoder: framed{}, Reload: reload,
			Grace: time.Millisecond}).Run(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return "http://" + l.Addr().String()
}

// learning is the policy of a loop.
type learning struct{ *Loop }

func (p learning) Version() int { return p.Learner.Version() }

func (p learning) Write(folder string) error {
	weights, err := p.Learner.ReadWeights()
	if err != nil {
		return err
	}
	return p.Export.Write(folder, weights, "float32")
}

func (p learning) Logps(prompts, answers [][]int32, folder string) (logps [][]float32, err error) {
	var weights []compute.Buffer
	if folder != "" {
		m, err := model.Load(folder)
		if err != nil {
			return nil, err
		}
		if weights, err = p.Learner.Upload(m); err != nil {
			return nil, err
		}
		defer backend.FinalizeAll(weights...)
	}
	var groups []Group
	for i, prompt := range prompts {
		groups = append(groups, Group{Group: batch.Group{Prompt: prompt, Answers: [][]int32{answers[i]}}})
	}
	measured, err := (&Trainer{Learner: p.Learner}).Measure(groups, weights)
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
// what is wrong.
func TestWrongSwapsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		server func(t *testing.T, m *model.Model) string
		want   string
	}{
		"ignored": {func(t *testing.T, m *model.Model) string {
			return serveTiny(t, m, func(next *model.Model) { *next = *model.Init(m.Config, 7) })
		}, "still has the weights before the swap"},
		"gate for up": {func(t *testing.T, m *model.Model) string {
			swaps := 0
			return serveTiny(t, m, func(next *model.Model) {
				if swaps++; swaps > 1 {
					swap(next, "gate_proj", "up_proj")
				}
			})
		}, "neither the new weights nor those before"},
		"twice the update": {func(t *testing.T, m *model.Model) string {
			return serveTiny(t, m, func(next *model.Model) {
				for i, p := range next.Params {
					for k := range p.Data {
						p.Data[k] += p.Data[k] - m.Params[i].Data[k]
					}
				}
			})
		}, "neither the new weights nor those before"},
		"stale cache": {func(t *testing.T, m *model.Model) string {
			return cached(t, serveTiny(t, m, nil), serveTiny(t, m, nil))
		}, "stale prefix cache"},
	} {
		t.Run(name, func(t *testing.T) {
			l := tiny(t, backendtest.Go(t), newFolder(t))
			l.Train.LearningRate, l.Train.WarmupSteps, l.Validation.Every = 3e-2, 0, 0
			m := model.Init(l.Learner.Config(), 7)
			f, err := fleet.New(fleet.Options{Engine: fleet.SGLang, Folder: t.TempDir(), URLs: []string{c.server(t, m)},
				Probes: [][]int32{{2, 32, 4}, {2, 35, 36, 4}, {33, 34}, {2, 40, 41, 42}}}, learning{l}, m.Config,
				framed{}, t.Logf)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			l.Sampler = f
			wantError(t, l.Run(t.Context()), c.want)
			if l.Step() != 1 {
				t.Errorf("step %d: want the run to end after the first update", l.Step())
			}
		})
	}
}

// TestServersEqualTheSampler: a whole run whose completions two servers draw ends with the bits of a run that samples
// by itself.
func TestServersEqualTheSampler(t *testing.T) {
	e := backendtest.Go(t)
	var ends [2][][]float32
	for i := range ends {
		l := tiny(t, e, newFolder(t))
		if i == 1 {
			m := l.Export.Model
			f, err := fleet.New(fleet.Options{Engine: fleet.SGLang, Folder: t.TempDir(), Probes: [][]int32{{2, 32, 4}},
				URLs: []string{serveTiny(t, m, nil), serveTiny(t, m, nil)}},
				learning{l}, m.Config, framed{}, t.Logf)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			l.Sampler = f
		}
		mustRun(t, l)
		weights, err := l.Learner.ReadWeights()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = weights
	}
	if !reflect.DeepEqual(ends[0], ends[1]) {
		t.Error("the weights differ")
	}
}
