package federated

import (
	"context"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/federated/lm"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/train"
)

// MaPPO is the workload mappo: a model, preference pairs and a loss as posttrain mappo has them, the pairs dealt to the
// agents. The reference is the model at the start. By default it is the embedded model with its pairs, as in the quick
// start of posttrain mappo.
type MaPPO struct {
	OfModel `yaml:",inline" defaults:"validation.every=10"`
	Data    preference.Data `yaml:"data" defaults:"train=embedded eval_fraction=0.2 max_tokens=512"`
	Loss    losses.Options  `yaml:"loss"`
	Train   PairBatch       `yaml:"train"`
}

// PairBatch is what an agent's batch is, as in training.
type PairBatch struct {
	Size        int    `yaml:"batch_size" want:">=1" default:"8" help:"pairs of an agent's batch, which gives one gradient; an agent with fewer takes all of its own"`
	Micro       int    `yaml:"micro_batch_size" want:">=0" default:"8" help:"pairs of a forward pass; 0: the whole batch"`
	SharePrefix string `yaml:"share_prefix" want:"auto|on|off" default:"auto" help:"a row holds the prompt once and each answer to it; auto: if that saves time"`
}

// Resolve gives the options that depend on others their defaults. Where nothing is held out there is no validation.
func (m *MaPPO) Resolve(g *config.Given) {
	if !g.Has("train.micro_batch_size") {
		m.Train.Micro = min(m.Train.Micro, max(m.Train.Size, 0))
	}
	if m.Data.EvalFraction == 0 {
		m.Validation.Every = 0
	}
}

// pairMethods are those that need no samples of the policy.
var pairMethods = []string{protocol.AFedPG, protocol.FedPG, protocol.Vanilla, protocol.A3C, protocol.FedAvg}

// check looks at what only this workload has.
func (m *MaPPO) check(g *config.Given) {
	if m.Loss.Unpaired() {
		g.Refuse("loss.type", m.Loss.Type, "it is of single answers, and agents have pairs: want another")
	}
	if m.Loss.Prior == losses.None {
		m.Data.CheckPlain(g)
	}
	if m.Train.Micro > m.Train.Size {
		g.Refuse("train.micro_batch_size", m.Train.Micro, "want at most mappo.train.batch_size, %d", m.Train.Size)
	}
	if m.Data.Weights != nil {
		g.Refuse("data.weights", m.Data.Weights, "each agent has pairs of its own, once each; remove it")
	}
	if m.Split != lm.Equal && m.Column == "" {
		g.Fault("split_column", "mappo.split_column is missing: split %s needs the name of a column", m.Split)
	}
}

// pairs are what the agents of mappo learn from.
type pairs struct{ kept, held []train.Example }

// read reads the pairs, and holds a share of them out.
func (s *pairs) read(w *world) (classes, others []string, err error) {
	m, from := w.o.MaPPO, w.o.MaPPO.Data
	if from.ClassColumn = m.Column; w.o.items != "" {
		from.TrainFiles, from.ClassColumn = config.Names{w.o.items}, "" // one's own pairs need no owner
	}
	all, err := from.ReadPairs(context.Background(), run.Listen(w.o.heard), m.Loss, w.tokenizer,
		w.model.Config.MaxPositions)
	if err != nil {
		return nil, nil, err
	}
	kept, held := data.Split(len(all), from.EvalFraction, w.o.Seed)
	s.kept, s.held = data.Pick(all, kept), data.Pick(all, held)
	return classesOf(s.kept), classesOf(s.held), nil
}

func classesOf(pairs []train.Example) (classes []string) {
	for _, p := range pairs {
		classes = append(classes, p.Class)
	}
	return classes
}

func (s *pairs) agent(w *world, number int, own, held []int) protocol.Workload {
	m, o := w.o.MaPPO, train.Defaults()
	o.BatchSize, o.MicroBatchSize = m.Train.Size, m.Train.Micro
	a := lm.PairAgent{Loss: m.Loss, Pairs: data.Pick(s.kept, own), Held: data.Pick(s.held, held), Train: o,
		Optimizer: o.AdamW().Options}
	a.Share = recipe.SharesPrompts(m.Train.SharePrefix, train.Groups(a.Pairs), o.Micro(), w.model.Config.HiddenSize)
	return lm.NewPairs(w.policy, a, number, w.o.Seed)
}
