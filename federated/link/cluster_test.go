package link

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// cluster is a server of a method with three agents.
type cluster struct {
	t      *testing.T
	o      protocol.Options
	format Format
	agents []*protocol.Agent
	every  int // updates from one snapshot of a journal to the next, also within a round; 0: none
}

const size = 5

// newCluster has secure sums if the method's name follows the word secure.
func newCluster(t *testing.T, method string) *cluster {
	method, secure := strings.CutPrefix(method, "secure ")
	p := &cluster{t: t, o: protocol.Defaults(method), format: Format{Run: method, Type: Float32, D: size}}
	p.o.Agents = 3
	if method == protocol.FedNPGADMM { // with all that its options add
		p.o.Damping, p.o.LineSearch, p.o.Clip = new(0.1), new("on"), 3
	}
	if p.o.Secure = secure; secure {
		p.o.Clip = 0
		if p.o.Absent != nil {
			p.o.Absent = new("drop")
		}
	}
	if protocol.Asynchronous(method) {
		p.o.Updates = new(25)
	} else {
		p.o.Rounds = new(7)
	}
	for i := range p.o.Agents {
		a := expect.Must(protocol.NewAgent(i, p.workload(i), p.o))(t)
		a.Secure(bytes.Repeat([]byte{byte(i)}, 32), method)
		p.agents = append(p.agents, a)
	}
	return p
}

func (p *cluster) workload(agent int) protocol.Workload {
	o := protocol.RandomQuadratic(size, 3)
	o.Noise = 0.1
	return o.Of(agent, 4)
}

func (p *cluster) server() protocol.Server {
	s := expect.Must(protocol.NewServer(p.o, p.workload(0).Start(), 5))(p.t)
	return s
}

// caller is what agents talk to: a Journal, or a server in memory.
type caller interface {
	Do(what string, agent int) (protocol.Receipt, []protocol.Send, error)
	Receive(protocol.Update, []byte) (protocol.Receipt, []protocol.Send, error)
	Done() bool
}

type inMemory struct{ protocol.Server }

func (m inMemory) Do(_ string, agent int) (r protocol.Receipt, sends []protocol.Send, _ error) {
	r, sends = m.Server.Join(agent)
	return r, sends, nil
}

func (m inMemory) Receive(u protocol.Update, _ []byte) (protocol.Receipt, []protocol.Send, error) {
	r, sends := m.Server.Receive(u)
	return r, sends, nil
}

// work has the agents work, first come first served, until the run ends or most updates have been received. travel is
// the way of tasks and updates.
func (p *cluster) work(c caller, tasks []protocol.Send, most int, travel func(any) any) (left []protocol.Send) {
	for ; most > 0 && !c.Done() && len(tasks) > 0; most-- {
		next := tasks[0]
		task := travel(next.Task).(protocol.Task)
		u := expect.Must(p.agents[next.Agent].Do(context.Background(), task))(p.t)
		u = travel(u).(protocol.Update)
		b := expect.Must(p.format.EncodeUpdate(u))(p.t)
		k, stored := c.(*Journal)
		if stored {
			u = expect.Must(p.format.DecodeUpdate(b))(p.t)
		}
		_, more, err := c.Receive(u, b)
		if err == nil && stored && p.every > 0 && most%p.every == 0 {
			err = k.Snapshot()
		}
		expect.OK(p.t, err)
		tasks = append(tasks[1:], more...)
	}
	return tasks
}

func (p *cluster) join(c caller) (tasks []protocol.Send) {
	for i := range p.agents {
		_, more, err := c.Do(Join, i)
		expect.OK(p.t, err)
		tasks = append(tasks, more...)
	}
	return tasks
}

// byWire sends a task or update as bytes.
func (p *cluster) byWire(message any) any {
	switch m := message.(type) {
	case protocol.Task:
		return expect.Must(p.format.DecodeTask(expect.Must(p.format.EncodeTask(m))(p.t)))(p.t)
	case protocol.Update:
		return expect.Must(p.format.DecodeUpdate(expect.Must(p.format.EncodeUpdate(m))(p.t)))(p.t)
	}
	return nil
}

