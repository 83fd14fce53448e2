package evalci

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/scenarios"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

// Result is what was measured.
type Result struct {
	Report  *eval.Report
	Samples []eval.Sample
	Left    eval.Left      // scenarios that the model does not take
	Usage   *rollout.Usage // of a server
	Summary string         // in words
}

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Run puts scenarios to a model, scores its answers, and reports. A nil Reporter is silent. There is a result beside
// the error of files that could not be written.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	r = run.Listen(r)
	set, err := o.Read(r)
	if err != nil {
		return nil, err
	}
	cases, err := o.Cases(set, o.Samples)
	if err != nil {
		return nil, err
	}
	e := &evaluation{Reporter: r, o: o, set: set, cases: cases}
	ask := e.askModel
	if o.Server.BaseURL != "" {
		ask = e.askServer
	}
	undo, err := makeFolder(o.Out)
	if err != nil {
		return nil, err
	}
	if err := ask(ctx); err != nil {
		undo()
		return nil, err
	}
	e.result.Report = eval.NewReport(e.result.Samples)
	return &e.result, cmp.Or(e.report(), e.write())
}

// evaluation is a measurement on its way.
type evaluation struct {
	run.Reporter
	o      Options
	set    scenarios.Set
	cases  []eval.Case
	result Result
}

// askModel lets a model of this process answer.
func (e *evaluation) askModel(ctx context.Context) error {
	m, err := local.OpenWith(local.Options{Backend: e.o.Backend, Model: e.o.Model, Adapter: e.o.Adapter,
		CacheGB: e.o.CacheGB, Chat: e.o.Options.Chat})
	if err != nil {
		return err
	}
	defer m.Close()
	recipe.ReportEngine(m.Engine, e)
	if e.cases, e.result.Left, err = e.o.Fit(m, e.cases, e); err != nil {
		return err
	}
	return e.ask(ctx, func(tick func(done int)) (rollout.Chat, error) { return m.Chat(tick), nil })
}

// askServer lets a server's model answer.
func (e *evaluation) askServer(ctx context.Context) error {
	for i := range e.cases {
		e.cases[i].Opened = e.o.Server.ThinkOpened
	}
	var server *rollout.Remote
	err := e.ask(ctx, func(tick func(done int)) (chat rollout.Chat, err error) {
		server, err = e.o.Server.OpenAs(e.o.Server.dialect(), tick, e.Warn)
		return server, err
	})
	if err == nil {
		usage := server.Usage()
		e.result.Usage = &usage
	}
	return err
}

func (e *evaluation) ask(ctx context.Context, open func(tick func(done int)) (rollout.Chat, error)) (err error) {
	eval.SeedDraws(e.cases, e.o.Seed)
	e.result.Samples, err = e.o.Ask(ctx, e, e.cases, open)
	return err
}

// report says in words what was measured.
func (e *evaluation) report() error {
	var s strings.Builder
	faults := map[string]int{}
	often := ""
	for _, a := range e.result.Samples {
		if a.Item < e.o.Show {
			fmt.Fprintf(&s, "%s\n%s\nreward %.2f\n\n", a.Case.Text(), a.Answer.Text, a.Score.Reward)
		}
		if faults[a.Score.Fault]++; faults[a.Score.Fault] > faults[often] {
			often = a.Score.Fault
		}
	}
	name := e.o.Model
	if server := e.o.Server; server.BaseURL != "" {
		name = server.Model + " on " + server.BaseURL
	}
	fmt.Fprintf(&s, "%s: %s, prompt %s\n", name, e.set.What, e.o.Prompt)
	if kept := e.result.Report.All.Format.Share(); kept.Count == 0 {
		e.Warn("no answer keeps the format (most often: %s): integrity then says nothing", often)
	}
	err := e.result.Report.Write(&s)
	if err == nil && e.o.Published {
		err = e.result.Report.All.WriteBesidePublished(&s, name)
	}
	e.result.Summary = s.String()
	return err
}

// summaryFile is summary.json.
type summaryFile struct {
	Model       string         `json:"model"`
	BaseURL     string         `json:"base_url,omitempty"`
	Data        string         `json:"data"`
	Split       string         `json:"split,omitempty"`
	SplitSeed   *uint64        `json:"split_seed,omitempty"`
	Prompt      string         `json:"prompt"`
	Prefill     bool           `json:"prefill"`
	Samples     int            `json:"samples"`
	Temperature float64        `json:"temperature"`
	MaxNew      int            `json:"max_new_tokens"`
	Seed        uint64         `json:"seed"`
	Format      string         `json:"format"`
	Match       string         `json:"match"`
	LeftOut     int            `json:"left_out"` // scenarios that the model does not take
	Usage       *rollout.Usage `json:"usage,omitempty"`
	*eval.Report
	Published *published `json:"published,omitempty"`
}

// published are figures of others.
type published struct {
	Source string       `json:"source"`
	Rows   []eval.CIRow `json:"rows"`
}

func (e *evaluation) summary() summaryFile {
	o := e.o
	s := summaryFile{
		Model: o.Model, Data: "held-out synthetic scenarios", Prompt: o.Prompt, Prefill: o.Prefill, Samples: o.Samples,
		Temperature: o.Temperature, MaxNew: o.MaxNew, Seed: o.Seed, Format: o.Reward.Format, Match: o.Reward.Match,
		LeftOut: e.result.Left.Count, Usage: e.result.Usage, Report: e.result.Report,
	}
	if o.Server.BaseURL != "" {
		s.Model, s.BaseURL = o.Server.Model, o.Server.BaseURL
	}
	if o.Published {
		s.Published = &published{eval.PublishedCISource, eval.PublishedCI()}
	}
	if from := o.Run + o.Data; from != "" { // one of the two
		s.Data, s.Split = from, o.Split
		if o.Split != "all" {
			s.SplitSeed = &o.SplitSeed
		}
	}
	return s
}

// write writes the results, each file whole or not at all: the answers, which took longest, come first.
func (e *evaluation) write() error {
	dir, samples := e.o.Out, e.result.Samples
	if dir == "" {
		return nil
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	err := data.WriteLines(path("results.jsonl"), len(samples), func(i int) any { return samples[i].Row() })
	if err == nil {
		err = files.Replace(path("config.yaml"), Spec.Resolve(&e.o), 0o666)
	}
	if err == nil {
		err = data.WriteJSON(path("summary.json"), e.summary())
	}
	return err
}

// makeFolder makes the folder of the results before a model is asked: one that cannot be made would lose its answers.
// undo removes what was made, while nothing is in it.
func makeFolder(dir string) (undo func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	if err := files.CheckNew(dir); err != nil {
		return nil, fmt.Errorf("--out %w", err)
	}
	undo = removing(dir)
	if err = os.MkdirAll(dir, 0o777); err == nil {
		err = checkWritable(dir)
	}
	if err != nil {
		undo()
		return nil, fmt.Errorf("--out %s cannot be made: %w", dir, run.Cause(err))
	}
	return undo, nil
}

// removing returns a function that removes a folder and those above it, as far as they are not there yet.
func removing(dir string) (remove func()) {
	if _, err := os.Lstat(dir); err == nil {
		return func() {}
	}
	above := removing(filepath.Dir(dir))
	return func() {
		if os.Remove(dir) == nil {
			above()
		}
	}
}

// checkWritable makes a file, and removes it.
func checkWritable(dir string) error {
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	return cmp.Or(f.Close(), os.Remove(f.Name()))
}
