package protocol

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/private"
)

// secure is between the agents and the server of a method, which then sees sums of updates alone. An agent that has
// done a task with vectors first says that it is ready, with its public key of the sum. When all have said so, or those
// who are not late, the server names the agents of the sum, and each sends its masked vectors. The method then gets the
// mean as the update of every one of them.
//
// Only the short way from naming to sending can lose a message. The sum is then begun again, as another attempt with
// other masks, by those who are left.
type secure struct {
	Server
	c      *core
	rounds *synchronous  // one of the two is the server
	queue  *asynchronous // with a buffer: a sum makes a step

	sums
	total []uint64 // of the sum under way, [vectors·d]
}

// sums is the head of a snapshot of secure.
type sums struct {
	Ready    []*Update // the agents that wait for a sum, or for its end, in the order they came
	Attempts int       // sums begun; the last is under way if Present is not nil
	Shown    int       // vectors that sums have shown
	Present  []int     // the agents of the sum under way, in order
	Answered []int     // those of them that have sent their masked vectors
}

// fewest is the smallest number of agents of a sum that hides one from the server.
const fewest = 2

func newSecure(inner Server) *secure {
	s := &secure{Server: inner}
	switch inner := inner.(type) {
	case *synchronous:
		s.c, s.rounds = &inner.core, inner
	case *asynchronous:
		s.c, s.queue = &inner.core, inner
	}
	return s
}

func (s *secure) Join(agent int) []Send { return s.settle(s.Server.Join(agent)) }

func (s *secure) Leave(agent int) []Send { return s.settle(s.Server.Leave(agent)) }

// settle forgets agents that the method no longer waits for, and begins the sum again without them.
func (s *secure) settle(sends []Send) []Send {
	before := len(s.Ready)
	s.Ready = slices.DeleteFunc(s.Ready, func(u *Update) bool {
		gone := s.c.Members[u.Agent].Left || s.rounds != nil && !s.rounds.waits(u.Agent)
		if gone && slices.Contains(s.Present, u.Agent) {
			s.Present = nil
		}
		return gone
	})
	if len(s.Ready) == before && s.rounds == nil {
		return sends
	}
	closed, more := s.form()
	if closed.Stepped {
		s.c.closed = closed
	}
	s.measure(s.c.closed.Metrics)
	return append(sends, more...)
}

// waits reports whether the open turn waits for an agent.
func (s *synchronous) waits(agent int) bool {
	return slices.Contains(s.turn.Open, agent) && s.turn.Answers[agent] == nil
}

func (s *secure) Receive(u Update) (Receipt, []Send) {
	receipt, sends := s.receive(u)
	s.measure(receipt.Metrics)
	return receipt, sends
}

func (s *secure) receive(u Update) (Receipt, []Send) {
	switch {
	case u.Kind == Search || !s.c.known(u.Agent) || s.c.Done():
		return s.Server.Receive(u)
	case len(u.Vectors) > 0:
		return s.c.refuse(ReasonKind, "plain vectors, want masked ones: this run makes secure sums"), nil
	case u.Attempt > 0:
		return s.masked(u)
	}
	return s.ready(u)
}

// ready notes that an agent has its vectors.
func (s *secure) ready(u Update) (Receipt, []Send) {
	if refusal, sends, ok := s.expected(&u); !ok {
		return refusal, sends
	}
	if len(u.Key) != private.KeySize {
		return s.c.refuse(ReasonKind, fmt.Sprintf("a key of %d bytes, want %d", len(u.Key), private.KeySize)), nil
	}
	s.c.Members[u.Agent].Joined = true
	i := slices.IndexFunc(s.Ready, func(r *Update) bool { return r.Agent == u.Agent })
	if i < 0 {
		s.Ready = append(s.Ready, &u)
		receipt, sends := s.form()
		receipt.Accepted = true
		return receipt, sends
	}
	same := slices.Equal(s.Ready[i].Key, u.Key)
	s.Ready[i] = &u // it was killed and has done its task again
	switch {
	case !slices.Contains(s.Present, u.Agent):
		return Receipt{Accepted: true}, nil
	case !same:
		s.Present = nil
		receipt, sends := s.form()
		receipt.Accepted = true
		return receipt, sends
	case slices.Contains(s.Answered, u.Agent):
		return Receipt{Accepted: true}, nil
	}
	return Receipt{Accepted: true}, []Send{s.ask(u.Agent)}
}

