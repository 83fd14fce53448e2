package bench

import (
	"context"
	"fmt"
	"reflect"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// Benchmark is a command that measures with a benchmark. O are its options, which embed [Options] or [Judged]; R is what
// it finds, a pointer: the form of summary.json, whose String is printed.
type Benchmark[O any, R fmt.Stringer] struct {
	*config.Spec[O]

	Short, Long, Example string

	Switches []config.Flag // besides the flags of the tags

	// Open reads everything that can be wrong, and says what is asked, read and counted.
	Open func(o *O, r run.Reporter) (*Protocol, error)
}

// New makes the command of a benchmark known to the configuration.
func New[O any, R fmt.Stringer](b Benchmark[O, R]) *Benchmark[O, R] {
	config.Register(b.Spec)
	return &b
}

// Options are the options that every benchmark has, within o.
func (b *Benchmark[O, R]) Options(o *O) *Options {
	options, _ := any(o).(shared).parts()
	return options
}

// Flags are the flags of the tags, and the others.
func (b *Benchmark[O, R]) Flags() []config.Flag { return append(b.Spec.Flags(), b.Switches...) }

// Run reads everything that can be wrong, creates the run folder or continues with it, and runs the stages. The result is
// what the stage report finds, its zero value without it. The evaluation says where the run is and how far it came,
// after an error too. A nil Reporter is silent.
func (b *Benchmark[O, R]) Run(ctx context.Context, o O, r run.Reporter) (result R, at *Evaluation, err error) {
	r = run.Listen(r)
	if err := b.Verify(&o); err != nil {
		return result, &Evaluation{}, err
	}
	shared := any(&o).(shared)
	options, judged := shared.parts()
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
	if bench.Recorded == nil && options.Agent.Answers != "" {
		if bench.Recorded, err = readAnswers(options.Agent.Answers); err != nil {
			return result, &Evaluation{}, err
		}
	}
	e := &evaluation{Protocol: *bench, command: b.Command, o: *options, reporter: r, continuing: Continues(options.Dir),
		none:       !shared.NeedsModel() && options.Agent.Way() == "",
		Evaluation: Evaluation{Dir: options.Dir, Cases: len(bench.Items)}}
	whole := o
	wholePaths(reflect.ValueOf(&whole).Elem()) // later calls on the folder may come from elsewhere
	if e.config = b.Resolve(&whole); judged != nil {
		if e.judge = judged.Judge; judged.Judgments != "" && bench.Questions != nil {
			err = e.readReplay(judged.Judgments)
		}
	}
	if err == nil {
		err = e.run(ctx)
	}
	if e.Reported = e.result != nil; e.Reported {
		result = e.result.(R)
	}
	return result, &e.Evaluation, err
}
