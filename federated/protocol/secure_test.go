package protocol_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// secureOptions are a method's options with all that secure sums refuse switched off.
func secureOptions(method string) protocol.Options {
	o := options(method)
	o.Wire, o.Clip, o.Secure = "float64", 0, true
	if o.Absent != nil {
		o.Absent = new("drop")
	}
	return o
}

func secureMethods() []string {
	return slices.DeleteFunc(protocol.Methods(), protocol.Asynchronous)
}

func nearly(t *testing.T, name string, got, want []float64, within float64) {
	t.Helper()
	if far := federated.Norm(federated.Difference(got, want)); !(far <= within) {
		t.Errorf("%s: %v, want %v", name, got, want)
	}
}

// A run with secure sums is the run without them, but for the fixed point of the sums.
func TestSecureRunIsThePlainRun(t *testing.T) {
	for _, method := range secureMethods() {
		for _, weights := range []string{"equal", "samples"} {
			o := secureOptions(method)
			o.Weights = new(weights)
			secure := newWorld(t, o)
			o.Secure = false
			plain := newWorld(t, o)
			for plain.step() {
			}
			for secure.step() {
			}
			if !secure.server.Done() {
				t.Fatalf("%s: ended at version %d", method, secure.server.Version())
			}
			for _, r := range secure.log {
				if r.Stepped && r.Metrics["attempts"] == 0 {
					t.Errorf("%s: a step without the metrics of its sums: %v", method, r.Metrics)
				}
			}
			nearly(t, method+" "+weights, secure.server.Params(), plain.server.Params(), 1e-8)
		}
	}
}

// A server restored after every event, also within a sum, continues with the same bits, and the run gets closer to the
// best point.
func TestRestoredSecureServerGoesOn(t *testing.T) {
	for _, method := range secureMethods() {
		restoreAlways(t, method, secureOptions(method))
	}
}

// startSum has all agents ready and asked for their masked vectors.
func (w *world) startSum() {
	w.t.Helper()
	for i := range w.agents {
		if r := w.do(i); !r.Accepted {
			w.t.Fatal(r.Detail)
		}
	}
	for i, tasks := range w.tasks {
		if len(tasks) != 1 || len(tasks[0].Present) != len(w.agents) {
			w.t.Fatalf("agent %d has the tasks %+v, want one of a sum", i, tasks)
		}
	}
}

// A message that is lost costs the sum, which those who are left repeat. The round is then as if the agent were absent.
func TestDropoutRepeatsTheSum(t *testing.T) {
	o := secureOptions(protocol.FedPG)
	lost := map[string]func(*world){
		"late": func(w *world) {
			w.tasks[2] = nil
			for _, i := range []int{0, 1, 3} {
				w.do(i)
			}
			w.take(second(w.server.Deadline()))
		},
		"left": func(w *world) {
			w.do(0)
			w.tasks[2] = nil
			w.take(second(w.server.Leave(2)))
			w.tasks[1], w.tasks[3] = w.tasks[1][1:], w.tasks[3][1:]
		},
		"damaged": func(w *world) {
			u := expect.Must(w.agents[2].Do(t.Context(), w.tasks[2][0]))(t)
			w.tasks[2], u.Masked = nil, u.Masked[1:]
			if r := w.give(u); r.Reason != federated.ReasonLength {
				t.Errorf("%+v, want a refusal for its length", r)
			}
			for _, i := range []int{0, 1, 3} {
				w.tasks[i] = w.tasks[i][1:]
			}
		},
	}
	plainOptions := o
	plainOptions.Secure = false
	plain := newWorld(t, plainOptions)
	for _, i := range []int{0, 1, 3} {
		plain.do(i)
	}
	plain.server.Deadline()
	for name, lose := range lost {
		w := newWorld(t, o)
		w.startSum()
		first := w.tasks[0][0]
		old, _ := w.agents[2].Do(t.Context(), w.tasks[2][0])
		lose(w)
		for _, i := range []int{0, 1, 3} {
			task := w.tasks[i][0]
			if task.Attempt != 2 || !slices.Equal(task.Present, []int{0, 1, 3}) {
				t.Fatalf("%s: agent %d is asked for %+v, want attempt 2 of 0, 1 and 3", name, i, task)
			}
			if r := w.do(i); !r.Accepted || r.Stepped != (i == 3) {
				t.Fatalf("%s: agent %d: %+v", name, i, r)
			}
		}
		nearly(t, name, w.server.Params(), plain.server.Params(), 1e-10)
		if w.server.Version() != 1 || first.Attempt != 1 {
			t.Errorf("%s: version %d", name, w.server.Version())
		}
		if r := w.give(old); r.Accepted {
			t.Errorf("%s: the message of the first attempt counted: %+v", name, r)
		}
	}
}

