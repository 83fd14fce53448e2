package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/posttrain/posttrain/federated"
)

// synchronous is the server of a method in rounds. A round has turns: its agents get the same task, and the next turn
// or the next round begins when all of them have answered. Who is refused or late is absent from the rest of the round.
type synchronous struct {
	core
	method method
	guards map[string]*federated.Guard // by the name of a vector
	turn   turn
}

// turn is where a round is.
type turn struct {
	task    Task
	Number  int   // counts all turns of the run
	Chosen  []int // agents of the round, in order
	Open    []int // those of the turn, in order
	Answers []*answer
	Weights []float64 // of all agents; those of the absent are from before
	Sampled tally     // by the round
}

// answer is what an agent has sent in a turn; nil: nothing yet.
type answer struct {
	Refused bool
	Update  Update    // with the vectors as they count
	Norms   []float64 // of the vectors as they came
}

// method is what a synchronous method does in a round.
type method interface {
	theta() []float64
	open() Task // of a round; its vectors may have any precision
	// next takes the answers to a task, by agent, nil: absent.
	next(t Task, weights []float64, answers []*Update) outcome
	leave(agent int)
	save() map[string][]float64
	load(rounds int, vectors map[string][]float64) error
	head() any // a pointer to what else a snapshot has
}

// outcome is the next task of a round, or its end.
type outcome struct {
	task    *Task
	values  map[string]float64 // metrics at the end
	refused bool               // the end has no step
	restart bool               // all agents begin with new duals
}

// contents are the names of the vectors, and the count of the numbers, of an answer.
func contents(t Task) (vectors []string, numbers int) {
	switch {
	case t.Kind == Search:
		return nil, 2 * federated.Tries
	case t.Kind == Solve && t.Step == 0:
		return []string{"u", "g"}, 0
	case t.Kind == Solve:
		return []string{"u"}, 0
	}
	return []string{string(t.Kind)}, 0
}

func newSynchronous(c core, start []float64) *synchronous {
	s := &synchronous{core: c, guards: map[string]*federated.Guard{}}
	for _, name := range []string{"u", "g", string(Gradient), string(Train), string(Product)} {
		s.guards[name] = &federated.Guard{Length: c.d, Clip: c.o.Clip, MaxDelay: c.o.Oldest()}
	}
	s.guards[string(Product)].Clip = 0 // the length of H·v says nothing: v is another each time
	switch c.o.Method {
	case FedNPGADMM:
		s.method = newADMM(c.o, start)
	case FedNPG:
		s.method = newNatural(c.o, start)
	case FedPG:
		s.method = &meanGradient{rule: newRule(c.o, start), o: c.o}
	default:
		s.method = newAverage(c.o, start)
	}
	s.turn.Weights = make([]float64, c.o.Agents)
	if *c.o.Weights == "equal" {
		for i := range s.turn.Weights {
			s.turn.Weights[i] = 1
		}
	}
	s.begin()
	return s
}

func (s *synchronous) Params() []float64 { return s.method.theta() }

// begin opens a round.
func (s *synchronous) begin() []Send {
	s.turn.Chosen, s.turn.Sampled = s.choose(), tally{}
	return s.ask(s.method.open(), s.turn.Chosen)
}

// choose draws the agents of a round.
func (s *synchronous) choose() (chosen []int) {
	want := number(*s.o.Select, len(s.Members))
	for _, i := range rand.New(rand.NewPCG(s.seed, uint64(s.Now))).Perm(len(s.Members)) {
		if !s.Members[i].Left && len(chosen) < want {
			chosen = append(chosen, i)
		}
	}
	slices.Sort(chosen)
	return chosen
}

// ask opens a turn.
func (s *synchronous) ask(t Task, agents []int) (sends []Send) {
	if t.Direction = s.o.round(t.Direction); t.Params == nil {
		t.Params = s.turn.task.Params // those of the round
	} else {
		t.Params = s.o.round(t.Params)
	}
	s.turn.task, s.turn.Open, s.turn.Answers = t, agents, make([]*answer, len(s.Members))
	s.turn.Number++
	for _, i := range agents {
		if s.Members[i].Joined {
			sends = append(sends, s.send(i, s.own(i)))
		}
	}
	return sends
}

// own is the task of the turn for an agent. A later turn works at the parameters that it has, and an agent that has
// searched along y need not get it again.
func (s *synchronous) own(agent int) Task {
	t, m := s.turn.task, s.Members[agent]
	switch {
	case !t.Samples():
		t.Params = nil
	case t.Kind == Solve && *s.o.LineSearch == "on" && (m.Held == s.Now-1 ||
		m.Restart && federated.Norm(t.Direction) == 0): // one that has missed the round after a restart needs it
		t.Direction = nil // all know the first one, 0
	}
	return t
}

