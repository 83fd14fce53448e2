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
	"strings"
	"time"

	"github.com/spf13/cobra"

	lens "github.com/posttrain/posttrain/data/privacylens"
)

// lensGoal is how long a run may take, as a multiple of what its judge takes.
const lensGoal = 1.15

// lensOptions are those of the timing of whole evaluations.
type lensOptions struct {
	data, binary     string
	delay            time.Duration
	parallel, rounds int
	large            bool
}

func newPrivacyLens() *cobra.Command {
	o := lensOptions{}
	cmd := &cobra.Command{
		Use:   "privacylens",
		Short: "posttrain eval privacylens with a slow judge, against the time that the judge alone takes",
		Long: "The whole process counts: start, reading of cases and recorded actions, judging, report. The ideal is the judge's: its delay, as often\n" +
			"as so many questions at a time go into all of them. The judge is a server of this program. Then the same with 100 cases, for the memory,\n" +
			"and with --large with ten times the cases, of a judge that does not wait.",
		Example: "  go run ./bench privacylens\n  go run ./bench privacylens --data ../shared/data/privacylens/main_data.json --large",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.data, "data", "", "cases (default: 493 made up, with 1,487 items)")
	flags.StringVar(&o.binary, "posttrain", "", "posttrain binary (default: built now)")
	flags.DurationVar(&o.delay, "delay", 200*time.Millisecond, "until the judge answers")
	flags.IntVar(&o.parallel, "parallel", 32, "questions at a time")
	flags.IntVar(&o.rounds, "rounds", 5, "runs timed")
	flags.BoolVar(&o.large, "large", false, "ten times the cases as well, for the memory")
	return cmd
}

func (o *lensOptions) run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "bench-privacylens-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := o.prepare(dir); err != nil {
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

// prepare builds the binary where none is given.
func (o *lensOptions) prepare(dir string) error {
	if o.binary != "" {
		return nil
	}
	o.binary = filepath.Join(dir, "posttrain")
	if err := command("go", "build", "-o", o.binary, "./cmd/posttrain").Run(); err != nil {
		return fmt.Errorf("go build ./cmd/posttrain: %w", err)
	}
	return nil
}

func (o *lensOptions) cases() ([]lens.Case, error) {
	if o.data == "" {
		return madeUpCases(493, 1487), nil
	}
	cases, _, err := lens.Read(o.data)
	return cases, err
}

// time runs all cases so many times, and holds the median against the ideal.
func (o *lensOptions) time(out io.Writer, dir string, judge *slowJudge, cases []lens.Case) (last lensRun, err error) {
	w, err := writeLensWorld(filepath.Join(dir, "all"), cases)
	if err != nil {
		return last, err
	}
	batches := (w.questions + o.parallel - 1) / o.parallel
	ideal := (time.Duration(batches) * o.delay).Seconds()
	fmt.Fprintf(out, "%d cases, %d questions, %d at a time, a judge that answers in %v: ideal %.2f s; load of the machine %s\n",
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
	fmt.Fprintf(out, "time, median: %.3f of the ideal, asked for at most %.2f: %s; load of the machine %s\n", m, lensGoal, verdict(m <= lensGoal), load())
	return last, nil
}

// memory runs fewer cases, and more, and tells the peaks.
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

// once runs some cases once.
func (o *lensOptions) once(dir string, judge *slowJudge, cases []lens.Case, delay time.Duration) (lensRun, error) {
	w, err := writeLensWorld(dir, cases)
	if err != nil {
		return lensRun{}, err
	}
	return o.measure(w, judge, delay)
}

// lensWorld is what a run reads.
type lensWorld struct {
	dir, data, actions string
	cases, questions   int
	bytes              int64 // of both files
}

// writeLensWorld writes cases, and an action for each.
func writeLensWorld(dir string, cases []lens.Case) (w lensWorld, err error) {
	w = lensWorld{dir: dir, data: filepath.Join(dir, "cases.json"), actions: filepath.Join(dir, "actions.csv"), cases: len(cases)}
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
	before  float64 // of them, until the first question
	after   float64 // of them, from the last reply
	peak    float64 // memory in MB, the most there was
	early   float64 // the most in the second twentieth of the questions
	late    float64 // the most in the last twentieth
}

func (r lensRun) String() string {
	return fmt.Sprintf("%.2f s, of them %.2f s until the first question and %.2f s from the last reply; %d requests, %d asked twice, at most %d at a time; peak %.0f MB",
		r.seconds, r.before, r.after, r.requests, r.twice, r.most, r.peak)
}

// memory tells how it grew with the questions.
func (r lensRun) memory() string {
	return fmt.Sprintf("%d cases, %d questions, files of %.1f MB: peak %.0f MB; %.0f MB at a tenth of the questions, %.0f MB at the last",
		r.cases, r.questions, float64(r.bytes)/(1<<20), r.peak, r.early, r.late)
}

// measure runs an evaluation. It is an error that the judge is asked for more or for less than there is to ask.
func (o *lensOptions) measure(w lensWorld, judge *slowJudge, delay time.Duration) (r lensRun, err error) {
	folder, err := os.MkdirTemp(w.dir, "run-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(folder)
	judge.begin(delay)
	var said bytes.Buffer
	c := exec.Command(o.binary, "eval", "privacylens", "--data", w.data, "--actions", w.actions, "--judge-base-url", judge.url, "--judge-model", "bench",
		"--judge-parallel", strconv.Itoa(o.parallel), "--out", folder)
	c.Stdout, c.Stderr, c.Env = &said, &said, append(os.Environ(), "OPENAI_API_KEY=none")
	begin := time.Now()
	if err := c.Start(); err != nil {
		return r, err
	}
	r = lensRun{lensWorld: w}
	stop := r.watch(c.Process.Pid, judge)
	err = c.Wait()
	end := time.Now()
	stop()
	if err != nil {
		return r, fmt.Errorf("%s: %w\n%s", c, err, said.String())
	}
	r.tally = judge.end()
	r.seconds, r.before, r.after = end.Sub(begin).Seconds(), r.first.Sub(begin).Seconds(), end.Sub(r.last).Seconds()
	if r.requests != w.questions || r.twice > 0 {
		return r, fmt.Errorf("%d requests, %d of them asked before: want each of %d questions once", r.requests, r.twice, w.questions)
	}
	return r, nil
}

// watch notes the memory of a process until it is stopped. (The peak that the system tells of an ended process is no smaller
// than its parent was when it began.)
func (r *lensRun) watch(pid int, judge *slowJudge) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(5 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				now, peak := memoryOf(pid)
				r.note(now, peak, judge.replied())
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended); <-done }
}

// note takes down the memory at so many replies.
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

// memoryOf is what another process holds, and the most it has held, in MB as Linux counts it; 0 elsewhere, and when it is ending.
func memoryOf(pid int) (now, peak float64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	read := func(field string) (kb float64) {
		_, rest, _ := strings.Cut(string(status), "\n"+field+":")
		_, _ = fmt.Sscan(rest, &kb)
		return kb / 1024
	}
	return read("VmRSS"), read("VmHWM")
}
