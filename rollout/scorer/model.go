package scorer

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/train"
)

// ModelOptions say which reward model scores, and where it computes.
type ModelOptions struct {
	Folder          string `yaml:"folder,omitempty" hub:"model" words:"the folder of a reward model, or org/name on the hub" flag:"reward-model" help:"folder of the reward model"`
	Backend         string `yaml:"backend" want:"@backend" needs:"libraries" default:"auto" help:"the reward model's engine:"`
	local.PlainText `yaml:",inline" flags:"-"`
	Batch           int `yaml:"batch_size" want:">=1" default:"8" help:"answers that go through the model at a time"`
}

// network is a reward model in this process.
type network struct {
	folder    string
	engine    *backend.Engine
	learner   *train.Learner // of which nothing is trained
	encoder   *batch.Encoder
	pad       *int
	gate      []int32 // that begins the answer; nil: the head does not look at it
	positions int     // tokens of the longest text
	batch     int
	plain     local.PlainText
	say       func(format string, args ...any) // nil: all is said
}

func openModel(o ModelOptions, p Caller) (ask.Judge, error) {
	m, t, err := local.LoadReward(o.Folder)
	if err != nil {
		return nil, fmt.Errorf("reward: model.folder: %w", err)
	}
	defer m.Release()
	var gate []int32
	if m.Config.Head.Gated() {
		if gate, err = t.Encode(model.Gate, false); err != nil {
			return nil, fmt.Errorf("reward: model.folder: %w", err)
		}
	}
	e, err := openEngine(o)
	if err != nil {
		return nil, err
	}
	if p.Warn != nil {
		e.Report(func(string, ...any) {}, p.Warn)
	}
	graph := model.GraphOptions{DType: dtypes.Float32}
	if e.Wants.BFloat16 && m.Config.DType == "bfloat16" {
		graph.DType = dtypes.BFloat16
	}
	l, err := train.NewLearner(e, m, graph)
	if err != nil {
		e.Close()
		return nil, err
	}
	return &network{folder: o.Folder, engine: e, learner: l, encoder: o.Encoder(t), pad: m.Config.Pad,
		gate: gate, positions: m.Config.MaxPositions, batch: o.Batch, plain: o.PlainText, say: p.Say}, nil
}

func openEngine(o ModelOptions) (*backend.Engine, error) {
	if o.Backend == "auto" {
		return backend.OpenAuto(local.Job(o.Folder))
	}
	return backend.Open(o.Backend)
}

// batchesAtOnce is how many batches a call should have: among more answers there are more of equal length.
const batchesAtOnce = 8

func (n *network) Batch() int { return batchesAtOnce * n.batch }

func (n *network) Close() error {
	n.learner.Close()
	n.engine.Close()
	return nil
}

func (n *network) Score(ctx context.Context, answers []ask.Answer) ([]ask.Score, error) {
	scores := make([]ask.Score, len(answers))
	groups, of, err := n.encode(answers, scores)
	if err != nil {
		return nil, err
	}
	layout := batch.Layout{Pad: n.batch, Blocks: n.learner.Blocks()}
	for _, part := range batch.Split(groups, layout) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		values, err := n.learner.Sums(part.Packed)
		if err != nil {
			return nil, fmt.Errorf("reward model %s: %w", n.folder, err)
		}
		for i, member := range part.Members {
			x := float64(values[i])
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return nil, fmt.Errorf("reward model %s: it gives %v for the answer of %s: want a finite number; its "+
					"weights may be damaged, or too large for the type it computes in", n.folder, x,
					answers[of[member]].To.Source)
			}
			scores[of[member]].Value = x
		}
	}
	return scores, nil
}

// encode makes a group of each answer that the model has positions for, the longest first; of gives the groups'
// answers. For an answer that is too long it writes the reason into scores.
func (n *network) encode(answers []ask.Answer, scores []ask.Score) (groups []batch.Group, of []int, err error) {
	all := make([]batch.Group, len(answers))
	for i := range answers {
		q := answers[i].To
		if all[i], err = n.encoder.Scored(q.Source, n.pad, q.Prompt, answers[i].Response()); err == nil && n.gate != nil {
			all[i], err = n.splitAtGate(q.Source, all[i])
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reward model %s: %w", n.folder, err)
		}
		if length := all[i].ScoredTokens(); length > n.positions {
			scores[i].Missing = fmt.Sprintf("prompt and answer have %d tokens, and reward model %s has positions for %d",
				length, n.folder, n.positions)
		} else {
			of = append(of, i)
		}
	}
	if line := n.plain.Describe(n.encoder, "reward.model.plain=text"); line != "" && n.say != nil {
		n.say("reward model %s: %s", n.folder, line)
		n.say = nil
	}
	slices.SortStableFunc(of, func(a, b int) int { return all[b].ScoredTokens() - all[a].ScoredTokens() })
	for _, i := range of {
		groups = append(groups, all[i])
	}
	return groups, of, nil
}

// splitAtGate gives a text a second slot before the one of its score: at the first token of the last gate.
func (n *network) splitAtGate(source string, g batch.Group) (batch.Group, error) {
	ids := append(slices.Clone(g.Prompt), g.Answers[0]...)
	at := len(ids) - 1 - len(n.gate)
	for ; at >= 0 && !slices.Equal(ids[at:at+len(n.gate)], n.gate); at-- {
	}
	if at < 0 {
		return g, fmt.Errorf("%s: the text has no turn of an assistant (%q), where this model's head weighs its scores: "+
			"want a conversation in its chat template", source, model.Gate)
	}
	slots := make([]bool, len(ids)-at-1)
	slots[0], slots[len(slots)-1] = true, true
	return batch.Group{Prompt: ids[: at+1 : at+1], Answers: [][]int32{ids[at+1:]}, Trained: [][]bool{slots}}, nil
}
