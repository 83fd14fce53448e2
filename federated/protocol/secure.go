package protocol

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/federated"
)

// With secure sums a turn whose answers are vectors has two parts. An agent that has done the task first says that it
// is ready, with its public key of the sum. When all have said so, or those who are not late, the server names the
// agents of the sum, and each sends its masked vectors. The method then gets the mean as the answer of every one of
// them.
//
// Only the short way from naming to sending can lose a message. The sum is then begun again, as another attempt with
// other masks, by those who are left.

// sums are the secure sums of a run.
type sums struct {
	Attempts int        // sums begun; the last is under way if Present is not nil
	Shown    int        // vectors that sums have shown
	Present  []int      // the agents of the sum under way, in order
	Answered []int      // the present agents that have sent their masked vectors
	Total    fixedPoint // of these, [vectors·d]
}

// has reports whether an agent has sent its part of the sum under way. It counts whatever becomes of the agent: without
// it the sum would begin again, and the messages that are on their way would show the first one, too.
func (s *sums) has(agent int) bool { return s.Present != nil && slices.Contains(s.Answered, agent) }

// drop ends the sum under way if the agent is in it.
func (s *sums) drop(agent int) {
	if slices.Contains(s.Present, agent) {
		s.Present = nil
	}
}

// fixedPoint are numbers in fixed point, in JSON their bytes.
type fixedPoint []uint64

// MarshalJSON writes them.
func (f fixedPoint) MarshalJSON() ([]byte, error) {
	b, err := binary.Append(nil, binary.LittleEndian, []uint64(f))
	if err != nil {
		return nil, err
	}
	return json.Marshal(b)
}

// UnmarshalJSON reads them.
func (f *fixedPoint) UnmarshalJSON(text []byte) error {
	var b []byte
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	*f = make(fixedPoint, len(b)/8)
	_, err := binary.Decode(b, binary.LittleEndian, []uint64(*f))
	return err
}

// minSumAgents is the smallest number of agents of a sum that hides one from the server.
const minSumAgents = 2

// endsInSum reports whether the open turn ends in a secure sum.
func (s *synchronous) endsInSum() bool { return s.o.Secure && s.Turn.Task.Kind != Search }

// vectorCount is the number of vectors that each agent has in the sum.
func (s *synchronous) vectorCount() int {
	all, _ := answerShape(s.Turn.Task)
	return len(all)
}

func (s *synchronous) receiveSecure(u Update) (Receipt, []Send) {
	if u.Attempt > 0 {
		return s.addMasked(u)
	}
	if refusal, ok := s.checkOpen(&u); !ok {
		return refusal, nil
	}
	fault := ""
	switch err := federated.CheckSumKey(u.Key); {
	case len(u.Vectors) > 0:
		fault = "plain vectors, want masked ones: this run makes secure sums"
	case len(u.Numbers)+len(u.Masked) > 0:
		fault = fmt.Sprintf("%d numbers and %d masked ones with a key, want none", len(u.Numbers), len(u.Masked))
	case err != nil:
		fault = fmt.Sprintf("a key of %d bytes: %s, want one of X25519", len(u.Key), err)
	default:
		return s.markReady(u)
	}
	return s.proceedWithout(u.Agent, s.refuse(ReasonKind, fault))
}

// markReady notes that an agent has its vectors. One that was killed has done its task again; what it has sent for the
// sum under way still counts.
func (s *synchronous) markReady(u Update) (Receipt, []Send) {
	s.Members[u.Agent].Joined = true
	if s.Sums.has(u.Agent) {
		return Receipt{Accepted: true}, nil
	}
	before := s.Turn.Answers[u.Agent]
	s.Turn.Answers[u.Agent] = &answer{Update: u}
	if slices.Contains(s.Sums.Present, u.Agent) {
		if slices.Equal(before.Update.Key, u.Key) {
			return Receipt{Accepted: true}, []Send{s.send(u.Agent, s.summand(u.Agent))}
		}
		s.Sums.drop(u.Agent) // begun again, with the other key
	}
	return s.proceed(Receipt{Accepted: true})
}