// Join greets an agent. One that comes back within a turn gets its task again, with all vectors. Where that needs the
// inner steps before, which it has lost, it is absent from the rest of the round.
func (s *synchronous) Join(agent int) []Send {
	if !s.known(agent) {
		return nil
	}
	s.Members[agent].Joined = true
	switch {
	case s.Done():
		return []Send{s.send(agent, Task{Kind: Stop})}
	case !slices.Contains(s.turn.Open, agent) || s.turn.Answers[agent] != nil:
		return nil
	case s.turn.task.Kind == Solve && s.turn.task.Step > 0:
		s.turn.Answers[agent] = &answer{Refused: true}
		var sends []Send
		s.closed, sends = s.advance()
		return sends
	}
	if s.Now == 0 && s.turn.task.Samples() {
		return []Send{s.send(agent, s.own(agent))} // there is nothing that it could have lost
	}
	return []Send{s.send(agent, s.turn.task)}
}

func (s *synchronous) Receive(u Update) (Receipt, []Send) {
	t := s.turn.task
	names, numbers := contents(t)
	if refusal, ok := s.late(&u); !ok {
		return refusal, nil
	}
	refusal, ok := s.arrive(&u, t.Kind, len(names), numbers)
	if !ok {
		return refusal, nil
	}
	a := &answer{Update: u}
	receipt := s.judge(a, names)
	if receipt.Accepted && t.Samples() {
		m := &s.Members[u.Agent]
		m.Accepted, m.Restart = u.Version, false
	}
	if receipt.Accepted && t.Kind == Search {
		s.Members[u.Agent].Held = s.Now
	}
	if !receipt.Accepted {
		a = &answer{Refused: true} // without its numbers, which may be such that no snapshot can hold them
	}
	s.turn.Answers[u.Agent] = a
	closed, sends := s.advance()
	receipt.Stepped, receipt.Metrics = closed.Stepped, closed.Metrics
	return receipt, sends
}

// late refuses an update that the open turn does not wait for.
func (s *synchronous) late(u *Update) (Receipt, bool) {
	if !s.known(u.Agent) || s.Done() {
		return Receipt{}, true // arrive refuses these
	}
	reason, detail := "", ""
	switch t := s.turn.task; {
	case u.Version != s.Now:
		reason, detail = federated.ReasonVersion, fmt.Sprintf("round %d, want %d", u.Version, s.Now)
	case u.Kind != t.Kind || u.Step != t.Step:
		reason, detail = federated.ReasonVersion, fmt.Sprintf("%s, step %d of the round, want %s, step %d", u.Kind,
			u.Step, t.Kind, t.Step)
	case !slices.Contains(s.turn.Open, u.Agent):
		reason, detail = ReasonAgent, fmt.Sprintf("agent %d is not in this turn, want one of %v", u.Agent, s.turn.Open)
	case s.turn.Answers[u.Agent] != nil:
		reason, detail = federated.ReasonDuplicate, fmt.Sprintf("agent %d has answered this turn before", u.Agent)
	default:
		return Receipt{}, true
	}
	s.Members[u.Agent].Up += u.Payload(s.o.Width())
	return s.refuse(reason, detail), false
}

// judge asks the guards about an answer, and shortens its vectors to their bounds, which are those of the turns before:
// the order of arrival within a turn changes nothing.
func (s *synchronous) judge(a *answer, names []string) Receipt {
	receipt := Receipt{Accepted: true}
	a.Norms = make([]float64, len(names))
	a.Update.Vectors = slices.Clone(a.Update.Vectors)
	for i, name := range names {
		zero := name != string(Gradient) || a.Update.Stats.Flat // else it says that something is wrong
		v := s.guards[name].Check(a.Update.Agent, s.turn.Number, s.turn.Number, a.Update.Vectors[i], zero)
		if v.Reason != "" {
			return s.refuse(v.Reason, name+": "+v.Detail)
		}
		if v.Bound > 0 && v.Norm > v.Bound {
			receipt.Bound = v.Bound
		}
		a.Update.Vectors[i], a.Norms[i] = v.Used, v.Norm
	}
	if !federated.Finite(a.Update.Numbers) {
		return s.refuse(federated.ReasonFinite, "a number of the line search is not finite")
	}
	return receipt
}

// advance closes the turn if all have answered.
func (s *synchronous) advance() (Receipt, []Send) {
	for _, i := range s.turn.Open {
		if s.turn.Answers[i] == nil {
			return Receipt{}, nil
		}
	}
	return s.close()
}

