package federated

import (
	"context"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/federated/lm"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/train"
)

// MaPPO is the workload mappo: a model, preference pairs and a loss as posttrain mappo has them, the pairs dealt to the
// agents. The reference is the model at the start.
type MaPPO struct {
	Model      string          `yaml:"model" want:"@model" hub:"model"`
	Adapting   recipe.Adapting `yaml:",inline"`
	Backend    string          `yaml:"backend" want:"@backend"`
	Data       preference.Data `yaml:"data"`
	Deal       PairDeal        `yaml:",inline"`
	Loss       losses.Options  `yaml:"loss"`
	Train      PairBatch       `yaml:"train"`
	Validation PairValidation  `yaml:"validation"`
}

// PairDeal says how the pairs are dealt.
type PairDeal struct {
	// in turn; all pairs with a value in a column to one agent; or those of each value by shares of its own
	Split string `yaml:"split" want:"equal|column|dirichlet"`
	// such as annotator or domain: every row has it
	Column string `yaml:"split_column,omitempty" words:"the name of a column"`
	// the smaller, the more the agents' pairs differ
	Alpha float64 `yaml:"dirichlet_alpha" want:">=0.01"`
}

// PairBatch is what an agent's batch is, as in training.
type PairBatch struct {
	Size        int    `yaml:"batch_size" want:">=1"`       // pairs; an agent with fewer takes all of its own
	Micro       int    `yaml:"micro_batch_size" want:">=0"` // pairs of a forward pass; 0: the whole batch
	SharePrefix string `yaml:"share_prefix" want:"auto|on|off"`
}

// PairValidation says how agents measure what they hold out: data.eval_fraction of the pairs, or of their own file.
type PairValidation struct {
	// an agent's batches from one validation to the next
	Every int `yaml:"every" want:">=0" zero:"off"`
}

// defaultMaPPO is the embedded model with its pairs, as in the quick start of posttrain mappo.
func defaultMaPPO(loss string) MaPPO {
	d := preference.Defaults(loss)
	m := MaPPO{Model: embedded.Name, Backend: "auto", Data: d.Data, Deal: PairDeal{Split: lm.Equal, Alpha: 0.3},
		Loss: d.Loss, Train: PairBatch{8, 8, d.Train.SharePrefix}, Validation: PairValidation{10}}
	m.Data.Train, m.Data.EvalFraction, m.Data.MaxTokens = config.Names{embedded.Name}, 0.2, 512
	return m
}

// forPairs gives the rates of the quick start of posttrain mappo, and a shorter normalised step.
func (o *Options) forPairs() {
	if o.LR != nil {
		o.LR = new(1e-4)
	}
	switch {
	case o.Rule == nil:
	case *o.Rule == protocol.AdamW:
		o.AdamW.Warmup = new(5)
	default:
		o.LR = new(2e-5)
	}
	if o.Local.LR != nil {
		o.Local.LR, o.Local.Epochs, o.Local.Minibatch = new(1e-4), new(1), new(8)
	}
}

// settle gives the options that depend on others their defaults.
func (m *MaPPO) settle(g *config.Given) {
	if !g.Has("mappo.train.micro_batch_size") {
		m.Train.Micro = min(m.Train.Micro, max(m.Train.Size, 0))
	}
	m.settleValidation(g)
}

// settleValidation turns validation off where nothing is held out, unless both keys are given in one place.
func (m *MaPPO) settleValidation(g *config.Given) {
	const every, share = "mappo.validation.every", "mappo.data.eval_fraction"
	overrules := g.FromCommandLine(share) && !g.FromCommandLine(every)
	if m.Data.EvalFraction == 0 && (overrules || !g.Has(every)) {
		m.Validation.Every = 0
	}
}

// pairMethods are those that need no samples of the policy.
var pairMethods = []string{protocol.AFedPG, protocol.FedPG, protocol.Vanilla, protocol.A3C, protocol.FedAvg}

// check looks at what only this workload has.
func (m *MaPPO) check(g *config.Given, o *Options) {
	if !slices.Contains(pairMethods, o.Method) {
		g.Fault("method", "method %s: it needs samples of the policy, and workload mappo has pairs: want %s", o.Method,
			fault.Or(pairMethods))
	}
	for _, key := range []string{"local.clip", "local.entropy"} {
		if g.Has(key) {
			g.Fault(key, "%s %s: workload mappo has no such term; remove it", key, g.Show(key))
		}
	}
	if m.Loss.Unpaired() {
		g.Fault("mappo.loss.type", "mappo.loss.type %s: it is of single answers, and agents have pairs: want another",
			m.Loss.Type)
	}
	if m.Loss.Prior == losses.None {
		m.Data.CheckPlain(g, "mappo.")
	}
	if m.Train.Micro > m.Train.Size {
		g.Fault("mappo.train.micro_batch_size", "mappo.train.micro_batch_size %d: want at most "+
			"mappo.train.batch_size, %d", m.Train.Micro, m.Train.Size)
	}
	if m.Validation.Every > 0 && m.Data.EvalFraction == 0 && g.Has("mappo.validation.every") {
		g.Fault("mappo.validation.every", "mappo.validation.every %d: mappo.data.eval_fraction 0 holds nothing out; "+
			"want a share, or 0", m.Validation.Every)
	}
	m.checkDeal(g)
}

