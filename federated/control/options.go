package control

import "github.com/posttrain/posttrain/internal/config/fault"

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
	Environment string `yaml:"environment" want:"cartpole|swimmer|hopper|walker2d|humanoid" flag:"environment" help:"cartpole, or with MuJoCo (scripts/install-mujoco.sh) swimmer, hopper, walker2d or humanoid"`
	// time steps of a batch; it begins with a fresh episode, and the last one is cut
	Steps int `yaml:"steps" want:">=1 <=1048576" words:"a whole number from 1 to 1048576"`
	// instead of steps: a batch is as many whole episodes
	Trajectories int `yaml:"trajectories,omitempty" want:">=0 <=1024" zero:"a batch has steps" help:"whole episodes of a batch, which then has no number of steps; 0: it has control.steps"`
	// the units of the hidden layers, of the policy and of the critic
	Hidden     []int  `yaml:"hidden" want:">=1 <=65536" words:"whole numbers from 1 to 65536, such as [64, 64]"`
	Activation string `yaml:"activation" want:"tanh|relu" paper:"relu"`
	// the means of continuous actions pass through tanh
	OutputTanh bool `yaml:"output_tanh" paper:"true"`
	// the logarithm of the standard deviation of continuous actions at the start; it is trained
	LogStd float64 `yaml:"log_std"`
	Gamma  float64 `yaml:"gamma" want:">0 <=1" paper:"0.99"`
	Lambda float64 `yaml:"lambda" want:">=0 <=1" paper:"0.95"`
	// what advantages are: gae, or discounted rewards from the step on (causal) or from the start (letter)
	Returns string `yaml:"returns" want:"gae|causal|letter" paper:"gae"`
	// advantages have mean 0 and standard deviation 1 in a batch
	Normalize bool `yaml:"normalize"`
	// what the sum of the gradients is divided by
	Norm string `yaml:"norm" want:"timesteps|trajectories"`
	// the weight of the policy's entropy in the gradient
	Entropy float64       `yaml:"entropy" want:">=0"`
	Critic  CriticOptions `yaml:"critic"`
}

// CriticOptions say how an agent trains its critic on a batch, after it has computed the advantages.
type CriticOptions struct {
	LR        float64 `yaml:"lr" want:">0"` // of Adam
	Epochs    int     `yaml:"epochs" want:">=1"`
	Minibatch int     `yaml:"minibatch" want:">=1"`
}

// DefaultOptions are those of cartpole.
func DefaultOptions() Options {
	return Options{Environment: cartpoleName, Steps: 1024, Hidden: []int{32, 32}, Activation: "relu", Gamma: 0.99,
		Lambda: 0.95, Returns: GAE, Normalize: true, Norm: Timesteps,
		Critic: CriticOptions{LR: 3e-3, Epochs: 2, Minibatch: 128}}
}

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