func second[A, B any](_ A, b B) B { return b }

// An agent that is killed between saying that it is ready and sending makes its vectors again; with its secret it has
// the same key, without it the sum begins again.
func TestKilledAgentTakesPartAgain(t *testing.T) {
	for _, secret := range []byte{3, 99} { // the secret of agent 2 is 3
		w := newWorld(t, secureOptions(protocol.FedNPGADMM))
		w.startSum()
		load := protocol.RandomQuadratic(5, 7).Of(2, 7)
		state := expect.Must(w.agents[2].State())(t)
		want := expect.Must(w.agents[2].Do(t.Context(), w.tasks[2][0]))(t)
		w.agents[2] = expect.Must(protocol.NewAgent(2, load, w.o))(t)
		w.agents[2].Secure(slices.Repeat([]byte{secret}, 32), "run")
		_, err := w.agents[2].Do(t.Context(), w.tasks[2][0])
		expect.Error(t, err, "join again")
		if secret == 3 {
			restored, _ := protocol.NewAgent(2, load, w.o)
			restored.Secure(slices.Repeat([]byte{secret}, 32), "run")
			expect.OK(t, restored.Restore(state))
			if again, err := restored.Do(t.Context(), w.tasks[2][0]); err != nil || !reflect.DeepEqual(again, want) {
				t.Errorf("restored from its state: %+v, %v; want %+v", again, err, want)
			}
		}
		w.tasks[2] = nil
		w.take(second(w.server.Join(2)))
		w.do(2)
		attempt := w.tasks[2][0].Attempt
		if want := map[byte]int{3: 1, 99: 2}[secret]; attempt != want {
			t.Errorf("attempt %d, want %d", attempt, want)
		}
		for i := range w.agents {
			w.tasks[i] = slices.DeleteFunc(w.tasks[i], func(t protocol.Task) bool { return t.Attempt != attempt })
			if r := w.do(i); !r.Accepted {
				t.Error(r.Detail)
			}
		}
		if w.tasks[0][0].Kind != protocol.Search {
			t.Errorf("after the sum: %+v, want a line search", w.tasks[0][0])
		}
	}
}

// Whatever is lost, repeated, late or killed, a run with secure sums continues, and its θ stays near the θ of an
// undisturbed one: a sum with a missing or foreign mask would be off by millions.
func TestSecureChaos(t *testing.T) {
	for _, method := range secureMethods() {
		for seed := range uint64(6) {
			w := newWorld(t, secureOptions(method))
			w.order = rand.New(rand.NewPCG(seed, 5))
			for events := 0; !w.server.Done(); events++ {
				if events == 20_000 {
					t.Fatalf("%s, seed %d: stuck at version %d", method, seed, w.server.Version())
				}
				w.disturb()
			}
			if theta := w.server.Params(); !(federated.Norm(theta) < 100) {
				t.Errorf("%s, seed %d: θ = %v", method, seed, theta)
			}
		}
	}
}