// close takes the answers of a turn, in the order of agent numbers, to the method.
func (s *synchronous) close() (Receipt, []Send) {
	t := s.turn.task
	names, _ := contents(t)
	updates, present := make([]*Update, len(s.Members)), []int(nil)
	for _, i := range s.turn.Open {
		a := s.turn.Answers[i]
		if a == nil || a.Refused {
			continue
		}
		updates[i], present = &a.Update, append(present, i)
		for j, name := range names {
			s.guards[name].Record(i, s.turn.Number, s.turn.Number, a.Norms[j])
		}
		if t.Samples() {
			s.sampled(i, a.Update.Stats)
		}
	}
	out := s.method.next(t, s.turn.Weights, updates)
	if out.task != nil {
		sends := s.ask(*out.task, present)
		if len(present) == 0 { // nobody will answer
			return s.close()
		}
		return Receipt{}, sends
	}
	return s.end(out, len(present))
}

// sampled counts an agent's samples of a round.
func (s *synchronous) sampled(agent int, stats Stats) {
	s.turn.Sampled.add(stats)
	s.note(agent, stats)
	if *s.o.Weights == "samples" {
		s.turn.Weights[agent] = weightOf(stats)
	}
}

// weightOf is an agent's weight by its samples. One that says it has none counts as one: weights must not add up to 0.
func weightOf(stats Stats) float64 { return float64(max(1, stats.Steps)) }

// end closes a round.
func (s *synchronous) end(out outcome, present int) (Receipt, []Send) {
	s.Now++
	s.Since = s.turn.Sampled
	s.Samples += s.Since.Steps
	if out.refused {
		s.Refused[ReasonStep]++
	}
	if out.restart {
		for i := range s.Members {
			s.Members[i].Restart = true
		}
	}
	if out.values == nil {
		out.values = map[string]float64{}
	}
	out.values["present"] = float64(present)
	receipt := Receipt{Stepped: true, Metrics: s.measure(out.values)}
	if s.Done() {
		return receipt, s.stop()
	}
	return receipt, s.begin()
}

// Deadline closes the turn without those who are late, if a quorum has answered: of the round's agents in its first
// turn, and then of those that are still in it.
func (s *synchronous) Deadline() (Receipt, []Send) {
	answered := 0
	for _, a := range s.turn.Answers {
		if a != nil && !a.Refused {
			answered++
		}
	}
	if s.Done() || answered < number(*s.o.Quorum, len(s.turn.Open)) {
		return Receipt{}, nil
	}
	return s.close()
}

func (s *synchronous) Leave(agent int) []Send {
	if !s.known(agent) {
		return nil
	}
	s.Members[agent].Left = true
	s.method.leave(agent)
	if s.Done() || !slices.Contains(s.turn.Open, agent) || s.turn.Answers[agent] != nil {
		return nil
	}
	s.turn.Answers[agent] = &answer{Refused: true}
	var sends []Send
	s.closed, sends = s.advance()
	return sends
}

// syncHead is the head of a snapshot.
type syncHead struct {
	Core   core
	Turn   turn
	Task   Task
	Norms  map[string][]float64
	Method any
}

func (s *synchronous) State() (State, error) {
	head := syncHead{s.core, s.turn, s.turn.task, map[string][]float64{}, s.method.head()}
	vectors := s.method.save()
	for name, g := range s.guards {
		head.Norms[name] = g.Norms
	}
	task := s.turn.task
	for name, v := range map[string][]float64{"task/params": task.Params, "task/direction": task.Direction} {
		if v != nil {
			vectors[name] = v
		}
	}
	for i, a := range s.turn.Answers {
		if a == nil || a.Refused {
			continue
		}
		for j, v := range a.Update.Vectors {
			vectors[fmt.Sprintf("answer/%d/%d", i, j)] = v
		}
	}
	return pack(head, vectors)
}

func (s *synchronous) Restore(state State) error {
	head := syncHead{Method: s.method.head()}
	if err := unpack(state, &head, s.d); err != nil {
		return err
	}
	if len(head.Turn.Answers) != len(s.Members) || len(head.Turn.Weights) != len(s.Members) {
		return fmt.Errorf("snapshot: its turn has %d agents, want %d", len(head.Turn.Answers), len(s.Members))
	}
	if err := s.take(head.Core); err != nil {
		return err
	}
	s.turn, s.turn.task = head.Turn, head.Task
	s.turn.task.Params, s.turn.task.Direction = state.Vectors["task/params"], state.Vectors["task/direction"]
	for name, g := range s.guards {
		g.Norms, g.Seen = head.Norms[name], nil
	}
	names, _ := contents(s.turn.task)
	for i, a := range s.turn.Answers {
		if a == nil || a.Refused {
			continue
		}
		for j := range names {
			v, err := vector(state.Vectors, fmt.Sprintf("answer/%d/%d", i, j))
			if err != nil {
				return err
			}
			a.Update.Vectors = append(a.Update.Vectors, v)
		}
	}
	return s.method.load(s.Now, state.Vectors)
}
