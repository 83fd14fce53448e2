package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// sum is the smallest asynchronous server: it adds what agents send, and each step is worth one version.
type sum struct {
	theta    []float64
	version  int
	most     int
	last     map[int]int // version of each agent's last accepted update
	task     map[int]int // version of each agent's task
	params   map[int][]float64
	accepted []protocol.Update // accepted, in order

	wait     int                        // agents, numbered from 0, that must be there first
	onStep   func(version int)          // after each update; may be nil
	crash    map[int]bool               // versions after which the server ends without a word
	refuse   func(protocol.Update) bool // may be nil
	idle     bool                       // who is refused gets no task
	refusals int
	late     func() // at a deadline; may be nil
	left     []int
}

func newSum(start []float64, most int) *sum {
	return &sum{theta: slices.Clone(start), most: most, last: map[int]int{}, task: map[int]int{},
		params: map[int][]float64{}}
}

func (s *sum) send(agent int) []protocol.Send {
	if s.Done() {
		return nil
	}
	return []protocol.Send{{Agent: agent, Task: protocol.Task{Kind: protocol.Gradient, Version: s.task[agent],
		Params: s.params[agent], Accepted: -1}}}
}

func (s *sum) Do(what string, agent int) (r protocol.Receipt, sends []protocol.Send, _ error) {
	switch what {
	case Join:
		sends = s.join(agent)
	case Deadline:
		if s.late != nil {
			s.late()
		}
	case Leave:
		s.left = append(s.left, agent)
		delete(s.task, agent)
	}
	return r, sends, nil
}

func (s *sum) join(agent int) (sends []protocol.Send) {
	if _, ok := s.task[agent]; !ok {
		s.task[agent], s.params[agent] = s.version, slices.Clone(s.theta)
		if len(s.task) == s.wait {
			for i := range s.wait {
				sends = append(sends, s.send(i)...)
			}
			return sends
		}
	}
	if len(s.task) < s.wait {
		return nil
	}
	return append(sends, s.send(agent)...)
}

func (s *sum) Receive(u protocol.Update, _ []byte) (protocol.Receipt, []protocol.Send, error) {
	if last, ok := s.last[u.Agent]; ok && u.Version <= last {
		return protocol.Receipt{Reason: "duplicate", Detail: fmt.Sprintf("version %d again", u.Version)}, nil, nil
	}
	if s.refuse != nil && s.refuse(u) {
		s.refusals++
		r := protocol.Receipt{Reason: "nonfinite", Detail: "as the test wants"}
		if s.idle {
			return r, nil, nil
		}
		return r, s.send(u.Agent), nil
	}
	if len(u.Vectors) != 1 || len(u.Vectors[0]) != len(s.theta) {
		return protocol.Receipt{Reason: "length", Detail: "want one vector"}, s.send(u.Agent), nil
	}
	for i, g := range u.Vectors[0] {
		s.theta[i] += 0.1 * g
	}
	s.version++
	s.accepted = append(s.accepted, u)
	s.last[u.Agent], s.task[u.Agent], s.params[u.Agent] = u.Version, s.version, slices.Clone(s.theta)
	if s.onStep != nil {
		s.onStep(s.version)
	}
	if s.crash[s.version] {
		return protocol.Receipt{}, nil, errCrash
	}
	return protocol.Receipt{Accepted: true, Stepped: true}, s.send(u.Agent), nil
}

func (s *sum) Version() int { return s.version }
func (s *sum) Done() bool   { return s.version >= s.most }

var errCrash = errors.New("crash")

// quad is a worker on a quadratic.
type quad struct {
	protocol.Workload
	d int
}

func newQuad(d, number int) (*quad, error) {
	return &quad{Workload: protocol.RandomQuadratic(d, 1).Of(number, 1), d: d}, nil
}

func (q *quad) Secure([]byte, string)          {}
func (q *quad) State() (protocol.State, error) { return protocol.State{}, nil }
func (q *quad) Restore(protocol.State) error   { return nil }

func (q *quad) Do(ctx context.Context, t protocol.Task) (protocol.Update, error) {
	b, err := q.Collect(ctx, t.Params, t.Version)
	if err != nil {
		return protocol.Update{}, err
	}
	g, err := b.Gradient()
	return protocol.Update{Kind: t.Kind, Version: t.Version, Vectors: [][]float64{g}, Stats: b.Stats()}, err
}