// disturb lets one thing happen, mostly a good one.
func (w *world) disturb() {
	agent := w.order.IntN(len(w.agents))
	switch event := w.order.IntN(40); {
	case event == 0:
		w.tasks[agent] = nil // lost
	case event == 1: // twice
		if len(w.tasks[agent]) > 0 {
			w.tasks[agent] = slices.Insert(w.tasks[agent], 0, w.tasks[agent][0])
		}
	case event == 2:
		w.swap()
	case event == 3:
		w.take(second(w.server.Deadline()))
	case event == 4: // killed, perhaps without its state or secret
		w.kill(agent)
	case event < 8:
		w.take(second(w.server.Join(agent)))
	case len(w.tasks[agent]) > 0:
		task := w.tasks[agent][0]
		w.tasks[agent] = w.tasks[agent][1:]
		u, err := w.agents[agent].Do(w.t.Context(), task)
		if err != nil {
			w.take(second(w.server.Join(agent)))
			return
		}
		if u.Masked != nil && event == 39 {
			u.Masked = u.Masked[1:]
		}
		w.give(u)
	}
}

func (w *world) kill(agent int) {
	state := expect.Must(w.agents[agent].State())(w.t)
	q := protocol.RandomQuadratic(5, 7)
	q.Noise = 0.3
	load := q.Of(agent, 7)
	w.agents[agent] = expect.Must(protocol.NewAgent(agent, load, w.o))(w.t)
	if w.agents[agent].Secure([]byte{byte(w.order.Uint32())}, "run"); w.order.IntN(2) == 0 {
		expect.OK(w.t, w.agents[agent].Restore(state))
	}
	w.tasks[agent] = nil
	w.take(second(w.server.Join(agent)))
}

// Two agents are the fewest: a sum of one would show it.
func TestNoSumOfOne(t *testing.T) {
	o := secureOptions(protocol.FedPG)
	o.Quorum = new(0.1)
	w := newWorld(t, o)
	w.do(1)
	if r, sends := w.server.Deadline(); r.Stepped || len(sends) > 0 {
		t.Errorf("one agent is ready: %+v, %+v", r, sends)
	}
	for _, i := range []int{0, 2, 3} {
		w.take(second(w.server.Leave(i)))
	}
	if w.server.Version() != 1 || !slices.Equal(w.server.Params(), w.start) {
		t.Errorf("all others have left: version %d, want 1 without a step", w.server.Version())
	}
}

func TestSecureServerRefuses(t *testing.T) {
	u := protocol.Update{Agent: 1, Kind: protocol.Gradient, Vectors: [][]float64{{1, 2, 3, 4, 5}}}
	base := append([]byte{9}, make([]byte, federated.KeySize-1)...) // a good key
	cases := map[string]struct {
		reason string
		change func(*protocol.Update)
	}{
		"plain vectors":    {protocol.ReasonKind, func(*protocol.Update) {}},
		"no key":           {protocol.ReasonKind, func(u *protocol.Update) { u.Vectors = nil }},
		"no sum under way": {federated.ReasonVersion, func(u *protocol.Update) { u.Vectors, u.Attempt = nil, 1 }},
		"another round":    {federated.ReasonVersion, func(u *protocol.Update) { u.Vectors, u.Version = nil, 3 }},
		"a stranger":       {protocol.ReasonAgent, func(u *protocol.Update) { u.Vectors, u.Agent = nil, 9 }},
		"a key of low order, which would end all others": {protocol.ReasonKind,
			func(u *protocol.Update) { u.Vectors, u.Key = nil, make([]byte, federated.KeySize) }},
		"numbers that no snapshot can hold": {protocol.ReasonKind,
			func(u *protocol.Update) { u.Vectors, u.Key, u.Numbers = nil, base, []float64{math.NaN()} }},
		"a sum with a key": {protocol.ReasonKind,
			func(u *protocol.Update) { u.Vectors, u.Key, u.Masked = nil, base, make([]uint64, 5) }},
	}
	for name, c := range cases {
		bad := u
		c.change(&bad)
		w := newWorld(t, secureOptions(protocol.FedPG))
		if r, _ := w.server.Receive(bad); r.Accepted || r.Reason != c.reason || r.Detail == "" {
			t.Errorf("%s: %+v, want a refusal for %s", name, r, c.reason)
		}
		if c.reason != protocol.ReasonKind { // else the agent is absent from the round, which does not wait for it
			continue
		}
		for _, i := range []int{0, 2, 3, 0, 2, 3} {
			w.do(i)
		}
		if w.server.Version() != 1 {
			t.Errorf("%s: the round does not end", name)
		}
	}
	w := newWorld(t, secureOptions(protocol.FedPG))
	load := protocol.RandomQuadratic(5, 7).Of(0, 7)
	a := expect.Must(protocol.NewAgent(0, load, w.o))(t)
	if _, err := a.Do(t.Context(), w.tasks[0][0]); err == nil || err.Error() != "secure: agent 0 has no secret" {
		t.Errorf("an agent without a secret: %v", err)
	}
	w.startSum()
	if _, err := w.agents[0].Do(t.Context(), scaled(w.tasks[0][0], 1e9)); err == nil ||
		!strings.Contains(err.Error(), "a secure sum of 4 agents needs each below") {
		t.Errorf("numbers too large for the sum: %v", err)
	}
}