// TestEveryMethod: with each method, a run through files and bytes that is opened again after every few updates ends in
// the bits of one in memory, and so does a replay, which gives every snapshot.
func TestEveryMethod(t *testing.T) {
	for _, method := range append(protocol.Methods(), "secure fednpg-admm", "secure fedavg", "secure fednpg") {
		t.Run(method, func(t *testing.T) {
			p := newCluster(t, method)
			bare := p.server()
			p.work(inMemory{bare}, p.join(inMemory{bare}), math.MaxInt, func(m any) any { return m })

			p = newCluster(t, method)
			p.every = 4
			dir := newDriver(t, 0).dir
			var tasks []protocol.Send
			server := p.server()
			for first := true; first || !server.Done(); first = false {
				folder := expect.Must(run.Open(dir))(t)
				server = p.server()
				k := expect.Must(OpenJournal(folder, server, JournalOptions{Format: p.format}))(t)
				if first {
					tasks = p.join(k)
				}
				tasks = p.work(k, tasks, 7, p.byWire)
				folder.Close()
			}
			if a, b := stateOf(t, bare), stateOf(t, server); !bytes.Equal(a, b) {
				t.Errorf("in memory %.600s\nkept %.600s", a, b)
			}
			if r := replayOn(t, dir, p.format, p.server()); !r.same() || len(r.Found) < 3 ||
				r.Params != Hash(bare.Params()) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestSnapshotsOfRounds: where a version is a round, Every counts rounds, and not their updates.
func TestSnapshotsOfRounds(t *testing.T) {
	p := newCluster(t, protocol.FedNPGADMM)
	folder := expect.Must(run.Open(newDriver(t, 0).dir))(t)
	defer folder.Close()
	k := expect.Must(OpenJournal(folder, p.server(), JournalOptions{Format: p.format, Every: 3}))(t)
	p.work(k, p.join(k), math.MaxInt, p.byWire)
	var at []int
	all, err := folder.All()
	for _, c := range all {
		at = append(at, c.Step)
	}
	if err != nil || !slices.Equal(at, []int{3, 6}) {
		t.Errorf("snapshots of versions %v of 7, want 3 and 6: %v", at, err)
	}
}

// TestHostileUpdates: whatever a server refuses, it can store its state.
func TestHostileUpdates(t *testing.T) {
	spoil := map[string]func(u *protocol.Update) [][]float64{
		"vectors": func(u *protocol.Update) [][]float64 { return u.Vectors },
		"numbers": func(u *protocol.Update) [][]float64 { return [][]float64{u.Numbers} },
	}
	for _, method := range protocol.Methods() {
		for what, parts := range spoil {
			t.Run(method+"/"+what, func(t *testing.T) { newCluster(t, method).sabotage(parts) })
		}
	}
}

// sabotage has agent 0 send numbers that are not finite, and extreme ones, in some parts of its updates. A snapshot
// follows each update.
func (p *cluster) sabotage(parts func(*protocol.Update) [][]float64) {
	folder := expect.Must(run.Open(newDriver(p.t, 0).dir))(p.t)
	defer folder.Close()
	k := expect.Must(OpenJournal(folder, p.server(), JournalOptions{Format: p.format}))(p.t)
	p.every = 1
	tasks, sent := p.join(k), 0
	p.work(k, tasks, 12, func(m any) any {
		u, ok := m.(protocol.Update)
		if !ok || u.Agent != 0 {
			return m
		}
		u.Stats.Return, u.Stats.Steps = -1e100, 1<<40
		for _, v := range parts(&u) {
			for i := range v {
				v[i] = []float64{math.NaN(), math.Inf(1), -math.MaxFloat32}[sent%3]
			}
		}
		sent++
		return u
	})
}