// numbered sets the agent's number, which protocol.Agent would do.
type numbered struct {
	*quad
	number int
}

func (n numbered) Do(ctx context.Context, t protocol.Task) (protocol.Update, error) {
	u, err := n.quad.Do(ctx, t)
	u.Agent = n.number
	return u, err
}

// world is a broker, and a server with agents in this process.
type world struct {
	t       *testing.T
	d       int
	run     string
	keys    *Keys
	broker  *Broker
	memory  *sum
	journal *Journal // instead of memory; nil: none
	status  *Status
	numbers map[string]int
	most    int           // agents
	onTick  func(*Status) // may be nil
	revoked []int         // agents, before the server's start

	deadline time.Duration

	mu    sync.Mutex
	lines []string // warnings of the server
}

func newWorld(t *testing.T, d, most int, secure bool) *world {
	t.Helper()
	q := expect.Must(newQuad(d, 0))(t)
	w := &world{t: t, d: d, run: NewRunID(), most: 8, numbers: map[string]int{}, memory: newSum(q.Start(), most)}
	if secure {
		w.keys = expect.Must(OpenKeys(t.TempDir() + "/keys"))(t)
	}
	w.startBroker("127.0.0.1:0")
	return w
}

func (w *world) startBroker(listen string) {
	w.t.Helper()
	b := expect.Must(StartBroker(BrokerOptions{Listen: listen, Run: w.run, Keys: w.keys, Warn: w.warn}))(w.t)
	w.broker = b
	w.t.Cleanup(b.Close)
}

func (w *world) warn(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

func (w *world) warnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lines)
}

// serve runs the server to its end.
func (w *world) serve(ctx context.Context) error {
	q, err := newQuad(w.d, 0)
	if err != nil {
		return err
	}
	var journal eventLog = w.memory
	if w.journal != nil {
		journal = w.journal
	}
	return Serve(ctx, ServerOptions{
		Broker: w.broker,
		Format: Format{Run: w.run, Type: Float32, D: w.d}, Agents: w.most, Config: "a: b\n",
		Identity: q.Workload.Identity(), Journal: journal, Warn: w.warn,
		Numbers: w.numbers, Deadline: w.deadline, Revoked: w.revoked,
		StoreNumber: func(name string, number int) error { w.numbers[name] = number; return nil },
		Tick: func(s *Status) {
			if w.status = s; w.onTick != nil {
				w.onTick(s)
			}
		},
	})
}

// agent makes the options of an agent.
func (w *world) agent(name string) AgentOptions {
	w.t.Helper()
	o := AgentOptions{Server: w.broker.URL(), Name: name, Dir: w.t.TempDir(),
		Build: func(number int, _ string) (Worker, int, error) {
			q, err := newQuad(w.d, number)
			return numbered{q, number}, w.d, err
		},
		Say: func(string, ...any) {}, Warn: w.warn}
	if w.keys != nil {
		c := expect.Must(w.keys.Invite(w.run, name, o.Server))(w.t)
		o.Credentials = &c
	}
	return o
}

// wholeTest is a context that ends a little ahead of the time that go test gives: how long a run takes depends on what
// else the machine does.
func wholeTest(t *testing.T) (context.Context, context.CancelFunc) {
	if end, limited := t.Deadline(); limited {
		return context.WithDeadline(t.Context(), end.Add(-10*time.Second))
	}
	return context.WithCancel(t.Context())
}

// finish runs server and agents to the end.
func (w *world) finish(agents ...AgentOptions) {
	w.t.Helper()
	ctx, stop := wholeTest(w.t)
	defer stop()
	w.memory.wait = len(agents)
	ends := make(chan error, len(agents)+1)
	for _, o := range agents {
		go func() { ends <- RunAgent(ctx, o) }()
	}
	go func() { ends <- w.serve(ctx) }()
	for range len(agents) + 1 {
		if err := <-ends; err != nil {
			w.t.Errorf("%v; warnings %q", err, w.warnings())
			stop()
		}
	}
}
