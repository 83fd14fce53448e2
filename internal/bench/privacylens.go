package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	lens "github.com/posttrain/posttrain/data/privacylens"
)

// lensGoal is the target for a run's time, as a multiple of its judge's.
const lensGoal = 1.15

// lensOptions are the options of the timing of whole evaluations.
type lensOptions struct {
	data, binary     string
	delay            time.Duration
	parallel, rounds int
	large            bool
}

func newPrivacyLens() *cobra.Command {
	o := lensOptions{}
	cmd := newCommand("privacylens", "posttrain eval privacylens with a slow judge, against the judge's time alone",
		"  go run ./bench privacylens\n"+
			"  go run ./bench privacylens --data ../shared/data/privacylens/main_data.json --large",
		o.run)
	cmd.Long = `The whole process counts: start, reading of cases and recorded actions, judging, report. The
ideal time is the judge's: its delay times the number of questions over --parallel. The judge is
a server of this program. To see the memory, the command then runs 100 cases, and with --large
ten times the cases with a judge that answers at once.`
	flags := cmd.Flags()
	flags.StringVar(&o.data, "data", "", "cases (default: 493 made-up ones with 1,487 items)")
	flags.StringVar(&o.binary, "posttrain", "", "posttrain binary (default: built now)")
	flags.DurationVar(&o.delay, "delay", 200*time.Millisecond, "time that the judge takes for an answer")
	flags.IntVar(&o.parallel, "parallel", 32, "questions at a time")
	flags.IntVar(&o.rounds, "rounds", 5, "runs timed")
	flags.BoolVar(&o.large, "large", false, "also measure the memory with ten times the cases")
	return cmd
}

func (o *lensOptions) run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "bench-privacylens-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := buildPosttrain(dir, &o.binary); err != nil {
		return err
	}
	cases, err := o.cases()
	if err != nil {
		return err
	}
	judge, err := serveJudge()
	if err != nil {
		return err
	}
	defer judge.close()
	all, err := o.time(out, dir, judge, cases)
	if err != nil {
		return err
	}
	return o.memory(out, dir, judge, cases, all)
}

func (o *lensOptions) cases() ([]lens.Case, error) {
	if o.data == "" {
		return makeCases(493, 1487), nil
	}
	cases, _, err := lens.Read(o.data)
	return cases, err
}

// time runs all cases in every round, and compares the median with the ideal.
func (o *lensOptions) time(out io.Writer, dir string, judge *slowJudge, cases []lens.Case) (last lensRun, err error) {
	w, err := writeLensWorld(filepath.Join(dir, "all"), cases)
	if err != nil {
		return last, err
	}
	batches := (w.questions + o.parallel - 1) / o.parallel
	ideal := (time.Duration(batches) * o.delay).Seconds()
	fmt.Fprintf(out, "%d cases, %d questions, %d at a time, a judge that takes %v: ideal %.2f s; "+
		"load of the machine %s\n",
		len(cases), w.questions, o.parallel, o.delay, ideal, load())
	var ratios []float64
	for round := range o.rounds {
		if last, err = o.measure(w, judge, o.delay); err != nil {
			return last, err
		}
		ratios = append(ratios, last.seconds/ideal)
		fmt.Fprintf(out, "round %d: %.3f of the ideal; %v\n", round+1, last.seconds/ideal, last)
	}
	m := median(ratios)
	fmt.Fprintf(out, "time, median: %.3f of the ideal, asked for at most %.2f: %s; load of the machine %s\n",
		m, lensGoal, verdict(m <= lensGoal), load())
	return last, nil
}

// memory runs fewer cases, and more, and prints the peaks.
func (o *lensOptions) memory(out io.Writer, dir string, judge *slowJudge, cases []lens.Case, all lensRun) error {
	few, err := o.once(filepath.Join(dir, "few"), judge, cases[:min(100, len(cases))], o.delay)
	if err != nil {
		return err
	}
	runs := []lensRun{few, all}
	if o.large {
		many, err := o.once(filepath.Join(dir, "many"), judge, tenfold(cases), 0)
		if err != nil {
			return err
		}
		runs = append(runs, many)
	}
	for _, r := range runs {
		fmt.Fprintf(out, "memory: %v\n", r.memory())
	}
	return nil
}

func (o *lensOptions) once(dir string, judge *slowJudge, cases []lens.Case, delay time.Duration) (lensRun, error) {
	w, err := writeLensWorld(dir, cases)
	if err != nil {
		return lensRun{}, err
	}
	return o.measure(w, judge, delay)
}