func (m *MaPPO) checkDeal(g *config.Given) {
	d := m.Deal
	switch {
	case d.Split == lm.Equal && d.Column != "":
		g.Fault("mappo.split_column", "mappo.split_column %q: split equal does not use it; remove it, or want split "+
			"column or dirichlet", d.Column)
	case d.Split != lm.Equal && d.Column == "":
		g.Fault("mappo.split_column", "mappo.split_column is missing: split %s needs the name of a column",
			d.Split)
	}
	checkAlpha(g, "mappo.", d.Split, d.Alpha)
}

// idle are the keys that have no effect.
func (m *MaPPO) idle(o *Options) (keys []string) {
	if o.Local.LR != nil {
		keys = append(keys, "local.clip", "local.entropy")
	}
	if m.Deal.Split != lm.Dirichlet {
		keys = append(keys, "mappo.dirichlet_alpha")
	}
	return keys
}

// pairWorld is what the agents of this process share in the workload mappo.
type pairWorld struct {
	trained
	all    []train.Example
	owned  [][]int // to train on, by agent; one list: those of this process's only agent
	heldBy [][]int // held out, by agent
}

// openPairs loads model and pairs. The engine is opened at the first batch.
func openPairs(o *Options) (world, error) {
	m := &o.MaPPO
	w := &pairWorld{trained: trained{o: o, name: MaPPOName, folder: m.Model, adapting: m.Adapting, backend: m.Backend,
		anchored: !m.Loss.ReferenceFree()}}
	return w, w.load()
}

// deal reads the pairs, holds a share of them out, and gives both parts to the agents.
func (w *pairWorld) deal() error {
	m, source := w.o.MaPPO, w.o.MaPPO.Data
	if source.ClassColumn = m.Deal.Column; w.o.items != "" {
		source.Train, source.ClassColumn = config.Names{w.o.items}, "" // one's own pairs need no owner
	}
	pairs, err := source.ReadPairs(context.Background(), m.Loss, w.tokenizer, w.model.Config.MaxPositions)
	if err != nil {
		return err
	}
	w.all = pairs
	kept, held := data.Split(len(pairs), source.EvalFraction, w.o.Seed)
	if len(kept) == 0 {
		return fmt.Errorf("%s: %d pairs within the limits, %d of them held out: want at least one to train on",
			source.Train, len(pairs), len(held))
	}
	if w.o.items != "" {
		w.owned, w.heldBy = [][]int{kept}, [][]int{held}
		return nil
	}
	how := lm.Split{Kind: m.Deal.Split, Alpha: m.Deal.Alpha, Least: 1, Seed: w.o.Seed}
	classes, others := classesOf(data.Pick(pairs, kept)), classesOf(data.Pick(pairs, held))
	owned, err := how.Deal(classes, w.o.Agents)
	if err != nil {
		return fmt.Errorf("%s: %w", source.Train, err)
	}
	for a, given := range how.Along(owned, classes, others) {
		w.owned, w.heldBy = append(w.owned, data.Pick(kept, owned[a])), append(w.heldBy, data.Pick(held, given))
	}
	return nil
}

func classesOf(pairs []train.Example) (classes []string) {
	for _, p := range pairs {
		classes = append(classes, p.Class)
	}
	return classes
}

// agent makes the workload of an agent.
func (w *pairWorld) agent(number int) (protocol.Workload, error) {
	if w.owned == nil {
		if err := w.deal(); err != nil {
			return nil, err
		}
	}
	m, o, own := w.o.MaPPO, train.Defaults(), min(number, len(w.owned)-1)
	o.BatchSize, o.MicroBatchSize = m.Train.Size, m.Train.Micro
	a := lm.PairAgent{Loss: m.Loss, Pairs: data.Pick(w.all, w.owned[own]), Held: data.Pick(w.all, w.heldBy[own]), Train: o,
		Rule: o.Rule().Numbers()}
	a.Share = recipe.SharesPrompts(m.Train.SharePrefix, train.Groups(a.Pairs), o.Micro(), w.model.Config.HiddenSize)
	return lm.NewPairs(w.policy, a, number, w.o.Seed), nil
}

// describe says in words what agents learn from.
func (m *MaPPO) describe() string {
	how := map[string]string{lm.Equal: "dealt in turn", lm.Column: "each value of " + m.Deal.Column + " to one agent",
		lm.Dirichlet: fmt.Sprintf("dealt by Dirichlet(%v) over the values of %s", m.Deal.Alpha, m.Deal.Column),
	}[m.Deal.Split]
	return fmt.Sprintf("the model %s%s, %s with beta %v on pairs of %s, %s, %d pairs a batch, %v of them held out",
		m.Model, adapterText(m.Adapting), m.Loss.Name(), m.Loss.Beta, m.Data.Train, how, m.Train.Size,
		m.Data.EvalFraction)
}
