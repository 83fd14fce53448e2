// Package protocol has both sides of the federated methods: the server, which owns the parameters θ, and the agents,
// which own their environment or data. Neither knows how messages travel: a simulation on a virtual clock, processes on
// a network and the replay of a journal all drive the same code.
//
// Glossary: a [Task] is what the server asks of one agent; an [Update] is the agent's answer; a version counts the
// server's parameters (0 is the start), in synchronous methods it is the round; a receipt says what the server did with
// an update.
//
// The pipeline:
//
//  1. [Server].Join makes an agent known and returns its first tasks.
//  2. [Agent].Do does a task with its [Workload] and returns an update.
//  3. [Server].Receive checks the update (see [federated.Guard]), applies it, and returns a receipt and the next tasks.
//  4. [Server].Deadline closes a synchronous round without those who are late.
//
// A server is deterministic: the same calls in the same order give the same bits. [Simulation] runs all of this in one
// process.
package protocol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Kind says what a task asks for, and so what its update holds.
type Kind string

// The kinds of tasks.
const (
	Gradient Kind = "gradient" // sample under Params; send g, an ascent direction of the return
	Solve    Kind = "solve"    // FedNPG-ADMM: sample under Params; send u = y_i + λ_i/ρ and g, in later inner steps u
	Product  Kind = "product"  // send H·v at the parameters and samples of the round, for v = Direction
	Search   Kind = "search"   // send KL and gain of θ + Scale·0.8^j·Direction, j = 0 … 9, on the round's samples
	Train    Kind = "train"    // train locally from Params; send the weights after it less Params
	Stop     Kind = "stop"     // the run has ended; there is no answer
)

// Known reports whether it is one of them.
func (k Kind) Known() bool {
	return slices.Contains([]Kind{Gradient, Solve, Product, Search, Train, Stop}, k)
}

// Task is what the server asks of one agent. The slices belong to the server: an agent does not write to them.
type Task struct {
	Kind    Kind `json:"kind"`
	Version int  `json:"version"` // of Params; an update names it
	Step    int  `json:"step"`    // within a round: inner rounds of ADMM, products of conjugate gradient
	Attempt int  `json:"attempt"` // counts the secure sums of the run, with those that were repeated; else 0

	Accepted int     `json:"accepted"`          // last round whose update of this agent counts, -1: none; see [Agent]
	Restart  bool    `json:"restart,omitempty"` // of ADMM: the agent forgets its dual and direction
	Scale    float64 `json:"scale,omitempty"`   // of Search, and of a secure sum

	Validate bool `json:"validate,omitempty"` // the agent measures Params on its held-out items, if it is a [Validator]

	// Of a secure sum: this agent's Vectors for the task before, times Scale, masked. See [Options].
	Present []int    `json:"present,omitempty"` // the agents of the sum, in order
	Keys    [][]byte `json:"keys,omitempty"`    // their public keys

	// [d] θ or θ̃. Product, Search and later steps of Solve use the parameters of the round: nil, except for an agent
	// that comes back within the round.
	Params []float64 `json:"-"`
	// [d] y of Solve and Search, v of Product. nil in Solve: 0 in round 0 and after a restart, else the direction of
	// the last Search, which the agent has.
	Direction []float64 `json:"-"`
}

// Send is a task with the number of the agent that it goes to.
type Send struct {
	Agent int
	Task  Task
}

// Update is an agent's answer to a task.
type Update struct {
	Agent   int  `json:"agent"`
	Kind    Kind `json:"kind"`
	Version int  `json:"version"` // of the task
	Step    int  `json:"step"`
	Attempt int  `json:"attempt"`

	Stats Stats `json:"stats"`

	Vectors [][]float64 `json:"-"` // each [d], by kind: {g}, {u, g}, {H·v}, none for Search, {change of the weights}
	Numbers []float64   `json:"numbers,omitempty"`

	// With secure sums an agent first sends its Key for the Vectors that it keeps, and then answers the task of their
	// sum with Masked.
	Key    []byte   `json:"key,omitempty"`
	Masked []uint64 `json:"-"` // Vectors in fixed point with masks, joined
}

// Stats say what an agent's samples were. They are the only facts about its data that leave it.
type Stats struct {
	Steps    int     `json:"steps"`    // time steps, or tokens
	Episodes int     `json:"episodes"` // that ended, or completions
	Return   float64 `json:"return"`   // mean undiscounted return of these episodes, or mean reward; 0 without episodes

	// No sample is better than another, as all rewards of every group are equal; or the loss has no slope at any of
	// them. Vectors of zeros are right then, and count like any others.
	Flat bool `json:"flat,omitempty"`

	Validation *Validation `json:"validation,omitempty"` // of a task that asks for it
}

// Validation is what an agent has measured on items of its own that it does not train on. The items stay with it.
type Validation struct {
	Count int                `json:"count"` // items
	Means map[string]float64 `json:"means"` // over the items, by name, such as reward
}

// String lists the means, such as "reward 0.231, utility 0.400 (25 items)".
func (v *Validation) String() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(v.Means)) {
		words = append(words, fmt.Sprintf("%s %.3f", name, v.Means[name]))
	}
	return fmt.Sprintf("%s (%d items)", strings.Join(words, ", "), v.Count)
}

