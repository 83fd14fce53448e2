package protocol

import (
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/federated"
)

// Why a server refuses an update whose numbers it does not look at; package federated has the other reasons.
const (
	ReasonAgent = "agent" // it is no agent of the run, or has left
	ReasonKind  = "kind"  // it answers another kind of task, or lacks vectors or numbers
	ReasonEnded = "ended" // the run is over
	ReasonStep  = "step"  // of a round: no step along its direction is good
)

// NewServer makes the server of a method. start is θ_0, which the server copies; seed draws the agents of a round.
func NewServer(o Options, start []float64, seed uint64) (Server, error) {
	if faults := o.Check(); len(faults) > 0 {
		return nil, faults[0]
	}
	if len(start) == 0 || !federated.Finite(start) {
		return nil, fmt.Errorf("the %d parameters at the start: want at least one, all finite", len(start))
	}
	if err := checkTensors(o.Tensors, len(start)); err != nil {
		return nil, err
	}
	c := core{o: o, d: len(start), seed: seed, Members: make([]Member, o.Agents), Refused: map[string]int{}}
	for i := range c.Members {
		c.Members[i] = Member{Accepted: -1, Held: -1}
	}
	if Asynchronous(o.Method) {
		return newAsynchronous(c, slices.Clone(start)), nil
	}
	return newSynchronous(c, slices.Clone(start)), nil
}

// core is what all servers have. Its exported fields are the head of a snapshot.
type core struct {
	o    Options
	d    int
	seed uint64

	Now      int            // the version
	Members  []Member       // [Agents]
	Samples  int            // of all accepted updates
	Refused  map[string]int // updates, by reason
	Since    tally          // of the updates since the last step
	Flat     int            // updates that count, of samples of which no one is better than another
	Measured bool           // an agent has validated since the last step
}

// Member is an agent as the server knows it.
type Member struct {
	Joined, Left bool
	Accepted     int   // version of its last update that counts, -1: none
	Idle         bool  // refused at the newest parameters: its next task comes with the next version
	Held         int   // version of its last line search, whose direction it knows; -1: that at the start, 0
	Restart      bool  // of ADMM: its next Solve begins with a new dual
	Up, Down     int64 // bytes of vectors and numbers so far, without headers

	Batches    int         // whose updates count
	Validation *Validation // its last one
}

// tally adds up what agents say about their samples.
type tally struct {
	Steps, Episodes int
	Return          float64 // summed over the episodes
}

func (t *tally) add(s Stats) {
	t.Steps += s.Steps
	t.Episodes += s.Episodes
	t.Return += s.Return * float64(s.Episodes)
}

// Payload is the bytes of an update without its header, for numbers of width bytes; masked ones have 8.
func (u *Update) Payload(width int) int64 {
	n := len(u.Numbers)
	for _, v := range u.Vectors {
		n += len(v)
	}
	return int64(width*n + 8*len(u.Masked))
}

// Payload is the bytes of a task without its header, for numbers of width bytes.
func (t *Task) Payload(width int) int64 { return int64(width * (len(t.Params) + len(t.Direction))) }

// Samples reports whether the agent samples for the task, and not only uses the samples of the round.
func (t *Task) Samples() bool {
	return t.Kind != Product && t.Kind != Search && t.Kind != Stop && t.Step == 0 && t.Present == nil
}

func (c *core) Version() int { return c.Now }

// Member implements [Server].
func (c *core) Member(agent int) Member { return c.Members[agent] }

// Refusals implements [Server].
func (c *core) Refusals() map[string]int { return c.Refused }

// Done reports whether a limit of the run is reached.
func (c *core) Done() bool {
	return c.o.Limit() > 0 && c.Now >= c.o.Limit() || c.o.Samples > 0 && c.Samples >= c.o.Samples
}

// isMember reports whether a number belongs to an agent that has not left.
func (c *core) isMember(agent int) bool {
	return agent >= 0 && agent < len(c.Members) && !c.Members[agent].Left
}

// send is a task for an agent, which it counts.
func (c *core) send(agent int, t Task) Send {
	m := &c.Members[agent]
	m.Idle = false
	t.Version, t.Accepted, t.Restart = c.Now, m.Accepted, m.Restart
	t.Validate = c.o.ValidateEvery > 0 && t.Samples() && m.Batches%c.o.ValidateEvery == 0
	m.Down += t.Payload(c.o.Width())
	return Send{agent, t}
}

