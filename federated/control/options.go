package control

import (
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// What an advantage comes from.
const (
	GAE    = "gae"    // generalised advantage estimates with the agent's critic
	Causal = "causal" // discounted rewards from the step on
	Letter = "letter" // the same, discounted from the start of the trajectory
)

// What the sum of the gradients is divided by.
const (
	Timesteps    = "timesteps"
	Trajectories = "trajectories"
)

// Options are an environment, a policy and what an agent does between two messages.
type Options struct {
	Environment  string        `yaml:"environment" want:"cartpole|swimmer|hopper|walker2d|humanoid" default:"cartpole" flag:"environment" help:"cartpole, or with MuJoCo (scripts/install-mujoco.sh) swimmer, hopper, walker2d or humanoid"`
	Steps        int           `yaml:"steps" want:">=1 <=1048576" words:"a whole number from 1 to 1048576" default:"1024" help:"time steps of a batch, which gives one gradient; it begins with a fresh episode, and the last one is cut"`
	Trajectories int           `yaml:"trajectories,omitempty" want:">=0 <=1024" zero:"a batch has steps" help:"whole episodes of a batch, which then has no number of steps; 0: it has control.steps"`
	Hidden       []int         `yaml:"hidden" want:">=1 <=65536" words:"whole numbers from 1 to 65536, such as [64, 64]" default:"32,32" help:"units of the hidden layers, of the policy and of the critic"`
	Activation   string        `yaml:"activation" want:"tanh|relu" default:"relu" paper:"relu" help:"of the hidden layers:"`
	OutputTanh   bool          `yaml:"output_tanh" paper:"true" help:"means of continuous actions go through tanh"`
	LogStd       float64       `yaml:"log_std" help:"logarithm of the deviation of continuous actions at the start; it is trained"`
	Gamma        float64       `yaml:"gamma" want:">0 <=1" default:"0.99" paper:"0.99" help:"discount"`
	Lambda       float64       `yaml:"lambda" want:">=0 <=1" default:"0.95" paper:"0.95" help:"of generalised advantage estimates"`
	Returns      string        `yaml:"returns" want:"gae|causal|letter" default:"gae" paper:"gae" help:"what advantages are made of: gae; causal: rewards from the step on; letter: the same, discounted from the trajectory's start"`
	Normalize    bool          `yaml:"normalize" default:"true" help:"advantages have mean 0 and deviation 1 in a batch"`
	Norm         string        `yaml:"norm" want:"timesteps|trajectories" default:"timesteps" help:"what the sum of a batch's gradients is divided by:"`
	Entropy      float64       `yaml:"entropy" want:">=0" help:"weight of the policy's entropy (a3c: 0.01)"`
	Critic       CriticOptions `yaml:"critic"`
}

// CriticOptions say how an agent trains its critic on a batch, after it has computed the advantages. It is never sent.
type CriticOptions struct {
	LR        float64 `yaml:"lr" want:">0" default:"3e-3" help:"learning rate of Adam"`
	Epochs    int     `yaml:"epochs" want:">=1" default:"2" help:"passes over each batch"`
	Minibatch int     `yaml:"minibatch" want:">=1" default:"128" help:"time steps of a step of Adam"`
}

// DefaultOptions are the options of cartpole.
func DefaultOptions() Options { return config.Default[Options]() }

// mostParameters of a policy. An agent needs about 64 bytes for each.
const mostParameters = 1 << 24

// Check refuses networks that are too large.
func (o Options) Check() []fault.Fault {
	var faults fault.Faults
	if n := (&mlp{sizes: o.Hidden}).parameters(); n > mostParameters {
		faults.Add("hidden", o.Hidden, "%d parameters: want layers with at most %d", n, mostParameters)
	}
	return faults
}
