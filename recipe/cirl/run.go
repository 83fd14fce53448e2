package cirl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/fleet"
	"github.com/posttrain/posttrain/train"
)

// Result is what a run leaves. Before and After measure the test split, nil without one.
type Result struct {
	recipe.Result
	Before, After *eval.Report
}

// Run teaches contextual integrity: it loads model and items, measures the test split, trains, measures the test split
// with the best model, and reports. A nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	j, err := o.open(r, false)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	t := newTraining(j, o)
	if err := t.load(); err != nil {
		return nil, err
	}
	if err := j.Start(); err != nil {
		return nil, err
	}
	size := 0
	if o.GRPO.NeedsReference() {
		if t.reference, err = j.Learner.Upload(j.Model); err != nil {
			return nil, err
		}
		defer backend.FinalizeAll(t.reference...)
		size = j.Learner.ReferenceBytes()
	}
	j.ReportMemory(size)
	closeSampler, err := t.openSampler()
	if err != nil {
		return nil, err
	}
	defer closeSampler()
	before, err := t.before(ctx)
	if err != nil {
		return nil, err
	}
	trainer := t.trainer()
	if err := j.Fit(ctx, trainer); err != nil {
		return nil, err
	}
	best, err := j.Save(trainer)
	if err != nil {
		return nil, err
	}
	saved := fmt.Sprintf("the %s is in %s", j.Kind(), j.Folder.Path(j.Kind()))
	after, err := t.measure(ctx, run.TestAfterName, "after", saved)
	if err != nil {
		return nil, err
	}
	return t.report(trainer, best, before, after)
}

func newTraining(j *recipe.Run, o Options) *training {
	return &training{Run: j, o: o, chat: rollout.Local{Encoder: &batch.Encoder{Tokenizer: j.Tokenizer}}}
}

// open opens engine and model.
func (o *Options) open(r run.Reporter, dry bool) (*recipe.Run, error) {
	if err := Spec.Verify(o); err != nil {
		return nil, err
	}
	return recipe.Open(recipe.Config{Base: &o.Base, Command: Command, Title: "CI-RL", Samples: true,
		Options: o, Dry: dry}, r)
}

// openSampler opens the sampler of this process, or the servers that sample.
func (t *training) openSampler() (closeSampler func(), err error) {
	if t.o.Rollout.Engine != "" {
		return t.openFleet()
	}
	sampler := t.Sampler(t.o.Sampling.CacheGB)
	plan, err := t.plan(sampler)
	if err != nil {
		sampler.Close()
		return nil, err
	}
	t.Say("rollouts: %v", plan)
	t.chat.Sampler = sampler
	return sampler.Close, nil
}

func (t *training) openFleet() (closeFleet func(), err error) {
	o := t.o.Rollout
	o.Key, o.Folder = os.Getenv(fleet.KeyVariable), cmp.Or(o.Folder, t.Folder.Path("served"))
	if dir, err := filepath.Abs(t.Folder.Dir); err == nil {
		o.Run = dir
	}
	for _, task := range t.train[:min(len(t.train), probes)] {
		o.Probes = append(o.Probes, task.Tokens)
	}
	f, err := fleet.New(o, policy{t.Run}, t.Model.Config, t.Tokenizer, t.Warn)
	if err != nil {
		return nil, err
	}
	t.Say("rollouts: %s on %s, which read the weights from %s", o.Engine, strings.Join(o.URLs, ", "), o.Folder)
	t.chat.Sampler = f
	return func() {
		if err := f.Close(); err != nil {
			t.Warn("%v", err)
		}
	}, nil
}

// probes are the prompts of the parity probe.
const probes = 4

// policy is the model that learns, for servers.
type policy struct{ *recipe.Run }

func (p policy) Version() int { return p.Learner.Version() }

