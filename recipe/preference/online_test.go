package preference

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// scoreArg makes this test the program that scores; actVariable says how it fails, and in which round.
const scoreArg, actVariable = "score", "ONLINE_TEST_ACT"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == scoreArg {
		score(os.Getenv(actVariable))
		return
	}
	testkit.Main(m, runOnline)
}

// score gives answers the share of letters e in their line; with an act and a round it fails on that round's prompts.
func score(act string) {
	act, fails, _ := strings.Cut(act, " ")
	in := bufio.NewScanner(os.Stdin)
	for n := 0; in.Scan(); n++ {
		bad := act != "" && strings.Contains(fails, strings.Fields(in.Text())[2])
		switch {
		case bad && act == "hang":
			select {}
		case bad && act == "die":
			fmt.Fprintln(os.Stderr, "out of memory")
			os.Exit(3)
		case bad && act == "few":
			return
		case bad && act == "NaN":
			fmt.Println("NaN")
		case act == "constant":
			fmt.Println(2)
		default:
			fmt.Println(float64(strings.Count(in.Text(), "e")) / float64(len(in.Text())))
		}
	}
}

// writePrompts writes prompts "Where is 0", "Where is 1", ….
func writePrompts(t *testing.T, dir string, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"prompt\": \"Where is p%d ?\"}\n", i)
	}
	path := filepath.Join(dir, "prompts.jsonl")
	expect.Write(t, path, b.String())
	return path
}

var tinyModel = func() string {
	path, err := filepath.Abs("../../model/testdata/qwen2-newer")
	if err != nil {
		panic(err)
	}
	return path
}()

// tinyOnline is a run of two rounds into a folder, which it continues if it is there.
func tinyOnline(dir, prompts string) Options {
	o := Spec.Defaults()
	o.Mode, o.Backend, o.Model, o.Data.TrainFiles = onlineKey, "go", tinyModel, config.Names{prompts}
	o.Chat.Plain = "text"
	t := &o.Train
	t.BatchSize, t.MicroBatchSize, t.WarmupSteps, t.LearningRate, t.CheckpointEvery = 2, 2, 0, 1e-3, 1
	o.Online.Rounds, o.Online.Samples, o.Online.MaxNew = 2, 30, 4 // four prompts at a time
	o.Online.Reward.Kind, o.Online.Reward.Command = scorer.Command, []string{os.Args[0], scoreArg}
	o.Dir = recipe.RunDir{Out: dir}
	if _, err := os.Stat(filepath.Join(dir, "config.yaml")); err == nil {
		o.Dir = recipe.RunDir{Resume: dir}
	}
	return o
}

// runOnline starts or continues a tiny run in a folder, and prints its progress.
func runOnline(args []string) error {
	if err := os.Chdir(args[0]); err != nil {
		return err
	}
	_, err := Run(context.Background(), tinyOnline("out", args[1]), onStep{run.Listen(nil), func(unit string) {
		fmt.Println(unit)
	}})
	return err
}

// onStep is a reporter that calls a function at every step of every bar.
type onStep struct {
	run.Reporter
	call func(unit string)
}

func (r onStep) Progress(unit string, start, total int) run.Bar {
	return onStepBar{r.Reporter.Progress(unit, start, total), unit, r.call}
}

type onStepBar struct {
	run.Bar
	unit string
	call func(unit string)
}

func (b onStepBar) Step(int, map[string]float64) { b.call(b.unit) }