// beginSum begins the sum of a turn that all have answered, unless it is under way. One agent makes no sum: it is
// absent.
func (s *synchronous) beginSum() (_ Receipt, sends []Send) {
	present := s.present()
	switch {
	case len(present) < minSumAgents:
		s.drop(present)
		return s.closeTurn()
	case s.Sums.Present != nil:
		return Receipt{}, nil
	}
	s.Sums.Attempts++
	s.Sums.Present, s.Sums.Answered, s.Sums.Total = present, nil, make(fixedPoint, s.vectorCount()*s.d)
	for _, i := range present {
		sends = append(sends, s.send(i, s.summand(i)))
	}
	return Receipt{}, sends
}

// summand is an agent's task in the sum under way: its scaled vectors, so that the sum is the weighted mean.
func (s *synchronous) summand(agent int) Task {
	total := 0.0
	t := Task{Kind: s.Turn.Task.Kind, Step: s.Turn.Task.Step, Attempt: s.Sums.Attempts, Present: s.Sums.Present}
	for _, i := range s.Sums.Present {
		total += s.weight(i)
		t.Keys = append(t.Keys, s.Turn.Answers[i].Update.Key)
	}
	t.Scale = s.weight(agent) / total
	return t
}

func (s *synchronous) weight(agent int) float64 {
	if *s.o.Weights == "samples" && s.Turn.Task.Samples() {
		return weightOf(s.Turn.Answers[agent].Update.Stats)
	}
	return s.Turn.Weights[agent]
}

// addMasked adds an agent's masked vectors.
func (s *synchronous) addMasked(u Update) (Receipt, []Send) {
	s.Members[u.Agent].Up += u.Payload(s.o.Width())
	switch {
	case s.Sums.Present == nil || u.Attempt != s.Sums.Attempts || !slices.Contains(s.Sums.Present, u.Agent):
		return s.refuse(federated.ReasonVersion,
			fmt.Sprintf("attempt %d of a sum, which is not under way", u.Attempt)), nil
	case s.Sums.has(u.Agent):
		return s.refuse(federated.ReasonDuplicate, fmt.Sprintf("agent %d has answered this sum before", u.Agent)), nil
	case len(u.Masked) != len(s.Sums.Total):
		return s.proceedWithout(u.Agent, s.refuse(federated.ReasonLength,
			fmt.Sprintf("%d masked numbers, want %d", len(u.Masked), len(s.Sums.Total))))
	}
	federated.AddFixed(s.Sums.Total, u.Masked)
	if s.Sums.Answered = append(s.Sums.Answered, u.Agent); len(s.Sums.Answered) < len(s.Sums.Present) {
		return Receipt{Accepted: true}, nil
	}
	return s.endSum()
}

// endSum closes the turn with the mean as the answer of every agent of the sum.
func (s *synchronous) endSum() (receipt Receipt, sends []Send) {
	mean, present := federated.FromFixed(s.Sums.Total), s.Sums.Present
	s.Sums.Shown += s.vectorCount()
	s.Sums.Present, s.Sums.Total = nil, nil
	for _, i := range present {
		u := s.Turn.Answers[i].Update
		u.Vectors = slices.Collect(slices.Chunk(mean, s.d))
		receipt = s.countAnswer(u)
	}
	closed, sends := s.closeTurn()
	receipt.Stepped, receipt.Metrics = closed.Stepped, closed.Metrics
	return receipt, sends
}

// measureSums adds the metrics of secure sums to the metrics of a step.
func (s *synchronous) measureSums(values map[string]float64) {
	values["sums"], values["attempts"] = float64(s.Sums.Shown), float64(s.Sums.Attempts)
	if account, ok := s.o.Account(s.Sums.Shown); ok {
		values["rho"], values["epsilon"] = account.Rho(), account.Epsilon()
	}
}

// Account is what sums of that number of vectors reveal about an agent, if the run has noise.
func (o Options) Account(sums int) (federated.Account, bool) {
	p := o.Privacy
	return federated.Account{Sums: sums, Noise: p.Noise, Delta: p.Delta}, p.Noise > 0
}
