package lm

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// letters is a tokenizer whose tokens are letters.
type letters struct{}

func (letters) Decode(ids []int32, _ bool) (text string) {
	for _, id := range ids {
		text += string(rune('a' + id%8))
	}
	return text
}

// tiny are the settings of the tests: rewards are shares of one letter, which any model gives now and then.
func tiny() Agent {
	o := grpo.DefaultOptions()
	o.Prompts, o.GroupSize, o.KL, o.KLCoef = 3, 4, grpo.None, 0
	a := Agent{Options: o, Sampling: rollout.Sampling{MaxNew: 6, Temperature: 1}, Memory: 1e9,
		Optimizer: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MaxNorm: 1},
		Judge: ask.Rule(func(t *ask.Question, text string) ask.Score {
			return ask.Score{Value: float64(strings.Count(text, t.Target)) / float64(len(text)+1)}
		})}
	for i := range 7 {
		a.Tasks = append(a.Tasks, ask.Question{Tokens: []int32{int32(3 + i), int32(9 - i)}, Target: "abc"[i%3 : i%3+1]})
	}
	return a
}

// policy is a tiny model on an engine, opened at its first use.
func policy(t *testing.T, e *backend.Engine) *Policy {
	t.Helper()
	m := testkit.Model(t, "llama")
	p, err := NewPolicy(m, "tiny", "", func() (*Opened, error) {
		l, err := train.NewLearner(e, m, model.GraphOptions{})
		if err != nil {
			return nil, err
		}
		s := rollout.NewCached(e, m.Config, l.Weights, rollout.Options{Decoder: letters{}})
		return &Opened{Learner: l, Sampler: s, Release: func() { s.Close(); l.Close() }}, nil
	})
	expect.OK(t, err)
	t.Cleanup(p.Close)
	return p
}

// TestGradientIsThatOfAStep: agent 0 of a run sends the bits by which the trainer's step of the same seed moves the
// weights, at any step of it. (With an optimiser that has no momentum, the first moment is the gradient.)
func TestGradientIsThatOfAStep(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		p, a := policy(t, e), tiny()
		w, theta := New(p, a, 0, seed), p.start
		var steps [][]float32
		training(t, e, a, func(o *train.Options) {
			o.LearningRate, o.AdamBeta1, o.AdamBeta2, o.MaxGradNorm = 1e-30, 0, 0, 0 // the weights stay
		}, func(l *train.Learner) {
			tensors, _, err := l.Read()
			expect.OK(t, err)
			steps = append(steps, slices.Concat(tensors.First...))
		})
		for step, g := range steps {
			b := expect.Must(w.Collect(t.Context(), theta, step))(t)
			got, err := b.Gradient()
			if err != nil || !slices.Equal(got, federated.Scaled(-1, federated.Widen(g))) {
				t.Fatalf("step %d: %d numbers, %v: want those of the step", step, len(got), err)
			}
		}
	})
}

const seed = 5

// training runs three steps of the trainer's own loop on a tiny model, and shows the learner after each.
func training(t *testing.T, e *backend.Engine, a Agent, change func(*train.Options), show func(*train.Learner)) {
	t.Helper()
	l := expect.Must(train.NewLearner(e, testkit.Model(t, "llama"), model.GraphOptions{}))(t)
	defer l.Close()
	s := rollout.NewCached(e, l.Config(), l.Weights, rollout.Options{Decoder: letters{}})
	defer s.Close()
	loop := &train.Trainer{Learner: l, Seed: seed, Options: train.Defaults(), Source: &grpo.Rollouts{
		Options: a.Options, Sampling: a.Sampling, Judge: a.Judge, Sampler: s, Tasks: a.Tasks}}
	loop.Options.MaxSteps, loop.Options.Schedule = 3, "constant"
	change(&loop.Options)
	loop.OnStep = func(int, int, map[string]float64) { show(l) }
	expect.OK(t, loop.Run(t.Context()))
}