// Write writes the weights in the type in which the model is computed.
func (p policy) Write(folder string) error {
	dtype := "float32"
	if p.Learner.BFloat16() {
		dtype = "bfloat16"
	}
	return p.Exporter().Write(folder, p.Learner, dtype)
}

// Logps measures with the trainer's own graph.
func (p policy) Logps(prompts, answers [][]int32) ([][]float32, error) {
	t := &grpo.Trainer{Learner: p.Learner}
	var groups []grpo.Group
	for i, prompt := range prompts {
		groups = append(groups, grpo.Group{Group: batch.Group{Prompt: prompt, Answers: [][]int32{answers[i]}}})
	}
	measured, err := t.Measure(groups, nil)
	if err != nil {
		return nil, err
	}
	logps := make([][]float32, len(measured))
	for i, answers := range measured {
		logps[i] = answers[0]
	}
	return logps, nil
}

// plan says how many completions of a step are drawn at once.
func (t *training) plan(s *rollout.Cached) (rollout.Plan, error) {
	longest := 0
	for _, task := range t.train {
		longest = max(longest, len(task.Tokens))
	}
	plan, err := s.Plan(t.o.GRPO.Prompts*t.o.GRPO.GroupSize, longest, t.o.Sampling.MaxNew)
	if err != nil {
		err = fmt.Errorf("sampling.%w", err)
	}
	return plan, err
}

// training is a run on its way.
type training struct {
	*recipe.Run
	o         Options
	chat      rollout.Local // encodes the prompts; asks the model that learns
	reference []compute.Buffer
	train     []grpo.Task
	held      []grpo.Task
	test      []eval.Case
	left      eval.Left
}

// trainer learns from the model's own answers.
func (t *training) trainer() *train.Trainer {
	all := t.Trainer(&grpo.Rollouts{
		Options: t.o.GRPO, Tasks: t.train, Score: Score(t.o.Reward),
		Sampler: t.chat.Sampler, Sampling: t.o.Sampling.Sampling, Reference: t.reference,
		Held: t.held, Validation: t.o.Validation, Row: t.row,
	})
	show := all.OnStep
	all.OnStep = func(step, last int, values map[string]float64) { show(step, last, progressMetrics(values)) }
	return all
}

// row is an answer of a validation as a line of samples.jsonl.
func (t *training) row(step int, task *grpo.Task, c rollout.Completion, s grpo.Score) any {
	of := task.Data.(*eval.Case)
	a := rollout.Answer{Text: c.Text, Tokens: len(c.Tokens), Reason: c.Reason}
	row := plainRow(of.Score(0, 0, a, t.o.Reward))
	row.Parts = s.Parts
	return struct {
		Step int `json:"step"` // of the weights that wrote it
		eval.Row
	}{step, row}
}

// progressMetrics picks the metrics that progress shows. The loss is about 0 at every step, because a group's
// advantages sum to 0.
func progressMetrics(values map[string]float64) map[string]float64 {
	picked := map[string]float64{}
	for _, name := range []string{"reward", "complete", "tokens_per_second"} {
		if v, ok := values[name]; ok {
			picked[name] = v
		}
	}
	return picked
}

// load reads or makes the items, splits them, and encodes their prompts.
func (t *training) load() error {
	parts, err := t.o.Items(t)
	if err != nil {
		return err
	}
	var cases [3][]eval.Case
	for k, items := range parts {
		var left eval.Left
		if cases[k], left, err = t.o.Cases(&t.chat, ci.Part(k), items, t.limit()); err != nil {
			return err
		}
		t.left = t.left.And(left)
	}
	if t.left.Count > 0 {
		t.Say("%s: %v", t.o.Data.Train, t.left)
	}
	t.train, t.held, t.test = Tasks(cases[0]), Tasks(cases[1]), cases[2]
	return t.check()
}

// Cases are the items of a part as prompts of at most limit tokens, and how many are longer.
func (o *Options) Cases(chat *rollout.Local, part ci.Part, items []ci.Item, limit int) ([]eval.Case, eval.Left, error) {
	all, err := eval.Cases(items, o.Data.Form, o.Order(part), o.way())
	if err != nil {
		return nil, eval.Left{}, err
	}
	return eval.Fit(chat, all, limit)
}