// Receipt says what the server did with an update.
type Receipt struct {
	Accepted bool    `json:"accepted"`
	Reason   string  `json:"reason,omitempty"` // of a refusal: a Reason constant, of here or of package federated
	Detail   string  `json:"detail,omitempty"` // the refusal in words, with the value found and the one wanted
	Bound    float64 `json:"bound,omitempty"`  // the norm that a longer gradient was shortened to; 0: it was not

	// Stepped reports whether θ has a new version because of this update; Metrics are then its metrics by name:
	// version, delay, alpha, norm, direction_norm, kl, search, refused, return, samples, ….
	Stepped bool               `json:"stepped"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Server is the server's side of a method. It is not safe for concurrent use.
type Server interface {
	// Join makes an agent known, or greets one that comes back, and returns its tasks, and the receipt of a round that
	// this closes, as Leave does. A second Join of an agent
	// without an update between them repeats its task, with all vectors; asynchronous methods send the newest
	// parameters.
	Join(agent int) (Receipt, []Send)
	// Receive checks and applies an update and returns the tasks that follow from it. After a refusal an asynchronous
	// method has a new task for the agent as soon as there are parameters that its work was not refused at; in a
	// synchronous one the agent is absent from the rest of the round.
	Receive(u Update) (Receipt, []Send)
	// Deadline closes the open round of a synchronous method with the agents that have answered, if they are a quorum.
	// Asynchronous methods ignore it.
	Deadline() (Receipt, []Send)
	// Leave removes an agent from the run for good.
	Leave(agent int) (Receipt, []Send)

	Version() int      // of Params: updates accepted, or rounds closed
	Params() []float64 // [d] θ, which belongs to the server
	Done() bool        // the run's rounds, updates or samples are used up

	Member(agent int) Member
	Refusals() map[string]int // updates, by reason

	// State is all that the server needs to continue, and Restore takes it back. A restored server continues with the
	// same bits.
	State() (State, error)
	Restore(State) error
}

// ErrStuck says that no agent has a task and the run has not ended: each has sent what was refused at the newest
// parameters, and would send the same again.
var ErrStuck = errors.New("no agent has work left")

// Identity says what an agent trains. Server and agents must agree in all of it.
type Identity struct {
	Protocol int      `json:"protocol"` // version of the messages: [Version]
	Task     string   `json:"task"`     // such as control/cartpole
	Tensors  []Tensor `json:"tensors"`  // the parameters in their order in θ
	Base     string   `json:"base"`     // SHA-256 of what is not trained, such as a base model; "": nothing
}

// Version of the protocol. It changes when an older agent could misread a message.
const Version = 1

// Tensor is a named part of θ.
type Tensor struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	Type  string `json:"type"` // that the workload computes in: float64, float32, bfloat16

	NoDecay bool `json:"no_decay,omitempty"` // AdamW's weight decay leaves it alone
}

// Workload is one agent's environment or data, with the arithmetic of its model. A workload whose samples come from the
// policy has a [Natural] batch and keeps the promises of the tests in package lm; a workload without, such as
// preference pairs, has no natural gradients.
type Workload interface {
	Identity() Identity
	// Start returns θ_0, which every agent and the server compute alike from the run's seed.
	Start() []float64
	// Collect samples under params. The draws depend only on the agent, the run's seed and version, so an agent that
	// was killed and asked again sends the same numbers. The batch stays valid until the next Collect.
	Collect(ctx context.Context, params []float64, version int) (Batch, error)
}

// Learner is a workload that learns for itself what it never sends, such as a critic.
type Learner interface {
	// State is what it has learned. Restore takes it back; after an error the workload is as it was.
	State() (State, error)
	Restore(State) error
}

// Validator is a workload with items that it does not train on.
type Validator interface {
	// Validate measures params on these items; nil without any. Equal arguments give equal numbers. A mean that is no
	// finite number, as a model that has diverged may have, is left out of the update.
	Validate(ctx context.Context, params []float64) (*Validation, error)
}

// Batch is what an agent has sampled under some parameters θ.
type Batch interface {
	Stats() Stats
	// Gradient is the ascent direction of the return at θ, [d].
	Gradient() ([]float64, error)
	// Train trains locally on the samples from θ and returns the change of the weights.
	Train(ctx context.Context, how Local) ([]float64, error)
}

// Natural is a batch of samples of the policy, as natural gradients need them.
type Natural interface {
	// Product is H·v, H the Hessian at θ of the mean over the samples of KL(π_θ‖π), the Fisher matrix.
	Product(v []float64) ([]float64, error)
	// Search evaluates θ + scale·direction for each scale: the mean KL(π_θ‖π), and the gain, the mean over the samples
	// of ratio·advantage less that at θ.
	Search(direction []float64, scales []float64) (kl, gain []float64, err error)
}

// Solver is a batch that need not be asked for products one by one.
type Solver interface {
	// Solve is (H + ρI)⁻¹·right, with the H of Product.
	Solve(right []float64, rho float64) ([]float64, error)
}

// CheckParams wants d finite parameters, none larger than that.
func CheckParams(params []float64, d int, largest float64) error {
	if len(params) != d {
		return fmt.Errorf("%d parameters: want %d", len(params), d)
	}
	for i, x := range params {
		if !(math.Abs(x) <= largest) {
			return fmt.Errorf("parameter %d is %v: want a finite number", i, x)
		}
	}
	return nil
}

// CheckLength wants a vector of d numbers.
func CheckLength(v []float64, d int) error {
	if len(v) != d {
		return fmt.Errorf("a vector of %d numbers: want %d", len(v), d)
	}
	return nil
}

// Local says how an agent trains for itself (FedAvg, FedPPO).
type Local struct {
	Epochs    int     // over the samples
	Minibatch int     // samples of a step
	LR        float64 // of Adam
	Clip      float64 // of PPO's ratio
	Entropy   float64 // weight of the policy's entropy
}