// TestOneAgentAndAdamWAreTraining: with AdamW at the server, a run of one agent makes the weights of the trainer's
// loop, step by step and bit for bit, with a warm-up, weight decay and a bound on the norm, also at steps whose rewards
// are all equal. (An engine that keeps the weights itself, such as xla, adds up otherwise.)
func TestOneAgentAndAdamWAreTraining(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		if !e.Wants.SharedMemory {
			return // it has an update of its own
		}
		a := tiny()
		a.Options.Prompts = 1
		for i := range 4 {
			a.Tasks[i].Target = "" // rewards of 1
		}
		var want [][]float32
		training(t, e, a, func(o *train.Options) {
			o.LearningRate, o.WarmupSteps, o.WeightDecay, o.MaxGradNorm = 1e-2, 2, 0.1, 0.05
		}, func(l *train.Learner) {
			w := expect.Must(l.Flat())(t)
			want = append(want, w)
		})
		if slices.Equal(want[1], want[2]) {
			t.Fatal("the trainer does not move")
		}
		if n := flatSteps(t, policy(t, e), a, len(want)); n == 0 || n == len(want) {
			t.Fatalf("%d of %d steps have equal rewards: want some", n, len(want))
		}
		for _, method := range []string{protocol.FedPG, protocol.AFedPG} {
			p, o := policy(t, e), protocol.Defaults(method, "rule=adamw")
			o.Agents, o.Clip, o.Tensors, o.LR = 1, 0, p.identity.Tensors, new(1e-2)
			o.AdamW.Warmup, o.AdamW.WeightDecay, o.AdamW.MaxNorm = new(2), new(0.1), new(0.05)
			for step, got := range follow(t, o, New(p, a, 0, seed), len(want)) {
				if !slices.Equal(got, want[step]) {
					t.Errorf("%s, step %d: the weights differ from the trainer's", method, step)
				}
			}
		}
	})
}

// flatSteps counts the steps, at the start's weights, whose rewards are all equal.
func flatSteps(t *testing.T, p *Policy, a Agent, steps int) (n int) {
	t.Helper()
	for step := range steps {
		b := expect.Must(New(p, a, 0, seed).Collect(t.Context(), p.start, step))(t)
		if b.Stats().Flat {
			n++
		}
	}
	return n
}

// follow returns the server's parameters after each of n steps of one agent.
func follow(t *testing.T, o protocol.Options, w *Workload, n int) (all [][]float32) {
	t.Helper()
	server := expect.Must(protocol.NewServer(o, w.Start(), seed))(t)
	agent := expect.Must(protocol.NewAgent(0, w, o))(t)
	_, sends := server.Join(0)
	for len(all) < n {
		u := expect.Must(agent.Do(t.Context(), sends[0].Task))(t)
		var r protocol.Receipt
		if r, sends = server.Receive(u); !r.Stepped {
			t.Fatalf("no step: %+v", r)
		}
		all = append(all, federated.Narrow(server.Params()))
	}
	return all
}

// TestFlatBatches: where all rewards are equal, the gradient is 0 and says why, and a run of one agent goes on to its
// end, also by changes of the weights.
func TestFlatBatches(t *testing.T) {
	a := tiny()
	a.Judge = ask.Rule(func(*ask.Question, string) ask.Score { return ask.Score{Value: -1} })
	p := policy(t, backendtest.Go(t))
	w := New(p, a, 0, seed)
	b := expect.Must(w.Collect(t.Context(), p.start, 0))(t)
	if g, err := b.Gradient(); err != nil || !b.Stats().Flat || federated.Norm(g) != 0 {
		t.Errorf("%v, gradient of length %v: %+v", err, federated.Norm(g), b.Stats())
	}
	for _, method := range []string{protocol.AFedPG, protocol.A3C, protocol.FedPG, protocol.FedAvg} {
		o := protocol.Defaults(method)
		o.Agents, o.Tensors = 1, p.identity.Tensors
		for step, got := range follow(t, o, New(p, a, 0, seed), 2) {
			if !slices.Equal(got, federated.Narrow(p.start)) {
				t.Errorf("%s, step %d: the weights have moved", method, step)
			}
		}
	}
	if b, err := New(p, tiny(), 0, seed).Collect(t.Context(), p.start, 0); err != nil || b.Stats().Flat {
		t.Errorf("%v, rewards that differ: %+v", err, b.Stats())
	}
}