// leaveUnfinished puts temporary files into a run folder, as kills at other moments leave them.
func leaveUnfinished(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{".reference-1.safetensors77", ".reference-2-part.safetensors8", ".round-1.jsonl-9"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o666); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// TestKilledRoundsEndInTheSameBits kills a run after its first line of progress, after its second line, and so on, and
// compares all files that it leaves with an undisturbed run's.
func TestKilledRoundsEndInTheSameBits(t *testing.T) {
	prompts, whole, broken := writePrompts(t, t.TempDir(), 16), t.TempDir(), t.TempDir()
	testkit.Child(t, 0, 0, whole, prompts)
	r, lines, at := rand.New(rand.NewPCG(1, 5)), 0, map[string]int{}
	kills := testkit.UntilDone(t, 200, func() (killed bool) {
		lines++
		printed, killed := testkit.Child(t, lines, time.Duration(r.IntN(5000))*time.Microsecond, broken, prompts)
		if killed {
			at[printed[len(printed)-1]]++
			leaveUnfinished(t, filepath.Join(broken, "out"))
		}
		return killed
	})
	t.Logf("killed %d times, behind lines %v", kills, at)
	if kills < 5 {
		t.Errorf("killed %d times: want more", kills)
	}
	testkit.SameFolders(t, filepath.Join(whole, "out"), filepath.Join(broken, "out"))
}

// TestInterruptedRoundsEndInTheSameBits interrupts a run at every step of sampling, scoring, measuring and training.
func TestInterruptedRoundsEndInTheSameBits(t *testing.T) {
	prompts, whole, broken := writePrompts(t, t.TempDir(), 16), t.TempDir(), t.TempDir()
	t.Chdir(whole)
	o := tinyOnline("out", prompts)
	o.Online.Reference = eachRound
	mustRun(t, o)
	t.Chdir(broken)
	stops := map[string]int{}
	for measured := 0; ; { // what is measured already is a step of the bar, too
		o := tinyOnline("out", prompts)
		o.Online.Reference = eachRound
		ctx, cancel := context.WithCancel(t.Context())
		passed := 0
		_, err := Run(ctx, o, onStep{run.Listen(nil), func(unit string) {
			if unit != "pair" {
				measured = 0
				cancel()
			} else if passed++; passed > measured {
				measured++
				cancel()
			}
		}})
		cancel()
		if err == nil {
			break
		}
		where, _, _ := strings.Cut(err.Error(), "; the run is in")
		if stops[where]++; !errors.Is(err, recipe.ErrInterrupted) || stops[where] > 40 {
			t.Fatal(err)
		}
	}
	for _, where := range []string{"in round 2 of 2, while answers were sampled",
		"in round 2 of 2, while answers were scored", "while log-probs were measured, in round 2 of 2",
		"at step 6 of 8, saved"} {
		if stops["interrupted "+where] == 0 {
			t.Errorf("not interrupted %s: %v", where, stops)
		}
	}
	testkit.SameFolders(t, filepath.Join(whole, "out"), "out")
}

// TestFailingRewards: a reward program that fails in the second round ends the run with one line; what was done counts,
// and the run ends as an undisturbed one.
func TestFailingRewards(t *testing.T) {
	dir := t.TempDir()
	prompts, whole := writePrompts(t, dir, 8), filepath.Join(dir, "whole")
	if _, err := Run(t.Context(), tinyOnline(whole, prompts), nil); err != nil {
		t.Fatal(err)
	}
	second := promptsOf(t, filepath.Join(whole, "round-2.jsonl"))
	for act, want := range map[string]string{
		"hang": "it took longer than 5s for 120 answers from ",
		"die":  "exit status 3: out of memory",
		"few":  "it wrote 0 scores for 120 answers from ",
		"NaN":  `line 1 of its output is "NaN": want a finite number`,
	} {
		out := filepath.Join(dir, act)
		o := tinyOnline(out, prompts)
		if act == "hang" {
			o.Online.Reward.Timeout = 5 * time.Second
		}
		t.Setenv(actVariable, act+" "+second)
		_, err := Run(t.Context(), o, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "round 2 of 2: reward command ") ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--resume continues it") {
			t.Errorf("%s: %v", act, err)
		}
		t.Setenv(actVariable, "")
		again := tinyOnline(out, prompts)
		again.Online.Reward.Timeout = o.Online.Reward.Timeout
		if _, err := Run(t.Context(), again, nil); err != nil {
			t.Fatal(err)
		}
		testkit.SameMetrics(t, whole, out)
		testkit.SameFiles(t, whole, out, "model/model.safetensors", "round-2.jsonl")
	}
}

// promptsOf are the third words of the prompts of a table of answers.
func promptsOf(t *testing.T, path string) (words string) {
	t.Helper()
	pairs, _, err := data.ReadPreferences(path, data.PreferenceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		words += strings.Fields(p.Prompt.Plain)[2] + " "
	}
	return words
}

// TestTiedRounds: a reward that gives all answers the same score is an error.
func TestTiedRounds(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(actVariable, "constant")
	_, err := Run(t.Context(), tinyOnline(filepath.Join(dir, "out"), writePrompts(t, dir, 4)), nil)
	const want = "round 1 of 2: no prompt of 2 gives a pair: 2 (all answers score the same) (mean score 2); sample more"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Error(err)
	}
}

// TestOneRoundIsOfflineTraining: the model of one round is the one that offline training on its table gives, bit for
// bit, with the prior and without it.
func TestOneRoundIsOfflineTraining(t *testing.T) {
	dir := t.TempDir()
	prompts := writePrompts(t, dir, 6)
	for i, loss := range []string{losses.DPO, losses.CPO, losses.DPO} {
		o := tinyOnline(filepath.Join(dir, fmt.Sprint("online", i)), prompts)
		o.Loss = losses.Defaults(loss)
		if i == 2 {
			o.Loss.Prior = losses.None
		}
		o.Online.Rounds, o.Online.Samples, o.Train.Epochs, o.Train.Schedule = 1, 4, 2, "linear"
		mustRun(t, o)
		off := o
		off.Mode, off.Data.TrainFiles = "", config.Names{filepath.Join(o.Dir.Out, "round-1.jsonl")}
		off.Dir = recipe.RunDir{Out: filepath.Join(dir, fmt.Sprint("offline", i))}
		mustRun(t, off)
		testkit.SameFiles(t, o.Dir.Out, off.Dir.Out, "model/model.safetensors")
	}
}

