package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/federated"
)

// synchronous is the server of a method in rounds. A round has turns: its agents get the same task, and the next turn
// or the next round begins when all of them have answered. Who is refused or late is absent from the rest of the round.
// Its exported fields are a snapshot.
type synchronous struct {
	core
	Method method
	Guards map[string]*federated.Guard // by the kind of a vector
	Turn   turn
	Sums   sums // with secure sums
}

// turn is where a round is.
type turn struct {
	Task    Task
	Number  int   // counts all turns of the run
	Chosen  []int // agents of the round, in order
	Open    []int // agents of the turn, in order
	Answers []*answer
	Weights []float64 // of all agents; an absent one has its weight from before
	Sampled tally     // by the round
}

// answer is what an agent has sent in a turn; nil: nothing yet.
type answer struct {
	Refused bool
	Update  Update    // with the vectors as they count
	Norms   []float64 // of the vectors as they came
}

// method is what a synchronous method does in a round. Its exported fields are in snapshots.
type method interface {
	theta() []float64
	firstTask() Task // of a round; its vectors may have any precision
	// next takes the answers to a task, by agent, nil: absent.
	next(t Task, weights []float64, answers []*Update) outcome
	leave(agent int)
}

// outcome is the next task of a round, or its end.
type outcome struct {
	task    *Task
	values  map[string]float64 // metrics at the end
	refused bool               // the end has no step
	restart bool               // all agents begin with new duals
}

// answerShape are the kinds of the vectors, and the count of the numbers, of an answer.
func answerShape(t Task) (vectors []string, numbers int) {
	switch {
	case t.Kind == Search:
		return nil, 2 * federated.Tries
	case t.Kind == Solve && t.Step == 0:
		return []string{"U", "G"}, 0
	case t.Kind == Solve:
		return []string{"U"}, 0
	}
	return []string{map[Kind]string{Gradient: "Gradient", Train: "Train", Product: "Product"}[t.Kind]}, 0
}

func newSynchronous(c core, start []float64) *synchronous {
	s := &synchronous{core: c, Method: newMethod(c.o, start), Guards: map[string]*federated.Guard{}}
	for _, kind := range []string{"U", "G", "Gradient", "Train", "Product"} {
		s.Guards[kind] = &federated.Guard{Length: c.d, Clip: c.o.Clip, MaxDelay: c.o.DelayLimit()}
	}
	s.Guards["Product"].Clip = 0 // the length of H·v says nothing: v is another each time
	s.Turn.Weights = make([]float64, c.o.Agents)
	if *c.o.Weights == "equal" {
		for i := range s.Turn.Weights {
			s.Turn.Weights[i] = 1
		}
	}
	s.beginRound()
	return s
}

func (s *synchronous) Params() []float64 { return s.Method.theta() }

// beginRound opens a round.
func (s *synchronous) beginRound() []Send {
	s.Turn.Chosen, s.Turn.Sampled = s.choose(), tally{}
	return s.openTurn(s.Method.firstTask(), s.Turn.Chosen)
}

// choose draws the agents of a round.
func (s *synchronous) choose() (chosen []int) {
	want := shareOf(*s.o.Select, len(s.Members))
	for _, i := range rand.New(rand.NewPCG(s.seed, uint64(s.Now))).Perm(len(s.Members)) {
		if !s.Members[i].Left && len(chosen) < want {
			chosen = append(chosen, i)
		}
	}
	slices.Sort(chosen)
	return chosen
}

// openTurn opens a turn for the agents that have not left.
func (s *synchronous) openTurn(t Task, agents []int) (sends []Send) {
	if t.Direction = s.o.roundToWire(t.Direction); t.Params == nil {
		t.Params = s.Turn.Task.Params // the round's
	} else {
		t.Params = s.o.roundToWire(t.Params)
	}
	agents = slices.DeleteFunc(agents, func(i int) bool { return s.Members[i].Left })
	s.Turn.Task, s.Turn.Open, s.Turn.Answers = t, agents, make([]*answer, len(s.Members))
	s.Turn.Number++
	for _, i := range agents {
		if s.Members[i].Joined {
			sends = append(sends, s.send(i, s.taskFor(i)))
		}
	}
	return sends
}