// expected reports whether the method waits for this work.
func (s *secure) expected(u *Update) (Receipt, []Send, bool) {
	if s.rounds != nil {
		refusal, ok := s.rounds.late(u)
		return refusal, nil, ok
	}
	reason, detail := "", ""
	switch seen := (federated.Mark{Agent: u.Agent, Version: u.Version}); {
	case u.Kind != s.queue.kind:
		reason, detail = ReasonKind, fmt.Sprintf("kind %q, want %s", u.Kind, s.queue.kind)
	case u.Version < 0 || u.Version > s.c.Now || s.old(u):
		reason, detail = federated.ReasonVersion, fmt.Sprintf("version %d at version %d", u.Version, s.c.Now)
	case slices.Contains(s.queue.guard.Seen, seen):
		reason = federated.ReasonDuplicate
		detail = fmt.Sprintf("agent %d has sent version %d before", u.Agent, u.Version)
	default:
		return Receipt{}, nil, true
	}
	return s.c.refuse(reason, detail), s.queue.again(u.Agent, reason, u.Version), false
}

// old reports whether work of an asynchronous method would be too old at the end of the next step.
func (s *secure) old(u *Update) bool {
	return u.Version < s.c.Now+s.queue.size()-s.c.o.Oldest()
}

// form begins a sum if enough agents wait for one, and none is under way.
func (s *secure) form() (Receipt, []Send) {
	if s.Present != nil || len(s.Ready) == 0 {
		return Receipt{}, nil
	}
	var present []int
	for _, u := range s.Ready {
		present = append(present, u.Agent)
	}
	if s.rounds == nil {
		return s.formBuffer(present)
	}
	for _, i := range s.rounds.turn.Open {
		if s.rounds.waits(i) && !slices.Contains(present, i) {
			return Receipt{}, nil
		}
	}
	if len(present) < fewest {
		return s.without(present)
	}
	return Receipt{}, s.begin(present)
}

// formBuffer takes the first agents that fill a step. Work that has become too old meanwhile is done again.
func (s *secure) formBuffer(present []int) (Receipt, []Send) {
	var sends []Send
	s.Ready = slices.DeleteFunc(s.Ready, func(u *Update) bool {
		if s.old(u) {
			present = slices.DeleteFunc(present, func(i int) bool { return i == u.Agent })
			s.c.refuse(federated.ReasonVersion, "")
			sends = append(sends, s.queue.work(u.Agent))
		}
		return s.old(u)
	})
	if len(present) < s.queue.size() {
		return Receipt{}, sends
	}
	return Receipt{}, append(sends, s.begin(present[:s.queue.size()])...)
}

// without closes a round as if these agents were absent.
func (s *secure) without(agents []int) (Receipt, []Send) {
	s.Ready = slices.DeleteFunc(s.Ready, func(u *Update) bool { return slices.Contains(agents, u.Agent) })
	for _, i := range agents {
		s.rounds.turn.Answers[i] = &answer{Refused: true}
	}
	if receipt, sends := s.rounds.advance(); receipt.Stepped || len(sends) > 0 {
		return receipt, sends
	}
	return s.form()
}

// begin begins a sum.
func (s *secure) begin(present []int) (sends []Send) {
	slices.Sort(present)
	s.Attempts++
	s.Present, s.Answered, s.total = present, nil, make([]uint64, s.vectors()*s.c.d)
	for _, i := range present {
		sends = append(sends, s.ask(i))
	}
	return sends
}

// vectors is the number of vectors that each agent has in the sum.
func (s *secure) vectors() int {
	if s.rounds == nil {
		return 1
	}
	names, _ := contents(s.rounds.turn.task)
	return len(names)
}