// way is how the test prompts are answered.
func (o *Options) way() rollout.Conversation {
	return rollout.Conversation{Sampling: o.TestSampling(), OneDraw: true}
}

// TestSampling is how the answers to the test split are drawn: at the temperature of validation.
func (o *Options) TestSampling() rollout.Sampling {
	s := o.Sampling.Sampling
	s.Temperature = o.Validation.Temperature
	return s
}

// Order gives the seed of the order in which the prompt of a part's item i lists its attributes.
func (o *Options) Order(part ci.Part) func(i int) uint64 {
	return func(i int) uint64 { return ci.Order(o.Seed, part, i) }
}

// limit is the most tokens of a prompt: the configuration's, and room for one more in the model.
func (t *training) limit() int {
	room := t.Model.Config.MaxPositions - 1
	if most := t.o.Data.MaxPromptTokens; most > 0 {
		return min(most, room)
	}
	return room
}

// check refuses limits that leave nothing, and completions that the model has no positions for.
func (t *training) check() error {
	d, positions := t.o.Data, t.Model.Config.MaxPositions
	if len(t.train) == 0 || len(t.held) == 0 || len(t.test) == 0 && d.hasTest() {
		return fmt.Errorf("%s: prompts of at most %d tokens leave %d to train on, %d for validation and %d for the "+
			"test: want at least one of each; %d were dropped, the longest has %d tokens (data.max_prompt_tokens %d, "+
			"where 0 is no limit; the model takes %d tokens)", d.Train, t.limit(), len(t.train), len(t.held), len(t.test),
			t.left.Count,
			t.left.Longest, d.MaxPromptTokens, positions)
	}
	return grpo.CheckTasks(t.o.GRPO, t.o.Sampling.Sampling, positions, t.train, t.held, Tasks(t.test))
}

// Items reads or makes the items of a run: those to train on, those for validation, and those for the test.
func (o *Options) Items(r run.Reporter) (parts [3][]ci.Item, err error) {
	d, say := o.Data, run.Listen(r).Say
	read := func(name string) ([]ci.Item, error) { return readItems(name, d.Items, say) }
	if d.Train.Are(embedded.Name) {
		read = func(string) ([]ci.Item, error) { return ci.Synthesize(d.Scenarios, o.Seed^embeddedSeed), nil }
	}
	all, err := recipe.ReadAll(d.Files, read)
	if err != nil {
		return parts, err
	}
	validation, test := d.shares()
	first, second, third := ci.Split(len(all), validation, test, o.Seed)
	parts = [3][]ci.Item{data.Pick(all, first), data.Pick(all, second), data.Pick(all, third)}
	for part, file := range d.files() {
		if file == "" {
			continue
		}
		if parts[part], err = readItems(file, d.Items, say); err != nil {
			return parts, err
		}
	}
	if len(parts[0]) == 0 || len(parts[1]) == 0 || len(parts[2]) == 0 && d.hasTest() {
		return parts,
			fmt.Errorf("%s: data.validation_fraction %v and data.test_fraction %v of %d items leave %d to train "+
				"on, %d for validation and %d for the test: want at least one of each", d.Train, validation,
				test, len(all), len(parts[0]), len(parts[1]), len(parts[2]))
	}
	sizes := "%s: %d items to train on, %d for validation, %d for the test"
	if d.Train.Are(embedded.Name) {
		sizes = "%s: %d distinct scenarios to train on, %d for validation and %d for the test"
	}
	say(sizes, d.Train, len(parts[0]), len(parts[1]), len(parts[2]))
	d.warnOfOverlap(parts, run.Listen(r))
	return parts, nil
}