// lensWorld is the input of a run.
type lensWorld struct {
	dir, data, actions string
	cases, questions   int
	bytes              int64 // of both files
}

// writeLensWorld writes cases and an action for each.
func writeLensWorld(dir string, cases []lens.Case) (w lensWorld, err error) {
	w = lensWorld{dir: dir, cases: len(cases)}
	w.data, w.actions = filepath.Join(dir, "cases.json"), filepath.Join(dir, "actions.csv")
	if err := os.Mkdir(dir, 0o777); err != nil {
		return w, err
	}
	actions, r := map[string]string{}, rand.New(rand.NewPCG(4, 10))
	for i := range cases {
		w.questions += len(cases[i].Trajectory.Items) + 1
		actions[cases[i].Name] = actionOf(r, &cases[i])
	}
	if err := lens.Write(w.data, cases); err != nil {
		return w, err
	}
	if err := lens.WriteActions(w.actions, cases, actions); err != nil {
		return w, err
	}
	for _, path := range []string{w.data, w.actions} {
		info, err := os.Stat(path)
		if err != nil {
			return w, err
		}
		w.bytes += info.Size()
	}
	return w, nil
}

// lensRun is what one evaluation took.
type lensRun struct {
	lensWorld
	tally
	seconds float64 // of the process
	before  float64 // of these, until the first question
	after   float64 // of these, after the last reply
	peak    float64 // memory in MB: the most of all
	early   float64 // the most in the second twentieth of the questions
	late    float64 // the most in the last twentieth
}

func (r lensRun) String() string {
	return fmt.Sprintf("%.2f s, of these %.2f s until the first question and %.2f s after the last reply; "+
		"%d requests, %d asked twice, at most %d at a time; peak %.0f MB",
		r.seconds, r.before, r.after, r.requests, r.twice, r.most, r.peak)
}

// memory says how the memory grew with the questions.
func (r lensRun) memory() string {
	return fmt.Sprintf("%d cases, %d questions, files of %.1f MB: peak %.0f MB; "+
		"%.0f MB at a tenth of the questions, %.0f MB at the last",
		r.cases, r.questions, float64(r.bytes)/(1<<20), r.peak, r.early, r.late)
}

// measure runs an evaluation. It is an error if the judge does not get each question exactly once.
func (o *lensOptions) measure(w lensWorld, judge *slowJudge, delay time.Duration) (r lensRun, err error) {
	folder, err := os.MkdirTemp(w.dir, "run-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(folder)
	judge.begin(delay)
	var said bytes.Buffer
	c := exec.Command(o.binary, "eval", "privacylens", "--data", w.data, "--actions", w.actions,
		"--judge-base-url", judge.url, "--judge-model", "bench", "--judge-parallel", strconv.Itoa(o.parallel),
		"--out", folder)
	c.Stdout, c.Stderr, c.Env = &said, &said, append(os.Environ(), "OPENAI_API_KEY=none")
	begin := time.Now()
	if err := c.Start(); err != nil {
		return r, err
	}
	r = lensRun{lensWorld: w}
	stop := r.watch(strconv.Itoa(c.Process.Pid), judge)
	err = c.Wait()
	end := time.Now()
	stop()
	if err != nil {
		return r, fmt.Errorf("%s: %w\n%s", c, err, said.String())
	}
	r.tally = judge.end()
	r.seconds, r.before, r.after = end.Sub(begin).Seconds(), r.first.Sub(begin).Seconds(), end.Sub(r.last).Seconds()
	if r.requests != w.questions || r.twice > 0 {
		return r, fmt.Errorf("%d requests, %d of them asked before: want each of %d questions once",
			r.requests, r.twice, w.questions)
	}
	return r, nil
}

// watch notes the memory of a process until stop is called. (The peak that the system reports after a process has ended
// includes its parent's size at its start.)
func (r *lensRun) watch(pid string, judge *slowJudge) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(5 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				now, peak := memoryOf(pid)
				r.note(now, peak, judge.replyCount())
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended); <-done }
}

// note takes down the memory after a number of replies.
func (r *lensRun) note(now, peak float64, replies int) {
	r.peak = max(r.peak, peak)
	switch twentieth := r.questions / 20; {
	case replies == r.questions: // what follows is the report
	case replies >= r.questions-twentieth:
		r.late = max(r.late, now)
	case replies >= twentieth && replies < 2*twentieth:
		r.early = max(r.early, now)
	}
}