func mustRun(t *testing.T, o Options) *recipe.Result {
	t.Helper()
	r, err := Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRoundsGoOn: steps, moments and the schedule go on over the rounds; the second round's answers are drawn from the
// weights that the first left; each prompt has one round; the diagnostics are there.
func TestRoundsGoOn(t *testing.T) {
	dir := t.TempDir()
	prompts := writePrompts(t, dir, 9)
	o := tinyOnline(filepath.Join(dir, "out"), prompts)
	o.Online.Samples, o.Train.Schedule, o.Online.Prompts = 6, "linear", 7
	result := mustRun(t, o)
	records, err := run.ReadMetrics(filepath.Join(o.Dir.Out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var steps, rates []float64
	rounds := map[string]map[string]float64{}
	for _, r := range records {
		if rate, ok := r.Values["learning_rate"]; ok {
			steps, rates = append(steps, float64(r.Step)), append(rates, rate/1e-3)
		}
		for _, name := range []string{metricRound, metricDone} {
			if n, ok := r.Values[name]; ok {
				rounds[fmt.Sprint(name, n)] = r.Values
			}
		}
	}
	if fmt.Sprint(steps) != "[1 2 3 4]" || fmt.Sprint(rates) != "[1 0.75 0.5 0.25]" || len(rounds) != 4 {
		t.Errorf("steps %v, rates %v, rounds %v", steps, rates, rounds)
	}
	first, second := rounds[metricRound+"1"], rounds[metricRound+"2"]
	_, fresh := first[metricFresh]
	if x, ok := second[metricFresh]; !ok || x < 0 || x > 1 || fresh || first[metricPrompts]+second[metricPrompts] != 7 ||
		first[metricGap] <= 0 || first[metricScore] <= 0 || rounds[metricDone+"1"][metricChosenChange] == 0 {
		t.Errorf("%v", rounds)
	}
	if !strings.HasPrefix(result.Summary, "online MaPPO-DPO: 4 steps on 7 examples") ||
		!strings.Contains(result.Summary, "round  prompts  pairs") {
		t.Error(result.Summary)
	}
	both := promptsOf(t, filepath.Join(o.Dir.Out, "round-1.jsonl")) +
		promptsOf(t, filepath.Join(o.Dir.Out, "round-2.jsonl"))
	seen := map[string]bool{}
	for _, p := range strings.Fields(both) {
		if seen[p] {
			t.Errorf("prompt %s is in both rounds", p)
		}
		seen[p] = true
	}
	if len(seen) != 7 {
		t.Errorf("%d prompts: want 7", len(seen))
	}
	still := o
	still.Train.LearningRate, still.Dir = 1e-12, recipe.RunDir{Out: filepath.Join(dir, "still")}
	mustRun(t, still)
	testkit.SameFiles(t, o.Dir.Out, still.Dir.Out, "round-1.jsonl")
	x, _ := os.ReadFile(filepath.Join(o.Dir.Out, "round-2.jsonl"))
	if y, _ := os.ReadFile(filepath.Join(still.Dir.Out, "round-2.jsonl")); string(x) == string(y) {
		t.Error("the second round's answers are drawn from the model before training")
	}
}

// TestOnlineVariants: the model and an adapter train with both references, which differ; held-out pairs are measured.
func TestOnlineVariants(t *testing.T) {
	dir := t.TempDir()
	prompts, models := writePrompts(t, dir, 6), map[string]bool{}
	heldOut := filepath.Join(dir, "eval.jsonl")
	row := `{"prompt":"Q","chosen":"yes","rejected":"no","chosen_score":1,"rejected_score":0}` + "\n"
	expect.Write(t, heldOut, strings.Repeat(row, 3))
	for _, reference := range []string{"start", eachRound} {
		for _, rank := range []int{0, 2} {
			o := tinyOnline(filepath.Join(dir, fmt.Sprint(reference, rank)), prompts)
			o.Online.Samples, o.Online.Reference, o.Adapting.LoRA.Rank = 4, reference, rank
			o.Adapting.LoRA.Alpha = 2 * float64(rank)
			if rank == 0 {
				o.Data.EvalFile, o.Train.EvalMetric = heldOut, "eval_rewards/chosen"
			}
			result := mustRun(t, o)
			name := "model/model.safetensors"
			if rank > 0 {
				name = "adapter/adapter_model.safetensors"
			}
			weights, err := os.ReadFile(filepath.Join(o.Dir.Out, name))
			if measured := strings.Contains(result.Summary, "On 3 held-out pairs"); err != nil ||
				models[string(weights)] || measured != (rank == 0) {
				t.Errorf("%s, rank %d: %v, another run's weights %v: %s", reference, rank, err,
					models[string(weights)], result.Summary)
			}
			models[string(weights)] = true
		}
	}
}

// TestOnlineOptions: what has no effect, or cannot work, is refused.
func TestOnlineOptions(t *testing.T) {
	for given, want := range map[string]string{
		"mode=online online.samples=1":       "online.samples 1: want a whole number, 2 or more",
		"mode=online online.temperature=0":   "online.temperature 0: all answers to a prompt would be the",
		"mode=online online.top_k=1":         "online.top_k 1: all answers",
		"mode=online online.min_p=1":         "online.min_p 1: all answers",
		"mode=online online.rounds=0":        "online.rounds 0: want a whole number, 1 or more",
		"mode=online online.prompts=2":       "online.prompts 2: online.rounds 3: want a prompt for each",
		"mode=online data.eval_fraction=0.1": "data.eval_fraction 0.1: in mode online the pairs are made",
		"mode=online train.max_steps=3": "train.max_steps 3: in mode online each round makes train.epochs passes " +
			"over its pairs, however many there are; " +
			"for fewer steps want online.prompts (of all rounds), online.rounds or train.epochs in its place",
		"mode=online data.score_columns=a,b":                "data.score_columns a,b: in mode online online.reward scores",
		"mode=online online.reference=round reference=x":    `reference "x": online.reference round takes the model`,
		"mode=online online.reference=round loss.type=cpo":  "online.reference round: cpo uses no reference model",
		"mode=online loss.type=kto loss.prior=none":         "loss.type kto: in mode online the answers to a prompt are",
		"mode=online online.reward.kind=command":            "online.reward.command []: want a program",
		"mode=online online.scenarios=5 data.train=x.jsonl": "online.scenarios 5: only embedded scenarios are made",
		"mode=online online.scenarios=2":                    "online.scenarios 2: want 3 or more",
		"mode=online online.prefill=true":                   "online.prefill true: with prompt compact",
		"mode=online online.test_fraction=0.95":             "online.test_fraction 0.95: with validation_fraction",
		"online.rounds=2":                                   "online.rounds 2: the pairs come from a file; remove it, or",
		"mode=offline online.samples=4":                     "online.samples 4: the pairs come from a file",
		"mode=sideways":                                     "mode \"sideways\": want offline or online",
	} {
		var all []config.Override
		for _, pair := range strings.Fields("model=embedded data.train=embedded " + given) {
			key, value, _ := strings.Cut(pair, "=")
			all = append(all, config.Override{Key: key, Value: value})
		}
		_, err := Spec.Parse("", []byte("command: mappo\ntrain: {learning_rate: 1e-3}"), config.Input{Overrides: all})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %s", given, err, want)
		}
	}
}

// TestOnlinePrompts: prompts that the reward or the rounds cannot do with are refused.
func TestOnlinePrompts(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		rows   string
		change func(o *Options)
		want   string
	}{
		"ci": {`{"prompt":"Q"}`, func(o *Options) { o.Online.Reward.Kind, o.Online.Reward.Command = scorer.CI, nil },
			"its prompts are no contextual-integrity items, by which online.reward.kind ci scores"},
		"few":  {`{"prompt":"Q"}`, func(*Options) {}, "online.rounds 2: "},
		"many": {`{"prompt":"Q"}`, func(o *Options) { o.Online.Prompts = 3 }, "online.prompts 3: "},
		"mixed": {`{"prompt":"Q"}` + "\n" + `{"prompt":[{"role":"user","content":"Q"}]}`, func(*Options) {},
			"mixed.jsonl:2 is a conversation: want all alike"},
		"several": {`{"prompt":"Q"}`, func(o *Options) {
			o.Data.TrainFiles, o.Online.Prompts = append(o.Data.TrainFiles, writePrompts(t, dir, 3)), 9
		}, "prompts.jsonl has 4: want that many at most"},
	} {
		path := filepath.Join(dir, name+".jsonl")
		expect.Write(t, path, c.rows)
		o := tinyOnline(filepath.Join(dir, name), path)
		c.change(&o)
		if _, err := Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: want %s", name, err, c.want)
		}
	}
}