// TestValidate: the mean reward of greedy answers to what the agent holds out, the same each time; nothing without any.
func TestValidate(t *testing.T) {
	a := tiny()
	a.Held, a.Tasks = a.Tasks[4:], a.Tasks[:4]
	p := policy(t, backendtest.Go(t))
	w := New(p, a, 1, seed)
	got, err := w.Validate(t.Context(), p.start)
	if err != nil || got.Count != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	want := 0.0
	for _, task := range a.Held {
		request := rollout.Request{Sampling: rollout.Sampling{MaxNew: 6}, Prompt: task.Tokens}
		c := expect.Must(p.opened.Sampler.Sample(t.Context(), []rollout.Request{request}))(t)
		want += a.Judge.(ask.Rule)(&task, c[0].Text).Value / 3
	}
	if math.Abs(got.Means["reward"]-want) > 1e-12 || got.Means["format"] != 1 {
		t.Errorf("%v, want the reward %v", got, want)
	}
	if none, err := New(p, tiny(), 1, seed).Validate(t.Context(), p.start); none != nil || err != nil {
		t.Errorf("%+v, %v: want no validation without items", none, err)
	}
}

// TestSolveEqualsConjugateGradient: within 1e-3, and both with the matrix of the completions' own gradients.
func TestSolveEqualsConjugateGradient(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		w := New(policy(t, e), tiny(), 1, 7)
		collected := expect.Must(w.Collect(t.Context(), w.Start(), 0))(t)
		b := collected.(*batch)
		g := expect.Must(b.Gradient())(t)
		const rho = 0.1
		got := expect.Must(b.Solve(g, rho))(t)
		cg := federated.CG{Iterations: 40, Tolerance: 1e-8}
		want := expect.Must(cg.Solve(federated.Damped(b.Product, rho), g, make([]float64, len(g))))(t)
		if off := federated.Norm(federated.Difference(got, want.X)) / federated.Norm(want.X); off > 1e-3 {
			t.Errorf("the solution is off by %v of its length", off)
		}
		want.X = expect.Must(b.sumOfTokens())(t)
		sum := make([]float64, len(g))
		for _, row := range b.scores {
			federated.AddScaled(sum, math.Sqrt(float64(b.drawn.Tokens)/float64(len(b.scores))), federated.Widen(row))
		}
		if off := federated.Norm(federated.Difference(sum, want.X)) / federated.Norm(want.X); off > 1e-4 {
			t.Errorf("the scores' sum is off by %v of its length", off)
		}
		b.workload.memory, b.scores = 1000, nil
		if _, err := b.Product(g); err == nil || !strings.Contains(err.Error(), "as much memory_gb, or an adapter") {
			t.Errorf("%v: want an error, as the scores take more than the memory", err)
		}
	})
}

// sumOfTokens is the sum of the gradients of all tokens' log-probs.
func (b *batch) sumOfTokens() (sum []float64, err error) {
	var ones [][][]float32
	for _, g := range b.drawn.Groups {
		var rows [][]float32
		for _, answer := range g.Answers {
			rows = append(rows, slices.Repeat([]float32{1}, len(answer)))
		}
		ones = append(ones, rows)
	}
	return sum, b.withParams(context.Background(), b.theta, func(l *grpo.Rollouts) error {
		g, err := l.Trainer().Scores(b.drawn.Groups, ones)
		sum = federated.Widen(g)
		return err
	})
}