// ask is an agent's task in the sum under way: its scaled vectors, so that the sum is the weighted mean.
func (s *secure) ask(agent int) Send {
	total, own := 0.0, 0.0
	t := Task{Attempt: s.Attempts, Present: s.Present}
	for _, i := range s.Present {
		u := s.waiting(i)
		t.Kind, t.Step, t.Keys = u.Kind, u.Step, append(t.Keys, u.Key)
		w := s.weight(u)
		if total += w; i == agent {
			own = w
		}
	}
	t.Scale = own / total
	return s.c.send(agent, t)
}

// waiting is what an agent of the sum has said.
func (s *secure) waiting(agent int) *Update {
	return s.Ready[slices.IndexFunc(s.Ready, func(u *Update) bool { return u.Agent == agent })]
}

func (s *secure) weight(u *Update) float64 {
	switch {
	case s.rounds == nil && s.c.o.Method == FedBuff:
		return 1 / math.Sqrt(float64(1+s.c.Now/s.queue.size()-u.Version/s.queue.size()))
	case s.rounds == nil:
		return 1
	case *s.c.o.Weights == "samples" && s.rounds.turn.task.Samples():
		return weightOf(u.Stats)
	}
	return s.rounds.turn.Weights[u.Agent]
}

// masked adds an agent's masked vectors.
func (s *secure) masked(u Update) (Receipt, []Send) {
	s.c.Members[u.Agent].Up += u.Payload(s.c.o.Width())
	switch {
	case s.Present == nil || u.Attempt != s.Attempts || !slices.Contains(s.Present, u.Agent):
		receipt := s.c.refuse(federated.ReasonVersion,
			fmt.Sprintf("attempt %d of a sum, which is not under way", u.Attempt))
		if s.queue != nil && !slices.ContainsFunc(s.Ready, func(r *Update) bool { return r.Agent == u.Agent }) {
			return receipt, []Send{s.queue.work(u.Agent)}
		}
		return receipt, nil
	case slices.Contains(s.Answered, u.Agent):
		return s.c.refuse(federated.ReasonDuplicate, fmt.Sprintf("agent %d has answered this sum before", u.Agent)), nil
	case len(u.Masked) != len(s.total):
		receipt := s.c.refuse(federated.ReasonLength,
			fmt.Sprintf("%d masked numbers, want %d", len(u.Masked), len(s.total)))
		closed, sends := s.repeat([]int{u.Agent})
		receipt.Stepped, receipt.Metrics = closed.Stepped, closed.Metrics
		return receipt, sends
	}
	private.Add(s.total, u.Masked)
	if s.Answered = append(s.Answered, u.Agent); len(s.Answered) < len(s.Present) {
		return Receipt{Accepted: true}, nil
	}
	return s.finish()
}

// repeat begins the sum again without some agents.
func (s *secure) repeat(lost []int) (Receipt, []Send) {
	s.Present = nil
	if s.rounds != nil {
		return s.without(lost)
	}
	s.Ready = slices.DeleteFunc(s.Ready, func(u *Update) bool { return slices.Contains(lost, u.Agent) })
	return s.form()
}

// finish gives the method the mean as the update of every agent of the sum.
func (s *secure) finish() (receipt Receipt, sends []Send) {
	mean, d := private.Decode(s.total), s.c.d
	var updates []Update
	for _, i := range s.Present {
		u := *s.waiting(i)
		for j := range s.vectors() {
			u.Vectors = append(u.Vectors, mean[j*d:(j+1)*d])
		}
		updates = append(updates, u)
	}
	s.Shown += s.vectors()
	s.Ready = slices.DeleteFunc(s.Ready, func(u *Update) bool { return slices.Contains(s.Present, u.Agent) })
	s.Present, s.total = nil, nil
	receipt, sends = s.give(updates)
	_, more := s.form()
	return receipt, append(sends, more...)
}

