package bench

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// Benchmark is a command that measures with a benchmark. O are its options, which embed [Options] or [Judged]; R is what
// it finds, a pointer: the form of summary.json, whose String is printed.
type Benchmark[O any, R fmt.Stringer] struct {
	*config.Spec[O] // which New makes

	Name, Short, Long, Example string

	Without    []string                                                     // keys that the benchmark does not have
	Switches   []config.Flag                                                // besides those of the tags
	QuickStart func(overrides []config.Override) (name string, text []byte) // may be nil
	Choose     func(g *config.Given)                                        // may be nil, as the next three
	Defaults   func() O
	Follow     func(g *config.Given, o *O) // defaults that follow from given values
	Settle     func(g *config.Given, o *O)
	Check      func(g *config.Given, o *O)
	Idle       func(o *O) []string
	// Answerless says that the options need no model under test; nil: they always do.
	Answerless func(o *O) bool
	// ByRule says that the options need no server that judges; nil: a judged benchmark's always do.
	ByRule func(o *O) bool

	// Open reads everything that can be wrong, and says what is asked, read and counted.
	Open func(o *O, r run.Reporter) (*Bench, error)
}

// New completes a benchmark, and makes its command known to the configuration.
func New[O any, R fmt.Stringer](b Benchmark[O, R]) *Benchmark[O, R] {
	b.Spec = config.Register(&config.Spec[O]{
		Command: b.Name, QuickStart: b.QuickStart,
		Choose: func(g *config.Given) {
			chooseAgent(g)
			if b.Choose != nil {
				b.Choose(g)
			}
		},
		Defaults: func(g *config.Given) O {
			o := b.Defaults()
			if b.Follow != nil {
				b.Follow(g, &o)
			}
			return o
		},
		Without: b.Without, Settle: b.Settle, Check: b.check, Idle: b.idle,
	})
	return &b
}

func partsOf[O any](o *O) (*Options, *Judged) { return any(o).(shared).parts() }

// Options are those of every benchmark within o.
func (b *Benchmark[O, R]) Options(o *O) *Options {
	options, _ := partsOf(o)
	return options
}

// Flags are those of the tags, and the others.
func (b *Benchmark[O, R]) Flags() []config.Flag { return append(b.Spec.Flags(), b.Switches...) }

func (b *Benchmark[O, R]) check(g *config.Given, o *O) {
	if b.Check != nil {
		b.Check(g, o)
	}
	options, judged := partsOf(o)
	options.check(g, b.Answerless == nil || !b.Answerless(o))
	switch {
	case judged == nil && options.Stage == StageJudge:
		g.Fault("stage", "stage judge: this benchmark has no judge; want answers or report")
	case judged != nil && !b.byRule(o):
		judged.Judge.check(g, options.Runs(StageJudge))
	case judged != nil:
		for _, key := range g.Keys() {
			if strings.HasPrefix(key, "judge.") && g.FromCommandLine(key) {
				g.Fault(key, "%s %s: it has no effect, no server's model judges here; remove it", key, g.Show(key))
			}
		}
	}
}

func (b *Benchmark[O, R]) byRule(o *O) bool { return b.ByRule != nil && b.ByRule(o) }

// idle are the keys without effect.
func (b *Benchmark[O, R]) idle(o *O) (keys []string) {
	options, _ := partsOf(o)
	keys = append(idle(options.Agent.Way()), "stage")
	if b.byRule(o) {
		keys = append(keys, "judge")
	}
	if b.Idle != nil {
		keys = append(keys, b.Idle(o)...)
	}
	return keys
}

// Run reads everything that can be wrong, creates the run folder or continues with it, and runs the stages. The result is
// that of the stage report, its zero value without it. The evaluation says where the run is and how far it came, after an
// error too. A nil Reporter is silent.
func (b *Benchmark[O, R]) Run(ctx context.Context, o O, r run.Reporter) (result R, at *Evaluation, err error) {
	r = run.Listen(r)
	if err := b.Verify(&o); err != nil {
		return result, &Evaluation{}, err
	}
	options, judged := partsOf(&o)
	if options.Runs(StageAnswers) {
		if err := options.Agent.pin(options.Dir); err != nil {
			return result, &Evaluation{}, err
		}
		options.Agent.chooseBackend(r)
	}
	bench, err := b.Open(&o, r)
	if err != nil {
		return result, &Evaluation{}, err
	}
	e := &benching{Bench: *bench, command: b.Name, o: *options, reporter: r, continuing: Continues(options.Dir),
		none:       b.Answerless != nil && b.Answerless(&o) && options.Agent.Way() == "",
		Evaluation: Evaluation{Dir: options.Dir, Cases: len(bench.Items)}}
	whole := o
	wholePaths(reflect.ValueOf(&whole).Elem()) // later calls on the folder may come from elsewhere
	if e.config = b.Resolve(&whole); judged != nil {
		e.judge = judged.Judge
	}
	err = e.run(ctx)
	if e.Reported = e.result != nil; e.Reported {
		result = e.result.(R)
	}
	return result, &e.Evaluation, err
}
