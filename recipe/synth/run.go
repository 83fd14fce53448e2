package synth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// The stages of a run that writes items.
const (
	stageVignettes = "vignettes"
	stageItems     = "items"
	stageGates     = "gates"
)

// The files of a run's folder, with settings.json, config.yaml and, of a model, its replies and prompts.
const (
	SeedsName     = "seeds.jsonl"     // what was drawn or read
	VignettesName = "vignettes.jsonl" // Sketch, as they come
	DraftsName    = "drafts.jsonl"    // Draft, as they come
	ItemsName     = "items.jsonl"     // those that pass the gates
	RejectedName  = "rejected.jsonl"  // Rejected
	repliesName   = "replies.jsonl"
	promptsName   = "prompts"
)

// Seed is a seed with its number, from 1. Count is how many vignettes it gets.
type Seed struct {
	ID string `json:"id"`
	ci.Seed
	Count int `json:"vignettes"`

	number, total int
}

// Sketch is what became of a seed: vignettes, or a fault.
type Sketch struct {
	ID        string    `json:"id"`
	Vignettes []ci.Seed `json:"vignettes"`
	Outcome
}

// Draft is what became of a vignette: an item, or a fault.
type Draft struct {
	ID   string   `json:"id"`
	Item *ci.Item `json:"item,omitempty"`
	Outcome
}

// Outcome says how a piece of work ended.
type Outcome struct {
	Repaired bool     `json:"repaired,omitempty"` // the model was asked a second time
	Faults   []string `json:"faults,omitempty"`   // of the last reply
	Reply    string   `json:"reply,omitempty"`    // the last one, if it cannot be used
}

// author writes vignettes and items.
type author interface {
	vignettes(ctx context.Context, s Seed) (Sketch, error)
	item(ctx context.Context, id string, v ci.Seed) (Draft, error)
	settings(stage string) map[string]string // what rows of the stage depend on
	values() map[string]float64              // for the progress bar; may be nil
	close() error
}

// Result is what was written.
type Result struct{ Summary string }

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Run writes demonstrations into the file Options.Out, or items into the folder Options.Out. An interrupted run of
// items continues with the same options, and asks nothing twice. A nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	if o.Form == Demonstrations {
		return demonstrate(o)
	}
	w := &writing{o: o, Evaluation: bench.Evaluation{
		Place:    bench.Place{Dir: o.Out, Stages: []string{stageVignettes, stageItems, stageGates}},
		Reporter: run.Listen(r)}}
	defer w.close()
	result, err := w.run(ctx)
	if err != nil && ctx.Err() != nil && w.Stage != "" {
		return nil, fmt.Errorf("%w in stage %s of %s; the same command continues", recipe.ErrInterrupted, w.Stage,
			o.Out)
	}
	return result, err
}

// demonstrate writes demonstrations of the templates' items.
func demonstrate(o Options) (*Result, error) {
	items := ci.Synthesize(o.N, o.Seed)
	if o.HeldOut {
		items = ci.SynthesizeHeldOut(o.N, o.Seed)
	}
	err := data.WriteDemonstrations(o.Out, ci.Demonstrations(items, o.Flaws, o.Seed))
	return &Result{fmt.Sprintf("%s: %d demonstrations\n", o.Out, o.N)}, err
}

// writing is a run.
type writing struct {
	bench.Evaluation
	o        Options
	seeds    []Seed
	store    *bench.Store
	author   author
	sketches []Sketch // in the order of seeds
	drafts   []Draft  // in the order of vignettes
	result   *Result
}

func (w *writing) run(ctx context.Context) (*Result, error) {
	err := w.prepare()
	err = w.Do(ctx, err, stageVignettes, w.sketch)
	err = w.Do(ctx, err, stageItems, w.draft)
	if err == nil && w.author != nil {
		err, w.author = w.author.close(), nil
	}
	err = w.Do(ctx, err, stageGates, w.examine)
	return w.result, err
}

// close leaves the folder to other processes.
func (w *writing) close() {
	if w.author != nil {
		_ = w.author.close()
	}
	if w.Folder != nil {
		w.Folder.Close()
	}
}