func scaled(task protocol.Task, c float64) protocol.Task {
	task.Scale = c
	return task
}

// The mean of n agents has noise of deviation Noise·Clip/n, and the metrics have the account of all sums.
func TestPrivacyOfARun(t *testing.T) {
	o := secureOptions(protocol.FedPG)
	o.Privacy = federated.Privacy{Clip: 0.5, Noise: 4, Delta: math.Exp(-9)}
	o.Rounds = new(32)
	const d = 3000
	w := newWorldOf(t, o, d)
	for w.step() {
	}
	sum := 0.0
	last := protocol.Receipt{}
	for _, r := range w.log {
		if r.Stepped {
			sum, last = sum+r.Metrics["norm"]/32, r
		}
	}
	if want := 4 * 0.5 / 4 * math.Sqrt(d); math.Abs(sum-want) > 0.02*want {
		t.Errorf("the mean gradient is %.2f long, want noise of %.2f", sum, want)
	}
	rho, epsilon := last.Metrics["rho"], last.Metrics["epsilon"]
	if math.Abs(rho-1) > 1e-9 || math.Abs(epsilon-7) > 1e-9 {
		t.Errorf("ρ = %g, ε = %g after 32 sums of noise 4, want 1 and 7", rho, epsilon)
	}
}

// Masked payload: 8 bytes a number.
func TestSecureBytes(t *testing.T) {
	w := newWorld(t, secureOptions(protocol.FedPG))
	for w.step() {
	}
	metrics := w.log[len(w.log)-1].Metrics
	if metrics["attempts"] != 6 {
		t.Errorf("%g sums in 6 rounds", metrics["attempts"])
	}
	for i := range w.agents {
		up, down := metrics[fmt.Sprintf("bytes_up/%d", i)], metrics[fmt.Sprintf("bytes_down/%d", i)]
		if up != 6*5*8 || down != 6*5*8 {
			t.Errorf("agent %d: %g up, %g down, want 6 rounds of 5 numbers of 8 bytes", i, up, down)
		}
	}
}

func TestSecureFaults(t *testing.T) {
	with := func(method string, change func(*protocol.Options)) protocol.Options {
		o := secureOptions(method)
		change(&o)
		return o
	}
	noise := func(o *protocol.Options) { o.Privacy.Clip, o.Privacy.Noise = 1, 1 }
	type o = protocol.Options
	cases := map[string]o{
		`secure true: a3c steps on single`: with(protocol.A3C, func(*o) {}),
		`secure true: afedpg steps on sin`: with(protocol.AFedPG, func(*o) {}),
		`clip 3: the server sees no singl`: with(protocol.FedPG, func(o *o) { o.Clip = 3 }),
		`absent "hold": with secure the s`: with(protocol.FedNPGADMM, func(o *o) { o.Absent = new("hold") }),
		`select 0.25: a secure sum needs`:  with(protocol.FedPG, func(o *o) { o.Select = new(0.25) }),
		`privacy.noise 1: with privacy.cl`: with(protocol.FedPG, func(o *o) { noise(o); o.Secure = false }),
		`privacy.clip 0: privacy.noise is`: with(protocol.FedPG, func(o *o) { o.Privacy.Noise = 1 }),
		`weights "samples": privacy.noise`: with(protocol.FedAvg, noise),
		`line_search "on": the agents' an`: with(protocol.FedNPG, noise),
	}
	for want, o := range cases {
		faults := o.Check()
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), want) {
			t.Errorf("%v, want %s…", faults, want)
		}
	}
}