// taskFor is the task of the turn for an agent. A later turn works at the parameters that it has, and an agent that has
// searched along y need not get it again.
func (s *synchronous) taskFor(agent int) Task {
	t, m := s.Turn.Task, s.Members[agent]
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
func (s *synchronous) Join(agent int) (Receipt, []Send) {
	if !s.isMember(agent) {
		return Receipt{}, nil
	}
	s.Members[agent].Joined = true
	t := s.Turn.Task
	switch {
	case s.Done():
		t = Task{Kind: Stop}
	case !s.waits(agent):
		return Receipt{}, nil
	case t.Kind == Solve && t.Step > 0:
		return s.proceedWithout(agent, Receipt{})
	case s.Now == 0 && t.Samples():
		t = s.taskFor(agent) // there is nothing that it could have lost
	}
	return Receipt{}, []Send{s.send(agent, t)}
}

// waits reports whether the open turn waits for an agent. With secure sums it does so until the sum has come.
func (s *synchronous) waits(agent int) bool {
	a := s.Turn.Answers[agent]
	return slices.Contains(s.Turn.Open, agent) && (a == nil || s.endsInSum() && !a.Refused)
}

// proceedWithout continues as if an agent were absent from the turn, whose update has that receipt.
func (s *synchronous) proceedWithout(agent int, receipt Receipt) (Receipt, []Send) {
	s.drop([]int{agent})
	return s.proceed(receipt)
}

// proceed closes the turn if all have answered, and adds to the receipt of the last update what that has led to.
func (s *synchronous) proceed(receipt Receipt) (Receipt, []Send) {
	closed, sends := s.closeIfAnswered()
	receipt.Stepped, receipt.Metrics = closed.Stepped, closed.Metrics
	return receipt, sends
}

// drop makes agents absent from the rest of the round.
func (s *synchronous) drop(agents []int) {
	for _, i := range agents {
		s.Turn.Answers[i] = &answer{Refused: true}
		s.Sums.drop(i)
	}
}

func (s *synchronous) Receive(u Update) (Receipt, []Send) {
	if s.o.Secure && u.Kind != Search && s.isMember(u.Agent) && !s.Done() {
		return s.receiveSecure(u)
	}
	t := s.Turn.Task
	vectors, numbers := answerShape(t)
	if refusal, ok := s.checkOpen(&u); !ok {
		return refusal, nil
	}
	refusal, ok := s.checkArrival(&u, t.Kind, len(vectors), numbers)
	switch {
	case !ok && refusal.Reason == ReasonKind:
		return s.proceedWithout(u.Agent, refusal)
	case !ok:
		return refusal, nil
	}
	return s.proceed(s.countAnswer(u))
}

// countAnswer judges an answer and keeps it.
func (s *synchronous) countAnswer(u Update) Receipt {
	a, m := &answer{Update: u}, &s.Members[u.Agent]
	receipt := s.guardAnswer(a)
	switch {
	case !receipt.Accepted:
		a = &answer{Refused: true} // without its numbers, which may be such that no snapshot can hold them
	case s.Turn.Task.Samples():
		m.Accepted, m.Restart = u.Version, false
	case s.Turn.Task.Kind == Search:
		m.Held = s.Now
	}
	s.Turn.Answers[u.Agent] = a
	return receipt
}

// checkOpen refuses an update that the open turn does not wait for.
func (s *synchronous) checkOpen(u *Update) (Receipt, bool) {
	if !s.isMember(u.Agent) || s.Done() {
		return Receipt{}, true // checkArrival refuses these
	}
	reason, detail := "", ""
	switch t := s.Turn.Task; {
	case u.Version != s.Now:
		reason, detail = federated.ReasonVersion, fmt.Sprintf("round %d, want %d", u.Version, s.Now)
	case u.Kind != t.Kind || u.Step != t.Step:
		reason, detail = federated.ReasonVersion, fmt.Sprintf("%s, step %d of the round, want %s, step %d", u.Kind,
			u.Step, t.Kind, t.Step)
	case !slices.Contains(s.Turn.Open, u.Agent):
		reason, detail = ReasonAgent, fmt.Sprintf("agent %d is not in this turn, want one of %v", u.Agent, s.Turn.Open)
	case !s.waits(u.Agent):
		reason, detail = federated.ReasonDuplicate, fmt.Sprintf("agent %d has answered this turn before", u.Agent)
	default:
		return Receipt{}, true
	}
	s.Members[u.Agent].Up += u.Payload(s.o.Width())
	return s.refuse(reason, detail), false
}

// guardAnswer asks the guards about an answer, and shortens its vectors to the bounds of the turns before: the order of
// arrival within a turn changes nothing.
func (s *synchronous) guardAnswer(a *answer) Receipt {
	receipt := Receipt{Accepted: true}
	vectors, _ := answerShape(s.Turn.Task)
	a.Norms = make([]float64, len(vectors))
	a.Update.Vectors = slices.Clone(a.Update.Vectors)
	for i, kind := range vectors {
		zero := kind != "Gradient" || a.Update.Stats.Flat // else it says that something is wrong
		v := s.Guards[kind].Check(a.Update.Agent, s.Turn.Number, s.Turn.Number, a.Update.Vectors[i], zero)
		if v.Reason != "" {
			return s.refuse(v.Reason, strings.ToLower(kind)+": "+v.Detail)
		}
		if bound := v.Shortened(); bound > 0 {
			receipt.Bound = bound
		}
		a.Update.Vectors[i], a.Norms[i] = v.Used, v.Norm
	}
	if !federated.Finite(a.Update.Numbers) {
		return s.refuse(federated.ReasonFinite, "a number of the line search is not finite")
	}
	return receipt
}

// closeIfAnswered closes the turn if all have answered.
func (s *synchronous) closeIfAnswered() (Receipt, []Send) {
	for _, i := range s.Turn.Open {
		if s.Turn.Answers[i] == nil {
			return Receipt{}, nil
		}
	}
	if s.endsInSum() {
		return s.beginSum()
	}
	return s.closeTurn()
}

// present are the agents that have answered the turn, in order.
func (s *synchronous) present() (agents []int) {
	for _, i := range s.Turn.Open {
		if a := s.Turn.Answers[i]; a != nil && !a.Refused {
			agents = append(agents, i)
		}
	}
	return agents
}

// closeTurn takes the answers of a turn, in the order of agent numbers, to the method.
func (s *synchronous) closeTurn() (Receipt, []Send) {
	t, present := s.Turn.Task, s.present()
	vectors, _ := answerShape(t)
	updates := make([]*Update, len(s.Members))
	for _, i := range present {
		a := s.Turn.Answers[i]
		updates[i] = &a.Update
		for j, kind := range vectors {
			s.Guards[kind].Record(i, s.Turn.Number, s.Turn.Number, a.Norms[j])
		}
		if t.Samples() {
			s.countSamples(i, a.Update.Stats)
		}
	}
	out := s.Method.next(t, s.Turn.Weights, updates)
	for i, m := range s.Members {
		if m.Left { // maybe within the turn, after its answer
			s.Method.leave(i)
		}
	}
	if out.task != nil {
		sends := s.openTurn(*out.task, present)
		if len(s.Turn.Open) == 0 { // nobody will answer
			return s.closeTurn()
		}
		return Receipt{}, sends
	}
	return s.endRound(out, len(present))
}

// countSamples counts an agent's samples of a round.
func (s *synchronous) countSamples(agent int, stats Stats) {
	s.Turn.Sampled.add(stats)
	s.noteBatch(agent, stats)
	if *s.o.Weights == "samples" {
		s.Turn.Weights[agent] = weightOf(stats)
	}
}

// weightOf is an agent's weight by its samples. One that says it has none counts as one: weights must not add up to 0.
func weightOf(stats Stats) float64 { return float64(max(1, stats.Steps)) }

// endRound closes a round.
func (s *synchronous) endRound(out outcome, present int) (Receipt, []Send) {
	s.Now++
	s.Since = s.Turn.Sampled
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
	if s.o.Secure {
		s.measureSums(out.values)
	}
	receipt := Receipt{Stepped: true, Metrics: s.stepMetrics(out.values)}
	if s.Done() {
		return receipt, s.stop()
	}
	return receipt, s.beginRound()
}

// Deadline closes the turn without those who are late, if a quorum has answered: of the round's agents in its first
// turn, and then of those that are still in it.
func (s *synchronous) Deadline() (Receipt, []Send) {
	answered := s.present()
	if s.Sums.Present != nil {
		answered = s.Sums.Answered
	}
	if s.Done() || len(answered) < s.quorum() {
		return Receipt{}, nil
	}
	s.drop(slices.DeleteFunc(slices.Clone(s.Turn.Open), func(i int) bool {
		return slices.Contains(answered, i) || !s.waits(i)
	}))
	return s.closeIfAnswered()
}

func (s *synchronous) quorum() int {
	n := shareOf(*s.o.Quorum, len(s.Turn.Open))
	if s.endsInSum() {
		return max(minSumAgents, n)
	}
	return n
}

func (s *synchronous) Leave(agent int) (Receipt, []Send) {
	if !s.isMember(agent) {
		return Receipt{}, nil
	}
	s.Members[agent].Left = true
	s.Method.leave(agent)
	if s.Done() || !s.waits(agent) || s.Sums.has(agent) {
		return Receipt{}, nil
	}
	return s.proceedWithout(agent, Receipt{})
}

func (s *synchronous) State() (State, error)     { return Pack(s) }
func (s *synchronous) Restore(state State) error { return s.restore(state, s) }