// prepare reads what is asked for, and opens the folder and the author.
func (w *writing) prepare() (err error) {
	if w.o.Engine == Model {
		if err := w.o.Writer.CheckKeyOf("writer"); err != nil {
			return err
		}
	}
	if w.seeds, err = w.o.readSeeds(w.Reporter); err != nil {
		return err
	}
	prompts, err := loadPrompts(w.o.Prompts)
	if err != nil {
		return err
	}
	if err := w.openFolder(); err != nil {
		return err
	}
	if err := w.keepAsked(prompts); err != nil {
		return err
	}
	if w.o.Engine == Templates {
		w.author = templates{w.o.Seed, w.o.HeldOut}
		return nil
	}
	m, err := openModel(w.o, prompts, w.store, w.Reporter)
	if err != nil {
		return err
	}
	w.author = m
	return nil
}

// keepAsked writes seeds and prompts: into a new folder at once, and into one that is there when the stage that they
// belong to goes on with them. Those of a run that is refused stay as they are.
func (w *writing) keepAsked(p *prompts) error {
	write := func(stage string) error {
		switch {
		case stage == stageVignettes:
			return data.WriteLines(w.store.Path(SeedsName), len(w.seeds), func(i int) any { return w.seeds[i] })
		case stage == stageItems && w.o.Engine == Model:
			return p.write(w.Folder)
		}
		return nil
	}
	if w.Continuing {
		w.store.Accepted = write
		return nil
	}
	return errors.Join(write(stageVignettes), write(stageItems))
}

// openFolder opens the run folder, a new one or one of this command.
func (w *writing) openFolder() (err error) {
	w.Continuing = w.Continues()
	if w.Continuing {
		text, err := os.ReadFile(filepath.Join(w.o.Out, "config.yaml"))
		if command := config.CommandOf(text); err == nil && command != Command {
			return fmt.Errorf("out %s: it has a run of posttrain %s: name another folder", w.o.Out, command)
		}
	}
	save := func() error { return w.Folder.WriteConfig(Spec.Resolve(&w.o)) }
	names := []string{bench.SettingsName, bench.UsageName, SeedsName, ItemsName, RejectedName}
	if err := w.Open("data-synth", names, save); err != nil {
		return err
	}
	w.store, err = bench.OpenStore(w.Dir, "")
	w.store.Held = w.Folder.Held
	return err
}

// readSeeds reads or draws the seeds, and the number of vignettes of each.
func (o *Options) readSeeds(r run.Reporter) (all []Seed, err error) {
	var seeds []ci.Seed
	if o.Seeds == "" {
		seeds, err = o.draw()
	} else {
		var report *data.Report
		if seeds, report, err = ci.ReadSeeds(o.Seeds); err == nil {
			r.Say("%s", report)
		}
	}
	if err != nil {
		return nil, err
	}
	least, most := o.PerSeed[0], o.PerSeed[1]
	for i, s := range seeds {
		count := least + int(bench.SeedOf(o.Seed, fmt.Sprint("count ", i))%uint64(most-least+1))
		if s.IsVignette() {
			count = 1
		}
		all = append(all, Seed{ID: fmt.Sprintf("%04d", i+1), Seed: s, Count: count, number: i + 1, total: len(seeds)})
	}
	return all, nil
}

// sketch gets the vignettes of the seeds.
func (w *writing) sketch(ctx context.Context) error {
	luck := luck{what: "vignettes"}
	var err error
	w.sketches, err = fill(ctx, w, stageVignettes, "seed", VignettesName, w.seeds,
		func(ctx context.Context, s Seed) (Sketch, error) {
			if s.IsVignette() {
				return Sketch{ID: s.ID, Vignettes: []ci.Seed{s.Seed}}, nil
			}
			return w.author.vignettes(ctx, s)
		}, func(s *Sketch) error { return luck.count(len(s.Vignettes) > 0, s.Outcome) })
	return cmp.Or(err, luck.check(1))
}

// vignette is a vignette with its name.
type vignette struct {
	ID   string
	Seed ci.Seed
}

