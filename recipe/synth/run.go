package synth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// The files of a run's folder, beside its config and, of a model, its replies.
const (
	SeedsName    = "seeds.jsonl"    // what was drawn or read
	ItemsName    = "items.jsonl"    // those that pass the gates
	RejectedName = "rejected.jsonl" // Rejected
	settingsName = "settings.json"
	repliesName  = "replies.jsonl"
)

// Seed is a seed with its number, from 1. Count is how many vignettes it gets.
type Seed struct {
	ID string `json:"id"`
	ci.Seed
	Count int `json:"vignettes"`

	number, total int
}

// Draft is what became of a vignette: an item, or faults.
type Draft struct {
	ID   string
	Item *ci.Item
	Outcome
}

// Outcome says how a piece of work ended.
type Outcome struct {
	Repaired bool     // the model was asked a second time
	Faults   []string // of the last reply
	Reply    string   // the last one, if it cannot be used
}

// author writes vignettes and items.
type author interface {
	vignettes(ctx context.Context, s Seed) ([]ci.Seed, Outcome, error)
	item(ctx context.Context, id string, v ci.Seed) (*ci.Item, Outcome, error)
}

// Result is what was written.
type Result struct{ Summary string }

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Run writes demonstrations into the file Options.Out, or items into the folder Options.Out. Each reply of a model is in
// the folder before the next question: an interrupted run continues with the same options, and asks nothing twice. A nil
// Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	if o.Form == Demonstrations {
		return demonstrate(o)
	}
	result, err := (&writing{Reporter: run.Listen(r), o: o}).run(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w while %s was written; the same command continues", recipe.ErrInterrupted, o.Out)
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
	run.Reporter
	o        Options
	seeds    []Seed
	sketches [][]ci.Seed // vignettes of each seed
	asked    []Outcome   // for the vignettes
	drafts   []Draft     // in the order of vignettes
}

func (w *writing) path(name string) string { return filepath.Join(w.o.Out, name) }

func (w *writing) run(ctx context.Context) (result *Result, err error) {
	if w.o.Engine == Model {
		if err := w.o.Writer.CheckKey("writer"); err != nil {
			return nil, err
		}
	}
	if w.seeds, err = w.o.readSeeds(w); err != nil {
		return nil, err
	}
	if err := w.openFolder(); err != nil {
		return nil, err
	}
	if w.o.Engine == Templates {
		err = w.write(ctx, templates{w.o.Seed, w.o.HeldOut})
	} else {
		var m *model
		if m, err = openModel(w.o, w.path(repliesName), w); err == nil {
			err = errors.Join(w.write(ctx, m), m.client.Close())
			t := m.client.Stats()
			w.Say("%s: %d replies, %d of them from %s; %d requests, cost %.4g", writerName, t.Replies, t.Cached,
				w.path(repliesName), t.Requests, t.Cost)
		}
	}
	if err != nil {
		return nil, err
	}
	return w.examine()
}