// TestMasksAreUsedOnce: an agent masks the same vectors again, but no others for the same sum, whose difference the
// server would see; also with the state of before a kill.
func TestMasksAreUsedOnce(t *testing.T) {
	w := newWorld(t, secureOptions(protocol.FedPG))
	task := w.tasks[2][0]
	w.startSum()
	sum := w.tasks[2][0]
	first := expect.Must(w.agents[2].Do(t.Context(), sum))(t)
	state := expect.Must(w.agents[2].State())(t)
	load := protocol.RandomQuadratic(5, 8).Of(2, 8) // as if its data had changed
	again := expect.Must(protocol.NewAgent(2, load, w.o))(t)
	again.Secure(slices.Repeat([]byte{3}, 32), "run")
	expect.OK(t, again.Restore(state))
	if same, err := again.Do(t.Context(), sum); err != nil || !reflect.DeepEqual(same, first) {
		t.Errorf("the same vectors: %v", err)
	}
	expect.Must(again.Do(t.Context(), task))(t)
	if _, err := again.Do(t.Context(), sum); err == nil || !strings.Contains(err.Error(), "must not be used twice") {
		t.Errorf("other vectors: %v", err)
	}
}

// observer is a server that looks at all that passes.
type observer struct {
	*world
	sums map[int]*sumSeen // by attempt
}

type sumSeen struct {
	task     protocol.Task
	messages map[int][]uint64 // masked, by agent
}

// do has an agent do its newest task.
func (c *observer) do(agent int) {
	c.t.Helper()
	c.deliver(c.make(agent))
}

func (c *observer) make(agent int) (protocol.Task, protocol.Update) {
	c.t.Helper()
	tasks := c.tasks[agent]
	task := tasks[len(tasks)-1]
	u, err := c.agents[agent].Do(c.t.Context(), task)
	if c.tasks[agent] = nil; err != nil {
		c.t.Fatal(err)
	}
	return task, u
}

func (c *observer) deliver(task protocol.Task, u protocol.Update) {
	if u.Masked != nil {
		if c.sums[task.Attempt] == nil {
			c.sums[task.Attempt] = &sumSeen{task, map[int][]uint64{}}
		}
		c.sums[task.Attempt].messages[u.Agent] = u.Masked
	}
	c.give(u)
}

func (c *observer) all(agents ...int) {
	c.t.Helper()
	for _, i := range agents {
		c.do(i)
	}
}

func (c *observer) deadline()       { c.take(second(c.server.Deadline())) }
func (c *observer) leave(agent int) { c.take(second(c.server.Leave(agent))) }

// killed has an agent come back without its state.
func (c *observer) killed(agent int, secret byte) {
	q := protocol.RandomQuadratic(5, 7)
	q.Noise = 0.3
	a := expect.Must(protocol.NewAgent(agent, q.Of(agent, 7), c.o))(c.t)
	a.Secure(slices.Repeat([]byte{secret}, 32), "run")
	c.agents[agent], c.tasks[agent] = a, nil
	c.take(second(c.server.Join(agent)))
}

// learned are the means that the server can read: of the sums whose messages it has from all.
func (c *observer) learned(vectors [][]float64) (means []string, read map[int][]float64) {
	read = map[int][]float64{}
	for attempt := 1; attempt <= len(c.sums); attempt++ {
		s, total, plain := c.sums[attempt], make([]uint64, 5), make([]float64, 5)
		for agent, m := range s.messages {
			federated.AddFixed(total, m)
			federated.AddScaled(plain, 1/float64(len(s.task.Present)), vectors[agent])
		}
		far := federated.Norm(federated.Difference(federated.FromFixed(total), plain))
		switch whole := len(s.messages) == len(s.task.Present); {
		case whole && far < 1e-9:
			means, read[attempt] = append(means, fmt.Sprint(s.task.Present)), federated.FromFixed(total)
		case whole || far < 1:
			c.t.Errorf("attempt %d: %d of %v have sent, and the sum is off by %g", attempt, len(s.messages),
				s.task.Present, far)
		}
	}
	return means, read
}

