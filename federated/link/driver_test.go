package link

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// fake is an asynchronous server with momentum: the order of its updates shows in its bits.
type fake struct {
	theta, d []float64
	head     fakeHead
}

type fakeHead struct {
	Version int         `json:"version"`
	Last    map[int]int `json:"last"` // version of each agent's last accepted update
	Tasks   map[int]int `json:"tasks"`
	Refused int         `json:"refused"`
}

func newFake() *fake {
	return &fake{theta: []float64{1, 2, 3}, d: make([]float64, 3), head: fakeHead{Last: map[int]int{},
		Tasks: map[int]int{}}}
}

func (s *fake) task(agent int) []protocol.Send {
	kind := protocol.Gradient
	if s.Done() {
		kind = protocol.Stop
	}
	return []protocol.Send{{Agent: agent, Task: protocol.Task{Kind: kind, Version: s.head.Tasks[agent],
		Params: slices.Clone(s.theta)}}}
}

func (s *fake) Join(agent int) (protocol.Receipt, []protocol.Send) {
	if _, ok := s.head.Tasks[agent]; !ok {
		s.head.Tasks[agent] = s.head.Version
	}
	return protocol.Receipt{}, s.task(agent)
}

func (s *fake) Receive(u protocol.Update) (r protocol.Receipt, sends []protocol.Send) {
	last, ok := s.head.Last[u.Agent]
	switch {
	case ok && u.Version <= last:
		return protocol.Receipt{Reason: "duplicate"}, nil
	case len(u.Vectors) != 1 || len(u.Vectors[0]) != 3:
		s.head.Refused++
		return protocol.Receipt{Reason: "length"}, s.task(u.Agent)
	}
	for i, g := range u.Vectors[0] {
		s.d[i] = 0.9*s.d[i] + 0.1*g
		s.theta[i] += s.d[i] / 3
	}
	s.head.Version++
	s.head.Last[u.Agent], s.head.Tasks[u.Agent] = u.Version, s.head.Version
	return protocol.Receipt{Accepted: true, Stepped: true}, s.task(u.Agent)
}

func (s *fake) Deadline() (protocol.Receipt, []protocol.Send) { return protocol.Receipt{}, nil }

func (s *fake) Leave(agent int) (protocol.Receipt, []protocol.Send) {
	delete(s.head.Tasks, agent)
	return protocol.Receipt{}, nil
}

func (s *fake) Member(int) protocol.Member { return protocol.Member{} }
func (s *fake) Refusals() map[string]int   { return nil }

func (s *fake) Version() int      { return s.head.Version }
func (s *fake) Params() []float64 { return s.theta }
func (s *fake) Done() bool        { return s.head.Version >= 1000 }

func (s *fake) State() (protocol.State, error) {
	head, err := json.Marshal(s.head)
	return protocol.State{Head: head, Vectors: map[string][]float64{"theta": s.theta, "d": s.d}}, err
}

func (s *fake) Restore(from protocol.State) error {
	s.theta, s.d = slices.Clone(from.Vectors["theta"]), slices.Clone(from.Vectors["d"])
	return json.Unmarshal(from.Head, &s.head)
}

// gradient is what an agent sends for a version: it depends on nothing else.
func gradient(agent, version int) protocol.Update {
	x := float64(agent*1000+version) / 7
	return protocol.Update{Agent: agent, Kind: protocol.Gradient, Version: version,
		Vectors: [][]float64{{x, -x / 3, 1 / (x + 1)}}}
}

// driver is a run with three agents whose messages are delivered again until they are acknowledged.
type driver struct {
	t            testing.TB
	dir          string
	options      JournalOptions
	agents       []int          // versions of the tasks that each agent works at, -1 before the first
	acknowledged map[[2]int]int // accepted updates by agent and version
	turn         int
	warnings     []string
}

func newDriver(t testing.TB, every int) *driver {
	w := &driver{t: t, dir: t.TempDir(), agents: []int{-1, -1, -1}, acknowledged: map[[2]int]int{}}
	w.options = JournalOptions{Format: format, Every: every,
		Warn: func(s run.Warning) { w.warnings = append(w.warnings, string(s)) }}
	f, err := run.Create(w.dir, "federated")
	if err == nil {
		err = f.WriteConfig([]byte("{}"))
	}
	if err == nil {
		err = f.Close()
	}
	expect.OK(t, err)
	return w
}

// work opens the folder and lets the agents take turns until the server has that version, or the disk fails.
func (w *driver) work(until int, wrap func(*run.Folder) disk) (*fake, error) {
	folder := expect.Must(run.Open(w.dir))(w.t)
	defer folder.Close()
	server := newFake()
	k, err := openJournal(folder, wrap(folder), server, w.options)
	if err != nil {
		return server, err
	}
	for k.Version() < until {
		if err := w.step(k); err != nil {
			return server, err
		}
	}
	return server, nil
}

// send gives a journal an update as it comes from the network.
func send(k *Journal, u protocol.Update) (r protocol.Receipt, sends []protocol.Send, err error) {
	b, err := k.o.Format.EncodeUpdate(u)
	if err == nil {
		u, err = k.o.Format.DecodeUpdate(b)
	}
	if err != nil {
		return r, nil, err
	}
	return k.Receive(u, b)
}

// step is one agent's turn: it joins, or sends the update of its task.
func (w *driver) step(k *Journal) error {
	agent := w.turn % len(w.agents)
	if w.agents[agent] < 0 {
		_, sends, err := k.Do(Join, agent)
		if err != nil {
			return err
		}
		w.agents[agent] = sends[0].Task.Version
		w.turn++
		return nil
	}
	version := w.agents[agent]
	receipt, sends, err := send(k, gradient(agent, version))
	if err != nil {
		return err
	}
	w.turn++
	switch {
	case receipt.Accepted:
		w.acknowledged[[2]int{agent, version}]++
		w.agents[agent] = sends[0].Task.Version
	case receipt.Reason == "duplicate": // it was written before the kill
		w.acknowledged[[2]int{agent, version}]++
		_, sends, err = k.Do(Join, agent)
		if err == nil {
			w.agents[agent] = sends[0].Task.Version
		}
	}
	return err
}

func plain(f *run.Folder) disk { return f }

// stateOf is a server's state in bytes.
func stateOf(t testing.TB, s protocol.Server) []byte {
	t.Helper()
	state := expect.Must(s.State())(t)
	return expect.Must(EncodeState("", state))(t)
}