// TestAgentsShareAPolicy: work of others between two calls of an agent changes nothing.
func TestAgentsShareAPolicy(t *testing.T) {
	p := policy(t, backendtest.Go(t))
	a, b := New(p, tiny(), 1, 7), New(p, tiny(), 2, 7)
	theta := a.Start()
	alone := expect.Must(a.Collect(t.Context(), theta, 0))(t)
	want := expect.Must(alone.Gradient())(t)
	again := expect.Must(a.Collect(t.Context(), theta, 0))(t)
	expect.Must(b.Collect(t.Context(), federated.Scaled(0.5, theta), 3))(t)
	if got, err := again.Gradient(); err != nil || !slices.Equal(got, want) {
		t.Errorf("another agent's work has changed the gradient, %v", err)
	}
}

// TestDeal: every item has one owner, in turn or by shares that differ; each agent has the least; a seed repeats it.
func TestDeal(t *testing.T) {
	var classes []string
	for i := range 400 {
		classes = append(classes, "abcd"[i%4:i%4+1])
	}
	equal, err := Split{Kind: Equal}.Deal(classes[:7], 3)
	if err != nil || !slices.EqualFunc(equal, [][]int{{0, 3, 6}, {1, 4}, {2, 5}}, slices.Equal[[]int]) {
		t.Errorf("%v, %v: want the items in turn", equal, err)
	}
	s := Split{Kind: Dirichlet, Alpha: 0.3, Least: 20, Seed: 2}
	dealt := expect.Must(s.Deal(classes, 8))(t)
	count, skewed := make([]int, len(classes)), 0
	for _, items := range dealt {
		if len(items) < s.Least || !slices.IsSorted(items) {
			t.Errorf("an agent has %v", items)
		}
		own := map[string]int{}
		for _, i := range items {
			count[i]++
			own[classes[i]]++
		}
		for _, n := range own {
			if n > len(items)/2 {
				skewed++
			}
		}
	}
	if slices.Max(count) != 1 || slices.Min(count) != 1 || skewed < 4 {
		t.Errorf("owners of an item: %d to %d; %d of 8 agents have one class above all: want 1 and 4 or more",
			slices.Min(count), slices.Max(count), skewed)
	}
	given := s.DealAlike(dealt, classes, classes) // others with the same classes
	for agent, items := range given {
		for _, class := range "abcd" {
			n := func(of []int) (n int) {
				for _, i := range of {
					if classes[i] == string(class) {
						n++
					}
				}
				return n
			}
			if got, want := n(items), n(dealt[agent]); max(got-want, want-got) > 1 {
				t.Errorf("agent %d has %d other items of %c, and %d items: want as many, within 1", agent, got, class,
					want)
			}
		}
	}
	if got := (Split{Kind: Equal}).DealAlike(equal, classes[:7], classes[:5]); len(got[0]) != 2 || len(got[2]) != 1 {
		t.Errorf("%v: want 5 other items in turn", got)
	}
	if again, _ := s.Deal(classes, 8); !slices.EqualFunc(again, dealt, slices.Equal[[]int]) {
		t.Error("the same seed deals otherwise")
	}
	even, _ := Split{Kind: Dirichlet, Alpha: 1e6, Seed: 2}.Deal(classes, 8)
	for _, items := range even {
		if len(items) < 45 || len(items) > 55 {
			t.Errorf("a large alpha gives an agent %d of 400 items: want about 50", len(items))
		}
	}
	if _, err := s.Deal(classes[:100], 8); err == nil || !strings.Contains(err.Error(), "at least 20 for each") {
		t.Errorf("too few items: %v", err)
	}
}

// TestRefused: what does not fit is an error, and an engine that does not open stays so.
func TestRefused(t *testing.T) {
	p := policy(t, backendtest.Go(t))
	bad := tiny()
	bad.Options.Prompts = 8
	if _, err := New(p, bad, 0, 1).Collect(t.Context(), p.start, 0); err == nil ||
		!strings.Contains(err.Error(), "there are 7 prompts to train on") {
		t.Errorf("more prompts than tasks: %v", err)
	}
	fails := func() (*Opened, error) { return nil, context.Canceled }
	closed := &Policy{identity: p.identity, start: p.start, open: fails}
	if _, err := New(closed, tiny(), 0, 1).Collect(t.Context(), p.start, 0); err != context.Canceled {
		t.Errorf("an engine that does not open: %v", err)
	}
}