// TestWhatDropoutsShow: what a curious server learns of the vectors where agent 2 drops out is what the table of
// docs/federated.md says.
func TestWhatDropoutsShow(t *testing.T) {
	text := expect.Read(t, "../../docs/federated.md")
	for row, phase := range map[string]struct {
		do    func(*observer)
		means string
	}{
		"before it is ready | the mean of the others |": {func(c *observer) {
			c.all(0, 1, 3)
			c.deadline()
			c.all(0, 1, 3)
		}, "[0 1 3]"},
		"when it is ready, and no sum is named | the mean of the others |": {func(c *observer) {
			c.all(2, 0, 1)
			c.leave(2)
			c.all(3, 0, 1, 3)
		}, "[0 1 3]"},
		"named in a sum, before it sends | the mean of the others, who repeat the sum with new masks |": {func(c *observer) {
			c.all(0, 1, 2, 3, 0, 1, 3)
			c.deadline()
			c.all(0, 1, 3)
		}, "[0 1 3]"},
		"the same, but its message comes later | the mean with it and the mean of the others, and so its vector |": {
			func(c *observer) {
				c.all(0, 1, 2, 3, 0, 1, 3)
				task, late := c.make(2)
				c.deadline()
				c.all(0, 1, 3)
				c.deliver(task, late)
			}, "[0 1 2 3] [0 1 3]"},
		"the same, with another agent | the mean with both and the mean of the others, and so the sum of the two |": {
			func(c *observer) {
				c.all(0, 1, 2, 3, 0, 1)
				task, late := c.make(2)
				other, later := c.make(3)
				c.deadline()
				c.all(0, 1)
				c.deliver(task, late)
				c.deliver(other, later)
			}, "[0 1 2 3] [0 1]"},
		"when it has sent | the mean with it |": {func(c *observer) {
			c.all(0, 1, 2, 3, 0, 2)
			c.leave(2)
			c.all(1, 3)
		}, "[0 1 2 3]"},
		"named in a sum; it comes back with its secret | the mean with it |": {func(c *observer) {
			c.all(0, 1, 2, 3, 0)
			c.killed(2, 3)
			c.all(2, 1, 2, 3)
		}, "[0 1 2 3]"},
		"named in a sum; it comes back without its secret | the mean with it, by another sum |": {func(c *observer) {
			c.all(0, 1, 2, 3, 0, 1)
			c.killed(2, 99)
			c.all(2, 0, 1, 2, 3)
		}, "[0 1 2 3]"},
		"when it has sent; it comes back without its secret | the mean with it |": {func(c *observer) {
			c.all(0, 1, 2, 3, 0, 1, 2)
			c.killed(2, 99)
			c.all(2, 3)
		}, "[0 1 2 3]"},
		"and all others but one | nothing |": {func(c *observer) {
			c.all(0, 1, 2, 3)
			for _, i := range []int{2, 1, 3} {
				c.do(0)
				c.leave(i)
			}
		}, ""},
	} {
		o := secureOptions(protocol.FedPG)
		o.Quorum = new(0.5)
		c := &observer{newWorld(t, o), map[int]*sumSeen{}}
		o.Secure = false
		var vectors [][]float64
		for i, plain := range newWorld(t, o).agents {
			u := expect.Must(plain.Do(t.Context(), c.tasks[i][0]))(t)
			vectors = append(vectors, u.Vectors[0])
		}
		phase.do(c)
		means, read := c.learned(vectors)
		if got := strings.Join(means, " "); got != phase.means || c.server.Version() != 1 {
			t.Errorf("%s the server, at version %d, has learned %q, want %q", row, c.server.Version(), got, phase.means)
		}
		if phase.means == "[0 1 2 3] [0 1 3]" {
			nearly(t, row, federated.Difference(federated.Scaled(4, read[1]), federated.Scaled(3, read[2])), vectors[2], 1e-9)
		}
		if !strings.Contains(text, "| "+row+"\n") {
			t.Errorf("docs/federated.md lacks the row %q", row)
		}
	}
}