// openFolder makes the folder, or continues in one of this command with the same settings. As long as there are no
// items, others take their place.
func (w *writing) openFolder() error {
	if text, err := os.ReadFile(w.path("config.yaml")); err == nil {
		if command := config.CommandOf(text); command != Command {
			return fmt.Errorf("out %s: it has a run of posttrain %s: name another folder", w.o.Out, command)
		}
	} else if entries, err := os.ReadDir(w.o.Out); err == nil && len(entries) > 0 {
		return fmt.Errorf("out %s is not empty (it holds %s): name another folder", w.o.Out, entries[0].Name())
	}
	now, before := w.settings(), map[string]string{}
	text, err := os.ReadFile(w.path(settingsName))
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	if _, none := os.Stat(w.path(ItemsName)); err == nil && none == nil {
		for _, key := range slices.Sorted(maps.Keys(now)) {
			if now[key] != before[key] {
				return fmt.Errorf("%s: it was begun with %s %q, now it is %q: continue with that, or name another --out DIR",
					w.o.Out, key, before[key], now[key])
			}
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", w.path(settingsName), run.Cause(err))
	}
	if err := os.MkdirAll(w.o.Out, 0o777); err != nil {
		return fmt.Errorf("out %s: %w", w.o.Out, run.Cause(err))
	}
	return errors.Join(data.WriteJSON(w.path(settingsName), now),
		os.WriteFile(w.path("config.yaml"), Spec.Resolve(&w.o), 0o666),
		data.WriteLines(w.path(SeedsName), len(w.seeds), func(i int) any { return w.seeds[i] }))
}

// settings are what the items depend on.
func (w *writing) settings() map[string]string {
	o := &w.o
	all := map[string]string{"kind": o.Engine, "seed": fmt.Sprint(o.Seed), "per_seed": fmt.Sprint(o.PerSeed),
		"seeds": bench.HashCases(w.seeds), "held_out": fmt.Sprint(o.HeldOut)}
	if o.Seeds == "" {
		all["n"] = fmt.Sprint(o.N)
		all["domains"], all["principles"] = strings.Join(o.Domains, ","), strings.Join(o.Principles, ",")
		all["scenarios"] = strings.Join(o.Scenarios, ",")
	}
	if o.Engine == Model {
		all["model"], all["temperature"] = o.Writer.Model, fmt.Sprint(o.Writer.Temperature)
	}
	return all
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

// write gets the vignettes of each seed and their items.
func (w *writing) write(ctx context.Context, a author) error {
	w.sketches, w.asked = make([][]ci.Seed, len(w.seeds)), make([]Outcome, len(w.seeds))
	drafts := make([][]Draft, len(w.seeds))
	bar := w.Progress("seed", 0, len(w.seeds))
	defer bar.Close()
	done := make(chan int, len(w.seeds))
	err := bench.InParallel(ctx, w.o.parallel(), len(w.seeds), func(ctx context.Context, i int) (err error) {
		s := w.seeds[i]
		if s.IsVignette() {
			w.sketches[i] = []ci.Seed{s.Seed}
		} else if w.sketches[i], w.asked[i], err = a.vignettes(ctx, s); err != nil {
			return err
		}
		for k, v := range w.sketches[i] {
			d := Draft{ID: fmt.Sprintf("%s-%d", s.ID, k+1)}
			if d.Item, d.Outcome, err = a.item(ctx, d.ID, v); err != nil {
				return err
			}
			drafts[i] = append(drafts[i], d)
		}
		done <- i
		bar.Step(len(done), nil)
		return nil
	})
	w.drafts = slices.Concat(drafts...)
	if err == nil && len(w.drafts) == 0 {
		l := luck{what: "vignettes", all: len(w.seeds)}
		err = l.err(w.asked[len(w.asked)-1])
	}
	return err
}

// parallel is how many pieces of work are under way. Twice as many callers keep a server busy while replies go to disk.
func (o *Options) parallel() int {
	if o.Engine == Model {
		return 2*o.Writer.Parallel - 1
	}
	return 1
}

// templates is the author without a model. An item is drawn by the seed and the item's name alone.
type templates struct {
	seed    uint64
	heldOut bool
}

// vignettes are the seeds of the items that are written later.
func (t templates) vignettes(ctx context.Context, s Seed) (all []ci.Seed, o Outcome, err error) {
	for i := range s.Count {
		item, _, err := t.item(ctx, fmt.Sprintf("%s-%d", s.ID, i+1), s.Seed)
		if err != nil {
			return nil, o, err
		}
		all = append(all, item.Seed)
	}
	return all, o, nil
}

func (t templates) item(_ context.Context, id string, s ci.Seed) (*ci.Item, Outcome, error) {
	item, ok := ci.Compose(s, bench.SeedOf(t.seed, id), t.heldOut)
	if !ok {
		return nil, Outcome{}, fmt.Errorf("the templates have no task of the domain %s for %s", s.Domain,
			s.TransmissionPrinciple)
	}
	return &item, Outcome{}, nil
}

// Rejected is an item that fails gates, or a vignette that became no item.
type Rejected struct {
	ID       string            `json:"id"`
	Findings []records.Finding `json:"findings"`
	Item     *ci.Item          `json:"item,omitempty"`
	Reply    string            `json:"reply,omitempty"`
}

// Summary is summary.json.
type Summary struct {
	Engine    string                    `json:"engine"`
	Model     string                    `json:"model,omitempty"`
	Seeds     int                       `json:"seeds"`
	Fruitless int                       `json:"seeds_without_vignettes"`
	Vignettes int                       `json:"vignettes"`
	Repaired  int                       `json:"repaired_replies"`
	Accepted  int                       `json:"accepted"`
	Rejected  int                       `json:"rejected"`
	Gates     map[records.Gate]int      `json:"rejected_by_gate"` // an item may fail several
	Counts    map[string]map[string]int `json:"accepted_by"`      // field and value
}

// examine takes the drafts through the gates, and writes what passes and what does not.
func (w *writing) examine() (*Result, error) {
	accepted, rejected := w.sort()
	sum := w.summarize(accepted, rejected)
	err := errors.Join(data.WriteLines(w.path(RejectedName), len(rejected), func(i int) any { return rejected[i] }),
		data.WriteJSON(w.path("summary.json"), sum))
	if err == nil && len(accepted) == 0 {
		err = fmt.Errorf("none of %d items passes the gates (%s): %s says why", len(w.drafts),
			records.DescribeGates(sum.Gates), w.path(RejectedName))
	}
	if err == nil {
		err = ci.Write(w.path(ItemsName), accepted)
	}
	if err != nil {
		return nil, err
	}
	return &Result{w.describe(sum)}, nil
}

// sort divides the drafts. Near-duplicates are looked for among the items that pass the other gates.
func (w *writing) sort() (accepted []ci.Item, rejected []Rejected) {
	for _, d := range w.drafts {
		findings := []records.Finding{{Gate: records.Schema, Place: "reply", Reason: strings.Join(d.Faults, "; ")}}
		if d.Item != nil {
			d.Reply, findings = "", records.Gates(d.Item)
		}
		if len(findings) > 0 {
			rejected = append(rejected, Rejected{d.ID, findings, d.Item, d.Reply})
			continue
		}
		d.Item.Source = d.ID
		accepted = append(accepted, *d.Item)
	}
	twice := map[string]bool{}
	for _, f := range records.Duplicates(accepted, w.o.Near) {
		item := accepted[f.Item]
		twice[item.Source] = true
		rejected = append(rejected, Rejected{item.Source, []records.Finding{f}, &item, ""})
	}
	slices.SortFunc(rejected, func(a, b Rejected) int { return strings.Compare(a.ID, b.ID) })
	return slices.DeleteFunc(accepted, func(item ci.Item) bool { return twice[item.Source] }), rejected
}

func (w *writing) summarize(accepted []ci.Item, rejected []Rejected) Summary {
	s := Summary{Engine: w.o.Engine, Seeds: len(w.seeds), Vignettes: len(w.drafts), Accepted: len(accepted),
		Rejected: len(rejected), Counts: map[string]map[string]int{}}
	if w.o.Engine == Model {
		s.Model = w.o.Writer.Model
	}
	for i, vignettes := range w.sketches {
		if len(vignettes) == 0 {
			s.Fruitless++
		}
		if w.asked[i].Repaired {
			s.Repaired++
		}
	}
	for _, d := range w.drafts {
		if d.Repaired {
			s.Repaired++
		}
	}
	var findings [][]records.Finding
	for _, r := range rejected {
		findings = append(findings, r.Findings)
	}
	s.Gates = records.CountGates(findings...)
	var kept ci.Census
	for i := range accepted {
		kept.Add(&accepted[i])
	}
	s.Counts["scenario"], s.Counts["domain"], s.Counts["principle"] = kept.Scenarios, kept.Domains, kept.Principles
	return s
}

// describe is the summary in words.
func (w *writing) describe(s Summary) string {
	text := fmt.Sprintf("%s: %d of %d items pass the gates", w.path(ItemsName), s.Accepted, s.Vignettes)
	if s.Rejected > 0 {
		text += fmt.Sprintf("; %d do not: %s (%s)", s.Rejected, records.DescribeGates(s.Gates), w.path(RejectedName))
	}
	if s.Fruitless > 0 {
		text += fmt.Sprintf("\n%d of %d seeds have no vignettes", s.Fruitless, s.Seeds)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Counts)) {
		var parts []string
		for _, value := range slices.Sorted(maps.Keys(s.Counts[name])) {
			parts = append(parts, fmt.Sprintf("%s %d", cmp.Or(value, "(none)"), s.Counts[name][value]))
		}
		text += fmt.Sprintf("\n%s: %s", name, strings.Join(parts, ", "))
	}
	return text + "\n"
}
