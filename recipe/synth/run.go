package synth

import (
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
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/rollout/remote"
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
	Repaired int      // how many questions the model was asked a second time
	Faults   []string // of the last reply
	Reply    string   // the last one, if it cannot be used
}

// Result is what was written.
type Result struct{ Summary string }

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Run writes demonstrations into the file Options.Out, or items into the folder Options.Out. Each reply of a model is
// in the folder before the next question: an interrupted run continues with the same options, and asks nothing twice. A
// nil Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	if !o.writes() {
		items := o.items()
		if o.Agent != "" {
			return o.writeEpisodes(items)
		}
		err := data.WriteAll(o.Out, ci.Demonstrations(items, o.Flaws, o.Seed))
		return &Result{fmt.Sprintf("%s: %d demonstrations\n", o.Out, o.N)}, err
	}
	result, err := (&writing{Reporter: run.Listen(r), o: o}).run(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w while %s was written; the same command continues", recipe.ErrInterrupted, o.Out)
	}
	return result, err
}

// items are synthetic scenarios.
func (o *Options) items() []ci.Item {
	switch {
	case o.Policy == rl.Drawn:
		return ci.SynthesizeNorms(o.N, o.Seed, o.HeldOut)
	case o.HeldOut:
		return ci.SynthesizeHeldOut(o.N, o.Seed)
	}
	return ci.Synthesize(o.N, o.Seed)
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

func (w *writing) run(ctx context.Context) (*Result, error) {
	if err := w.o.Writer.CheckKey("writer"); err != nil {
		return nil, err
	}
	w.seeds = w.o.drawSeeds()
	if err := w.openFolder(); err != nil {
		return nil, err
	}
	m, err := openModel(w.o, w.path(repliesName), w)
	if err != nil {
		return nil, err
	}
	err = errors.Join(w.write(ctx, m), m.client.Close())
	t := m.client.Stats()
	w.Say("%s: %d replies, %d of them from %s; %d requests, cost %.4g", writerName, t.Replies, t.Cached,
		w.path(repliesName), t.Requests, t.Cost)
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
	if err := files.CheckContained(w.o.Out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("out %w", err)
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
	if err := files.MakeAll(w.o.Out, 0o777); err != nil {
		return fmt.Errorf("out %s: %w", w.o.Out, run.Cause(err))
	}
	return errors.Join(data.WriteJSON(w.path(settingsName), now),
		files.Replace(w.path("config.yaml"), Spec.Resolve(&w.o), 0o666),
		data.WriteLines(w.path(SeedsName), len(w.seeds), func(i int) any { return w.seeds[i] }))
}

// settings are what the items depend on.
func (w *writing) settings() map[string]string {
	o := &w.o
	return map[string]string{"seed": fmt.Sprint(o.Seed), "per_seed": fmt.Sprint(o.PerSeed), "n": fmt.Sprint(o.N),
		"seeds": bench.HashCases(w.seeds), "domains": strings.Join(o.Domains, ","),
		"principles": strings.Join(o.Principles, ","), "scenarios": strings.Join(o.Scenarios, ","),
		"model": o.Writer.Model, "temperature": fmt.Sprint(o.Writer.Temperature), "agent": o.Agent, "policy": o.Policy}
}

// drawSeeds draws the seeds, and the number of vignettes of each.
func (o *Options) drawSeeds() (all []Seed) {
	least, most := o.PerSeed[0], o.PerSeed[1]
	for i, s := range o.Plan.Draw(o.N, o.Seed) {
		count := least + int(bench.SeedOf(o.Seed, fmt.Sprint("count ", i))%uint64(most-least+1))
		all = append(all, Seed{ID: fmt.Sprintf("%04d", i+1), Seed: s, Count: count, number: i + 1, total: o.N})
	}
	return all
}

// write gets the vignettes of each seed and their items.
func (w *writing) write(ctx context.Context, m *model) error {
	w.sketches, w.asked = make([][]ci.Seed, len(w.seeds)), make([]Outcome, len(w.seeds))
	drafts := make([][]Draft, len(w.seeds))
	bar := w.Progress("seed", 0, len(w.seeds))
	defer bar.Close()
	done := make(chan int, len(w.seeds))
	// Twice as many callers keep the server busy while replies go to disk.
	err := remote.InParallel(ctx, 2*w.o.Writer.Parallel-1, len(w.seeds), func(ctx context.Context, i int) (err error) {
		s := w.seeds[i]
		if w.sketches[i], w.asked[i], err = m.vignettes(ctx, s); err != nil {
			return err
		}
		for k, v := range w.sketches[i] {
			d := Draft{ID: fmt.Sprintf("%s-%d", s.ID, k+1)}
			if d.Item, d.Outcome, err = m.item(ctx, v); err != nil {
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

// Rejected is an item that fails gates, or a vignette that became no item.
type Rejected struct {
	ID       string            `json:"id"`
	Findings []records.Finding `json:"findings"`
	Item     *ci.Item          `json:"item,omitempty"`
	Reply    string            `json:"reply,omitempty"`
}

// Summary is summary.json.
type Summary struct {
	Model     string                    `json:"model"`
	Seeds     int                       `json:"seeds"`
	Fruitless int                       `json:"seeds_without_vignettes"`
	Vignettes int                       `json:"vignettes"`
	Repaired  int                       `json:"repaired_replies"`
	Accepted  int                       `json:"accepted"`
	Rejected  int                       `json:"rejected"`
	Gates     map[string]int            `json:"rejected_by_gate"` // an item may fail several
	Counts    map[string]map[string]int `json:"accepted_by"`      // field and value

	census ci.Census
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
		err = data.WriteAll(w.path(ItemsName), accepted)
	}
	if err != nil {
		return nil, err
	}
	return &Result{w.describe(sum)}, nil
}

// sort divides the drafts. Near-duplicates are looked for among the items that pass the other gates.
func (w *writing) sort() (accepted []ci.Item, rejected []Rejected) {
	for _, d := range w.drafts {
		findings := []records.Finding{{Gate: "schema", Place: "reply", Reason: strings.Join(d.Faults, "; ")}}
		if d.Item != nil {
			if findings = records.Gates(d.Item); w.o.Agent != "" {
				findings = append(findings, d.ofDocuments(len(findings) > 0)...)
			}
			d.Reply = ""
		}
		if len(findings) > 0 {
			rejected = append(rejected, Rejected{d.ID, findings, d.Item, d.Reply})
			continue
		}
		d.Item.Source = d.ID
		accepted = append(accepted, *d.Item)
	}
	twice := map[string]bool{}
	for i, f := range records.Duplicates(accepted, w.o.Near) {
		item := accepted[i]
		twice[item.Source] = true
		rejected = append(rejected, Rejected{item.Source, []records.Finding{f}, &item, ""})
	}
	slices.SortFunc(rejected, func(a, b Rejected) int { return strings.Compare(a.ID, b.ID) })
	return slices.DeleteFunc(accepted, func(item ci.Item) bool { return twice[item.Source] }), rejected
}

// ofDocuments is what is wrong with an item's documents, unless gates have found it.
func (d Draft) ofDocuments(found bool) []records.Finding {
	faults := d.Faults
	if len(d.Item.Scene.Documents) == 0 {
		faults = append(faults, "it has no documents")
	} else if found || len(faults) == 0 {
		return nil
	}
	return []records.Finding{{Gate: "document", Place: "reply", Reason: strings.Join(faults, "; ")}}
}

func (w *writing) summarize(accepted []ci.Item, rejected []Rejected) Summary {
	s := Summary{Model: w.o.Writer.Model, Seeds: len(w.seeds), Vignettes: len(w.drafts), Accepted: len(accepted),
		Rejected: len(rejected), Gates: map[string]int{}}
	for i, vignettes := range w.sketches {
		if len(vignettes) == 0 {
			s.Fruitless++
		}
		s.Repaired += w.asked[i].Repaired
	}
	for _, d := range w.drafts {
		s.Repaired += d.Repaired
	}
	for _, r := range rejected {
		failed := map[string]bool{}
		for _, f := range r.Findings {
			failed[f.Gate] = true
		}
		for gate := range failed {
			s.Gates[gate]++
		}
	}
	for i := range accepted {
		s.census.Add(&accepted[i])
	}
	s.Counts = map[string]map[string]int{"scenario": s.census.Scenarios, "domain": s.census.Domains,
		"principle": s.census.Principles}
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
	return strings.Join(append([]string{text}, s.census.Lines()...), "\n") + "\n"
}