func readItems(path, which string, say func(string, ...any)) ([]ci.Item, error) {
	items, report, err := ci.ReadItems(path, which)
	if err == nil {
		say("%s", report)
	}
	return items, err
}

// warnOfOverlap warns of items of a file that are trained on, too.
func (d Data) warnOfOverlap(parts [3][]ci.Item, r run.Reporter) {
	identity := func(item ci.Item) string {
		item.Source = ""
		return fmt.Sprint(item)
	}
	trained := map[string]bool{}
	for _, item := range parts[ci.Train] {
		trained[identity(item)] = true
	}
	for part, file := range d.files() {
		shared := 0
		for _, item := range parts[part] {
			if file != "" && trained[identity(item)] {
				shared++
			}
		}
		if shared > 0 {
			r.Warn("%s: %d of %d items are in the training data, too", file, shared, len(parts[part]))
		}
	}
}

// embeddedSeed makes the scenarios of ci-rl other ones than those that the embedded model was taught with.
const embeddedSeed = 0x63692d726c

// before measures the test split with the model before training, or takes the measurement from the folder of a run that
// is continued.
func (t *training) before(ctx context.Context) (*eval.Report, error) {
	samples, err := t.readStored(run.TestBeforeName)
	if err != nil {
		return nil, err
	}
	if len(samples) > 0 {
		t.Say("test before training: taken from %s", t.Folder.Path(run.TestBeforeName))
		return eval.NewReport(samples), nil
	}
	return t.measure(ctx, run.TestBeforeName, "before", "nothing was trained yet")
}

// readStored reads a measurement of this very test split; it is empty where there is no file.
func (t *training) readStored(name string) (samples []eval.Sample, err error) {
	same := true
	err = t.Folder.ReadLines(name, func(text []byte) error {
		var row eval.Row
		if err := json.Unmarshal(text, &row); err != nil {
			return err
		}
		i := len(samples)
		if same = same && i < len(t.test); same {
			c := &t.test[i]
			same = row.Item == c.Item.Source && row.Prompt.Plain == c.Text()
			a := rollout.Answer{Text: row.Completion, Tokens: row.Tokens, Reason: row.Reason}
			samples = append(samples, c.Score(i, 0, a, t.o.Reward))
		}
		return nil
	})
	if err != nil || same && len(samples) == 0 {
		return nil, err
	}
	if !same || len(samples) != len(t.test) {
		return nil, fmt.Errorf("%s: the test data is not what the run was started with: start a new run with --out DIR",
			t.Folder.Path(name))
	}
	return samples, nil
}

// testDraws makes the test's draws other ones than those of the same seed elsewhere.
const testDraws = 0x74657374

// measure draws a completion of every test prompt from the present weights. The draws follow from the seed and the
// prompt's place alone, so before and after differ by the weights, not by luck.
func (t *training) measure(ctx context.Context, name, when, done string) (*eval.Report, error) {
	if len(t.test) == 0 {
		return nil, nil
	}
	t.Say("test of %d prompts %s training", len(t.test), when)
	bar := t.Progress("prompt", 0, len(t.test))
	defer bar.Close()
	chat := t.chat
	chat.Tick = func(done int) { bar.Step(done, nil) }
	eval.SeedDraws(t.test, t.Seed^testDraws)
	samples, err := eval.Ask(ctx, &chat, t.test, t.o.Reward)
	if err != nil && ctx.Err() != nil {
		return nil, t.StopError("during the test %s training; %s", when, done)
	}
	if err != nil {
		return nil, fmt.Errorf("test %s training: %w", when, err)
	}
	rows := make([]any, len(samples))
	for i, s := range samples {
		rows[i] = plainRow(s)
	}
	return eval.NewReport(samples), t.Folder.WriteLines(name, rows...)
}

// plainRow is a sample's row with the prompt as plain text.
func plainRow(s eval.Sample) eval.Row {
	row := s.Row()
	row.Prompt = data.Text{Plain: s.Case.Text()}
	return row
}
