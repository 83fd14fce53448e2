package rl

import (
	"fmt"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
)

// items is the task of ci-rl: contextual-integrity items, answered once, whose keywords are the reward.
type items struct {
	*loop
	o *CI
}

func (o *CI) task(l *loop) (task, error) {
	t := &items{loop: l, o: o}
	if !o.Agent.On() {
		return t, nil
	}
	return openEpisodes(t)
}

// readParts reads or makes the items, splits them, and encodes their prompts.
func (t *items) readParts() (parts [3][]ask.Question, err error) {
	all, err := t.o.Items(t)
	if err != nil {
		return parts, err
	}
	for k, items := range all {
		var left ask.Left
		if parts[k], left, err = t.o.Questions(t.encoder(), ci.Part(k), items, t.promptLimit()); err != nil {
			return parts, err
		}
		t.left = t.left.And(left)
		if text := LeftOut(len(items), left.Of); text != "" {
			t.Say("%s: %s", t.o.Data.TrainFiles, text)
		}
	}
	if t.left.Count > 0 {
		t.Say("%s: %v", t.o.Data.TrainFiles, t.left)
	}
	return parts, nil
}

// Questions are the items of a part as prompts of at most limit tokens, and how many are longer.
func (o *CI) Questions(e *batch.Encoder, part ci.Part, items []ci.Item, limit int) ([]ask.Question, ask.Left, error) {
	var all []ask.Question
	var err error
	if o.Agent.On() {
		all, err = o.episodes(e, items, o.Order(part))
	} else {
		all, err = eval.Questions(items, o.Data.Form, o.Order(part))
	}
	if err != nil {
		return nil, ask.Left{}, err
	}
	all, left, err := ask.Fit(e, all, limit)
	for i := range all {
		q := &all[i]
		k := reward.Of(q.Item)
		if q.Target = fmt.Sprintf("%q %q %v", k.Required, k.Restricted, q.Thinks()); o.Agent.On() {
			q.Target += fmt.Sprintf(" %q", q.Item.Scene)
		}
	}
	return all, left, err
}

// TestSampling is how the answers to the test split are drawn: at the temperature of validation.
func (o *CI) TestSampling() rollout.Sampling {
	s := o.Sampling.Sampling
	s.Temperature = o.Validation.Temperature
	return s
}

// Order gives the seed of the order in which the prompt of a part's item i lists its attributes.
func (o *CI) Order(part ci.Part) func(i int) uint64 {
	return func(i int) uint64 { return ci.Order(o.Seed, part, i) }
}

// Items reads or makes the items of a run: those to train on, those for validation, and those for the test.
func (o *CI) Items(r run.Reporter) (parts [3][]ci.Item, err error) {
	d, say := o.Data, run.Listen(r).Say
	if o.Agent.makes() {
		return o.drawnItems(say)
	}
	read := func(name string) ([]ci.Item, error) {
		if name == embedded.Name {
			return ci.Synthesize(d.Scenarios, o.Seed^embeddedSeed), nil
		}
		return readItems(name, d.Items, say)
	}
	identity := func(item ci.Item) string {
		item.Source = ""
		return fmt.Sprint(item)
	}
	parts, err = Read(d.Files, d.Parts, o.Seed, read, identity, run.Listen(r).Warn)
	if err != nil {
		return parts, err
	}
	sizes := "%s: %d items to train on, %d for validation, %d for the test"
	if d.TrainFiles.Are(embedded.Name) {
		sizes = "%s: %d distinct scenarios to train on, %d for validation and %d for the test"
	}
	say(sizes, d.TrainFiles, len(parts[0]), len(parts[1]), len(parts[2]))
	return parts, nil
}

func readItems(path, which string, say func(string, ...any)) ([]ci.Item, error) {
	items, report, err := ci.ReadItems(path, which)
	if err == nil {
		say("%s", report)
	}
	return items, err
}

// embeddedSeed makes the scenarios of ci-rl other ones than those that the embedded model was taught with.
const embeddedSeed = 0x63692d726c

func (t *items) openJudge(string) (ask.Judge, error)        { return ask.Keywords(t.o.Reward), nil }
func (t *items) prepare(*grpo.Rollouts)                     {}
func (t *items) seedDraws(test []ask.Question, seed uint64) { ask.SeedDraws(test, seed) }

func (t *items) row(a *ask.Answer) eval.Row { return rowOf(eval.SampleOf(0, *a, t.o.Reward)) }

// rowOf is a sample's row with the prompt as plain text.
func rowOf(s eval.Sample) eval.Row {
	row := s.Row()
	row.Prompt = promptOf(s.Answer.To)
	return row
}

// compare counts the answers to the test.
func (t *items) compare(before, after []eval.Row) (text string, first, last any) {
	b, a := t.tally(before), t.tally(after)
	return table(&b.All, &a.All) + verdict(&b.All, &a.All), b, a
}

func (t *items) tally(rows []eval.Row) *eval.Report {
	report := &eval.Report{}
	for i := range rows {
		report.Add(rows[i].AsSample(i, &t.questions[ci.Test][i], t.o.Reward))
	}
	return report
}