// stop are the tasks that end all agents.
func (c *core) stop() (sends []Send) {
	for i, m := range c.Members {
		if m.Joined && !m.Left {
			sends = append(sends, c.send(i, Task{Kind: Stop}))
		}
	}
	return sends
}

// checkArrival counts an update, and refuses those whose numbers need no look.
func (c *core) checkArrival(u *Update, kind Kind, vectors, numbers int) (refusal Receipt, ok bool) {
	if !c.isMember(u.Agent) {
		return c.refuse(ReasonAgent, fmt.Sprintf("agent %d, want 0 to %d, one that has not left", u.Agent,
			len(c.Members)-1)), false
	}
	c.Members[u.Agent].Joined = true
	c.Members[u.Agent].Up += u.Payload(c.o.Width())
	switch {
	case c.Done():
		return c.refuse(ReasonEnded, "the run is over"), false
	case u.Kind != kind:
		return c.refuse(ReasonKind, fmt.Sprintf("kind %q, want %s", u.Kind, kind)), false
	case len(u.Vectors) != vectors || len(u.Numbers) != numbers || len(u.Key)+len(u.Masked) > 0:
		return c.refuse(ReasonKind, fmt.Sprintf("%d vectors, %d numbers and %d for secure sums, want %d, %d and 0",
			len(u.Vectors), len(u.Numbers), len(u.Key)+len(u.Masked), vectors, numbers)), false
	}
	return Receipt{}, true
}

func (c *core) refuse(reason, detail string) Receipt {
	c.Refused[reason]++
	return Receipt{Reason: reason, Detail: detail}
}

// accept counts an update whose numbers are good.
func (c *core) accept(u *Update) {
	c.Members[u.Agent].Accepted = u.Version
	c.Samples += u.Stats.Steps
	c.Since.add(u.Stats)
	c.noteBatch(u.Agent, u.Stats)
}

// noteBatch keeps what an agent says of a batch that counts.
func (c *core) noteBatch(agent int, s Stats) {
	m := &c.Members[agent]
	if m.Batches++; s.Flat {
		c.Flat++
	}
	if s.Validation != nil {
		m.Validation, c.Measured = s.Validation, true
	}
}

// stepMetrics completes the metrics of a step.
func (c *core) stepMetrics(values map[string]float64) map[string]float64 {
	values["version"], values["samples"] = float64(c.Now), float64(c.Samples)
	values["steps"], values["episodes"] = float64(c.Since.Steps), float64(c.Since.Episodes)
	if c.Since.Episodes > 0 {
		values["return"] = c.Since.Return / float64(c.Since.Episodes)
	}
	if c.Flat > 0 {
		values["flat"] = float64(c.Flat)
	}
	c.addValidations(values)
	c.Since, c.Measured = tally{}, false
	refused := 0
	for reason, n := range c.Refused {
		values["refused/"+reason] = float64(n)
		refused += n
	}
	values["refused"] = float64(refused)
	for i, m := range c.Members {
		values[fmt.Sprintf("bytes_up/%d", i)] = float64(m.Up)
		values[fmt.Sprintf("bytes_down/%d", i)] = float64(m.Down)
	}
	return values
}

// addValidations adds the means of all agents' last validations, after a step before which an agent has validated.
func (c *core) addValidations(values map[string]float64) {
	if !c.Measured {
		return
	}
	counts := map[string]float64{}
	for _, m := range c.Members {
		if m.Validation == nil {
			continue
		}
		values["eval_count"] += float64(m.Validation.Count)
		for name, mean := range m.Validation.Means {
			counts["eval_"+name] += float64(m.Validation.Count)
			values["eval_"+name] += mean * float64(m.Validation.Count)
		}
	}
	for name, n := range counts {
		values[name] /= n
	}
}

// restore takes a snapshot back into a server, whose core this is.
func (c *core) restore(state State, server any) error {
	if err := state.check(c.d); err != nil {
		return err
	}
	agents := len(c.Members)
	if err := Unpack(state, server); err != nil {
		return err
	}
	if len(c.Members) != agents {
		return fmt.Errorf("snapshot: it has %d agents, want %d", len(c.Members), agents)
	}
	return nil
}