// draft gets the items of the vignettes.
func (w *writing) draft(ctx context.Context) error {
	var all []vignette
	for _, s := range w.sketches {
		for i, v := range s.Vignettes {
			all = append(all, vignette{fmt.Sprintf("%s-%d", s.ID, i+1), v})
		}
	}
	luck := luck{what: "items"}
	var err error
	w.drafts, err = fill(ctx, w, stageItems, "item", DraftsName, all,
		func(ctx context.Context, v vignette) (Draft, error) { return w.author.item(ctx, v.ID, v.Seed) },
		func(d *Draft) error { return luck.count(d.Item != nil, d.Outcome) })
	return cmp.Or(err, luck.check(1))
}

func (s Sketch) name() string   { return s.ID }
func (s Sketch) usable() bool   { return len(s.Vignettes) > 0 }
func (d Draft) name() string    { return d.ID }
func (d Draft) usable() bool    { return d.Item != nil }
func (s Seed) name() string     { return s.ID }
func (v vignette) name() string { return v.ID }

// fill does the work of a stage that is not in its journal yet, and returns all rows in the order of the tasks. note
// hears of each row, one call at a time; an error of it ends the stage.
func fill[T interface{ name() string }, R interface {
	name() string
	usable() bool
}](ctx context.Context, w *writing, stage, unit, file string, tasks []T, do func(context.Context, T) (R, error),
	note func(*R) error) ([]R, error) {
	values := func(bench.Progress) map[string]float64 { return w.author.values() }
	tick := w.Progress(unit, values)
	binds := func(row *R, _ map[string]string) bool { return (*row).usable() }
	s, err := bench.Begin(w.store, stage, file, w.settings(stage), tick, binds)
	if err != nil {
		return nil, err
	}
	place := map[string]int{}
	for i, t := range tasks {
		place[t.name()] = i
	}
	rows, done := make([]R, len(tasks)), make([]bool, len(tasks))
	keep := func(row R) error {
		i, ok := place[row.name()]
		if !ok || done[i] {
			return fmt.Errorf("%s: row %q is there twice, or of another run: name another --out DIR", s.Path(),
				row.name())
		}
		rows[i], done[i] = row, true
		return note(&row)
	}
	for _, row := range s.Rows {
		if err := keep(row); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	var todo []T
	for i, t := range tasks {
		if !done[i] {
			todo = append(todo, t)
		}
	}
	s.Now.Done, s.Now.Total = len(s.Rows), len(tasks)
	var one sync.Mutex
	return rows, s.Run(ctx, func() error {
		return bench.InParallel(ctx, w.o.parallel(), len(todo), func(ctx context.Context, i int) error {
			row, err := do(ctx, todo[i])
			if err != nil {
				return err
			}
			one.Lock()
			defer one.Unlock()
			if err := s.Note(row, func(p *bench.Progress) { p.Done++ }); err != nil {
				return err
			}
			return keep(row)
		})
	})
}

// parallel is how many pieces of work are under way. Twice as many callers keep a server busy while replies go to disk.
func (o *Options) parallel() int {
	if o.Engine == Model {
		return 2*o.Writer.Parallel - 1
	}
	return 1
}

// settings are what the rows of a stage depend on.
func (w *writing) settings(stage string) map[string]string {
	all := w.author.settings(stage)
	all["kind"], all["seed"], all["per_seed"] = w.o.Engine, fmt.Sprint(w.o.Seed), fmt.Sprint(w.o.PerSeed)
	if w.o.Seeds != "" {
		all["seeds"] = bench.HashCases(w.seeds)
		return all
	}
	all["n"] = fmt.Sprint(w.o.N)
	for key, values := range map[string][]string{"domains": w.o.Domains, "principles": w.o.Principles,
		"scenarios": w.o.Scenarios} {
		all[key] = strings.Join(values, ",")
	}
	return all
}

// luck counts replies that can be used.
type luck struct {
	what      string
	all, good int
	last      Outcome
}

func (l *luck) count(good bool, o Outcome) error {
	l.all++
	if good {
		l.good++
	} else {
		l.last = o
	}
	return l.check(bench.Patience)
}

// check returns an error if enough is done and nothing can be used.
func (l *luck) check(enough int) error {
	if l.good > 0 || l.all < enough {
		return nil
	}
	return fmt.Errorf("the model writes no %s: no reply to %d questions can be used, after a second try each; the "+
		"last: %s: %q: want another model", l.what, l.all, strings.Join(l.last.Faults, "; "),
		data.OneLine(l.last.Reply, 80))
}