// give has the method receive updates that have not travelled. Where each gets an answer of its own, all get that after
// the last: the parameters after the step.
func (s *secure) give(updates []Update) (receipt Receipt, sends []Send) {
	last := len(updates) - 1
	for k, u := range updates {
		m := &s.c.Members[u.Agent]
		m.Up -= u.Payload(s.c.o.Width()) // Receive adds it
		down := m.Down
		if receipt, sends = s.Server.Receive(u); s.c.Done() {
			return receipt, sends
		}
		if s.queue != nil && k < last {
			m.Down = down
		}
	}
	for _, u := range updates[:last] {
		if s.queue != nil {
			sends = append(sends, s.queue.work(u.Agent))
		}
	}
	return receipt, sends
}

// measure adds the metrics of secure sums to those of a step.
func (s *secure) measure(values map[string]float64) {
	if values == nil {
		return
	}
	values["sums"], values["attempts"] = float64(s.Shown), float64(s.Attempts)
	if account, ok := s.c.o.Account(s.Shown); ok {
		values["rho"], values["epsilon"] = account.Rho(), account.Epsilon()
	}
}

// Deadline continues without those who are late, if a quorum of the round's agents is there.
func (s *secure) Deadline() (Receipt, []Send) {
	receipt, sends := s.deadline()
	s.measure(receipt.Metrics)
	return receipt, sends
}

func (s *secure) deadline() (Receipt, []Send) {
	switch {
	case s.c.Done() || s.rounds != nil && s.rounds.turn.task.Kind == Search:
		return s.Server.Deadline()
	case s.Present != nil:
		late := slices.DeleteFunc(slices.Clone(s.Present), func(i int) bool { return slices.Contains(s.Answered, i) })
		if s.rounds != nil && len(s.Answered) < s.quorum() {
			return Receipt{}, nil
		}
		return s.repeat(late)
	case s.rounds == nil || len(s.Ready) < s.quorum():
		return Receipt{}, nil
	}
	late := slices.DeleteFunc(slices.Clone(s.rounds.turn.Open), func(i int) bool {
		return !s.rounds.waits(i) || slices.ContainsFunc(s.Ready, func(u *Update) bool { return u.Agent == i })
	})
	return s.without(late)
}

func (s *secure) quorum() int { return max(fewest, number(*s.c.o.Quorum, len(s.rounds.turn.Chosen))) }

// secureHead is the head of a snapshot around that of the method's server.
type secureHead struct {
	Sums   sums
	Method json.RawMessage
}

// State has the sum under way as two vectors for each vector: the upper and the lower halves of its numbers.
func (s *secure) State() (State, error) {
	state, err := s.Server.State()
	if err != nil {
		return state, err
	}
	for j := 0; j*s.c.d < len(s.total); j++ {
		upper, lower := make([]float64, s.c.d), make([]float64, s.c.d)
		for k, x := range s.total[j*s.c.d : (j+1)*s.c.d] {
			upper[k], lower[k] = float64(x>>32), float64(uint32(x))
		}
		state.Vectors[fmt.Sprintf("sum/%d/upper", j)], state.Vectors[fmt.Sprintf("sum/%d/lower", j)] = upper, lower
	}
	return pack(secureHead{s.sums, state.Head}, state.Vectors)
}

func (s *secure) Restore(state State) error {
	var head secureHead
	if err := unpack(state, &head, s.c.d); err != nil {
		return err
	}
	if err := s.Server.Restore(State{head.Method, state.Vectors}); err != nil {
		return err
	}
	s.sums, s.total = head.Sums, nil
	for j := 0; s.Present != nil && j < s.vectors(); j++ {
		upper, err := vector(state.Vectors, fmt.Sprintf("sum/%d/upper", j))
		if err != nil {
			return err
		}
		lower, err := vector(state.Vectors, fmt.Sprintf("sum/%d/lower", j))
		if err != nil {
			return err
		}
		for k := range upper {
			s.total = append(s.total, uint64(upper[k])<<32|uint64(lower[k]))
		}
	}
	return nil
}

// Account is what sums of that number of vectors reveal about an agent, if the run has noise.
func (o Options) Account(sums int) (private.Account, bool) {
	p := o.Privacy
	return private.Account{Sums: sums, Noise: p.Noise, Delta: p.Delta}, p.Noise > 0
}
