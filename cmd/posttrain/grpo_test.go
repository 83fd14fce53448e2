package main

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/recipe/rl"
)

// lengths is a program that rewards an answer by the length of its line; it has no blanks and needs no shell.
const lengths = "awk {print(length%7)}"

// workPrompts makes an empty folder with prompts.jsonl, 24 prompts with answers, the working directory.
func workPrompts(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	writePrompts(t)
}

// writePrompts makes prompts.jsonl.
func writePrompts(t *testing.T) {
	t.Helper()
	var b strings.Builder
	for i := range 24 {
		fmt.Fprintf(&b, "{\"prompt\": \"Where is key %d?\", \"answer\": %d}\n", i, i*i)
	}
	write(t, "prompts.jsonl", b.String())
}

// tinyGRPO are the flags of a quick run on prompts.jsonl: n steps of 2 prompts with 4 completions.
func tinyGRPO(n int, more ...string) []string {
	args := []string{"grpo", "--model", testkit.CIModel(), "--data", "prompts.jsonl", "--backend", "go", "--max-steps",
		fmt.Sprint(n), "--prompts", "2", "--group-size", "4", "--max-new-tokens", "8", "--set", "validation.every=2",
		"--set", "validation.samples=1", "--set", "train.learning_rate=1e-3", "--out", "out"}
	return append(args, more...)
}

// byProgram are tinyGRPO with a program's rewards.
func byProgram(n int, more ...string) []string {
	return tinyGRPO(n, append([]string{"--reward", "command", "--command", lengths}, more...)...)
}

// TestGRPOLeavesAWholeRun: with two rewards, each of which is logged and in the summary.
func TestGRPOLeavesAWholeRun(t *testing.T) {
	workPrompts(t)
	o := must(t, tinyGRPO(3, "--reward", "command,pattern", "--command", lengths, "--pattern", "e.*e", "--weights", "1,2",
		"--set", "grpo.combine=each")...)
	for _, name := range []string{"config.yaml", "metrics.jsonl", "samples.jsonl", "curves.png", "summary.txt",
		"best.json", "model/model.safetensors", "model/README.md", "checkpoints/step-00000003/manifest.json"} {
		if !exists("out/" + name) {
			t.Errorf("%s is missing", name)
		}
	}
	c, err := rl.Spec.Load(config.Input{Path: "out/config.yaml", Allow: config.Anything})
	if err != nil || string(c.Resolved()) != read(t, "out/config.yaml") {
		t.Errorf("config.yaml: %v\n%s", err, read(t, "out/config.yaml"))
	}
	for _, r := range metrics(t, "out") {
		v, prefix := r.Values, ""
		if _, evaluated := v["eval_reward"]; evaluated {
			prefix = "eval_"
		}
		sum := v[prefix+"rewards/command/mean"] + 2*v[prefix+"rewards/pattern/mean"]
		if d := v[prefix+"reward"] - sum; d > 1e-9 || d < -1e-9 || v[prefix+"rewards/command/mean"] == 0 {
			t.Errorf("step %d: the reward is not the weighted sum: %v", r.Step, v)
		}
		if _, has := v[prefix+"rewards/format/mean"]; has {
			t.Error("there is no format")
		}
	}
	for _, want := range []string{"GRPO: 3 steps of 2 prompts with 4 completions each, from 20 training prompts",
		"mean reward ", "  command ", "  pattern ", "The mean reward "} {
		if !strings.Contains(o.out, want) {
			t.Errorf("the summary lacks %q:\n%s", want, o.out)
		}
	}
	if line := read(t, "out/samples.jsonl"); !strings.HasPrefix(line, `{"step":0,"item":"prompts.jsonl:`) ||
		!strings.Contains(line, `"rewards":[`) {
		t.Error(line)
	}
	if again := must(t, "grpo", "--resume", "out", "--allow", "commands"); again.out != o.out {
		t.Errorf("summary %q, then %q", o.out, again.out)
	}
}

// TestInterruptedGRPOEndsLikeAWholeOne: Ctrl-C, again and again, costs no bit.
func TestInterruptedGRPOEndsLikeAWholeOne(t *testing.T) {
	workPrompts(t)
	args := byProgram(3, "--set", "grpo.baseline=leave-one-out", "--set", "grpo.std=batch", "--set",
		"grpo.updates_per_rollout=2")
	must(t, append(args, "--out", "whole")...)
	interruptRepeatedly(t, append(args, "--out", "broken"), "step 1/3")
	sameCIRLRun(t, "whole", "broken")
}

// TestGRPOSweep compares runs by their rewards.
func TestGRPOSweep(t *testing.T) {
	workPrompts(t)
	o := must(t, byProgram(1, "--sweep", "seed=1,2")...)
	if !strings.Contains(o.out, "seed  reward") || strings.Count(o.out, "\n") < 4 {
		t.Error(o.out)
	}
}

// TestGRPOPlanAndExplain: both say what a run is before it starts.
func TestGRPOPlanAndExplain(t *testing.T) {
	workPrompts(t)
	o := must(t, byProgram(3, "--explain", "--set", "grpo.surrogate=cispo", "--set", "grpo.baseline=leave-one-out",
		"--set", "grpo.std=none")...)
	for _, want := range []string{"R = 1·command\n", "A = (R - mean R), over the 3 other completions of a prompt",
		"-clip(ρ, 0.8, 1.2)·A·logπ, the clipped ratio without a gradient, + 0.001·KL"} {
		if !strings.Contains(o.out, want) {
			t.Errorf("lacks %q:\n%s", want, o.out)
		}
	}
	write(t, "sweep.yaml", "command: grpo\nmodel: "+testkit.CIModel()+"\ndata: {train: prompts.jsonl}\n"+
		"reward: {kind: command, command: [touch, RAN]}\n")
	o = must(t, "grpo", "--config", "sweep.yaml", "--sweep", "seed=1,2", "--out", "swept", "--explain")
	if !strings.HasPrefix(o.out, "seed=1:\n") || !strings.Contains(o.out, "\nseed=2:\n") || exists("swept") ||
		exists("RAN") {
		t.Errorf("a sweep is not explained, or is run:\n%s", o.out)
	}
	write(t, "g.yaml", "command: grpo\nmodel: "+testkit.CIModel()+"\nbackend: go\ndata: {train: prompts.jsonl}\n"+
		"reward: {kind: exact}\ngrpo: {prompts_per_step: 2, group_size: 4}\nsampling: {max_new_tokens: 8}\n")
	if o := must(t, "plan", "--config", "g.yaml"); !strings.Contains(o.out, "10 steps") {
		t.Error(o.out)
	}
}

// TestSums: the example of docs/grpo.md. Its program and the built-in reward agree.
func TestSums(t *testing.T) {
	python, script := need.Path(t, "python3"), filepath.Join(root, "scripts", "grpo", "sums.py")
	workPrompts(t)
	rows, err := exec.Command(python, script, "prompts", "0", "24").Output()
	if err != nil {
		t.Fatal(err)
	}
	write(t, "prompts.jsonl", string(rows))
	for _, reward := range [][]string{{"command", "--command", python + " " + script + " score"}, {"exact"}} {
		must(t, tinyGRPO(1, append([]string{"--out", reward[0], "--reward"}, reward...)...)...)
	}
	if a, b := read(t, "command/test-after.jsonl"), read(t, "exact/test-after.jsonl"); a != b {
		t.Errorf("%s\n%s", a, b)
	}
}

// failing is a reward that fails after a number of calls, as long as there is a file broken. With four, the trial, the
// test before training, the first validation and the first step work.
const failing = `n=$(cat calls 2>/dev/null || echo 0); n=$((n+1)); echo $n > calls
if [ -f broken ] && [ $n -gt %d ]; then %s; fi
exec awk '{print(length%%7)}'
`

// TestRewardsThatFail: one line says what is wrong and how to continue, and what was learnt is kept: when the reward works
// again the run ends in the bits of one that was let alone.
func TestRewardsThatFail(t *testing.T) {
	workPrompts(t)
	args := tinyGRPO(3, "--reward", "command", "--command", "sh score.sh")
	write(t, "score.sh", fmt.Sprintf(failing, 4, "true"))
	must(t, append(args, "--out", "whole")...)
	for name, c := range map[string]struct{ act, says string }{
		"dies": {"echo no such model >&2; exit 3", "exit status 3: no such model"},
		"text": {"echo fine; exit 0", `line 1 of its output is "fine": want a finite number`},
		"NaN":  {"echo NaN; exit 0", `line 1 of its output is "NaN": want a finite number`},
		"few":  {"echo 1; exit 0", "it wrote 1 scores for 8 answers from prompts.jsonl:"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, file := range []string{"calls", "out"} {
				if err := os.RemoveAll(file); err != nil {
					t.Fatal(err)
				}
			}
			write(t, "broken", "")
			write(t, "score.sh", fmt.Sprintf(failing, 4, c.act))
			checkRefusal(t, cli(t, args...), faultCase{code: 1, says: []string{
				"step 2: reward command sh: " + c.says, "the last good checkpoint is out/checkpoints/step-00000001",
				"; --resume out continues"}})
			if err := os.Remove("broken"); err != nil {
				t.Fatal(err)
			}
			must(t, "grpo", "--resume", "out", "--allow", "commands")
			if read(t, "out/model/model.safetensors") != read(t, "whole/model/model.safetensors") {
				t.Error("the model has other bits than that of a run without a failure")
			}
		})
	}
}

// TestRewardThatHangs: the program is ended, and the folder of the run says so in one line.
func TestRewardThatHangs(t *testing.T) {
	workPrompts(t)
	write(t, "broken", "")
	write(t, "score.sh", fmt.Sprintf(failing, 1, "exec sleep 60"))
	args := tinyGRPO(3, "--reward", "command", "--command", "sh score.sh", "--set", "reward.timeout=500ms")
	checkRefusal(t, cli(t, args...),
		faultCase{code: 1, says: []string{"test before training: reward command sh: it took longer than 500ms for 2 " +
			"answers from prompts.jsonl:", "and was ended; --resume out continues"}})
}

// TestRewardIsTried: a program that cannot score ends the run before anything is sampled, grpo and data pairs before
// the model is read, which is no model here.
func TestRewardIsTried(t *testing.T) {
	workPrompts(t)
	for _, line := range []string{"grpo --model prompts.jsonl --data", "mappo --mode online --model embedded --data",
		"data pairs --model prompts.jsonl --out pairs.jsonl --input"} {
		for command, says := range map[string]string{"sh -c exit(3": "exit status 2: ",
			"echo well": `output is "well": want a finite number`,
			"./nowhere": "no such file"} {
			args := append(strings.Fields(line), "prompts.jsonl", "--reward", "command", "--command", command)
			checkRefusal(t, cli(t, args...),
				faultCase{code: 1, says: []string{"reward command ", says, "tried with one answer"}})
		}
	}
}

// TestJudgeThatIsAway: its server refuses for longer than the client tries. The run is saved, the replies that came are
// kept, and it ends in the bits of one whose judge was there.
func TestJudgeThatIsAway(t *testing.T) {
	workPrompts(t)
	var asked, most atomic.Int32 // most: requests until the server is away
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if n := asked.Add(1); n > most.Load() {
			http.Error(w, "maintenance", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"choices": [{"message": {"role": "assistant", "content": "Score: %d"}}]}`, 1+crc32.ChecksumIEEE(body)%9)
	}))
	defer server.Close()
	args := tinyGRPO(2, "--reward", "judge", "--judge-base-url", server.URL+"/v1", "--judge-model", "m", "--set",
		"reward.judge.retries=0", "--set", "reward.judge.parallel=1")
	most.Store(1000)
	must(t, append(args, "--out", "whole")...)
	all := asked.Swap(0)
	most.Store(all - 4)
	checkRefusal(t, cli(t, args...), faultCase{code: 1, says: []string{"judge: ", "maintenance", "--resume out continues"}})
	asked.Store(0)
	most.Store(1000)
	must(t, "grpo", "--resume", "out", "--allow", "hosts")
	sameCIRLRun(t, "whole", "out")
	if n := asked.Load(); n > 4 {
		t.Errorf("%d replies were asked for again", n-4)
	}
}

// grpoFaults are what must be refused before anything is trained or written.
var grpoFaults = []faultCase{
	{"group of one", nil, byProgram(2, "--group-size", "1"), 2, []string{"--group-size", "grpo.group_size 1", "2 or more"},
		nil},
	{"no reward", nil, tinyGRPO(2), 2, []string{"reward.kind is missing: want command, judge, model, ci, exact or pattern"},
		nil},
	{"unknown reward", nil, tinyGRPO(2, "--reward", "exact,luck"), 2, []string{"--reward", `"exact,luck"`,
		"want command, judge, model, ci, exact or pattern"}, nil},
	{"a reward twice", nil, tinyGRPO(2, "--reward", "exact,exact"), 2, []string{"exact is there twice"}, nil},
	{"reward of ci-rl", nil, tinyGRPO(2, "--reward", "ci"), 2, []string{"reward.kind ci", "posttrain ci-rl"}, nil},
	{"no program", nil, tinyGRPO(2, "--reward", "command"), 2, []string{"reward.command []",
		"want a program and its arguments"}, nil},
	{"weights of others", nil, byProgram(2, "--weights", "1,2"), 2, []string{"--weights", "kind command: want 1"}, nil},
	{"one reward by itself", nil, byProgram(2, "--set", "grpo.combine=each"), 2, []string{"grpo.combine each", "want several"},
		nil},
	{"bad pattern", nil, tinyGRPO(2, "--reward", "pattern", "--pattern", "("), 2, []string{"--pattern", "missing closing"},
		nil},
	{"no reward model", nil, tinyGRPO(2, "--reward", "model"), 2, []string{"reward.model.folder", "reward model"}, nil},
	{"data without prompts", withFile("prompts.jsonl", `{"text": "a"}`+"\n"), byProgram(2), 1, []string{"prompts.jsonl:1",
		"want prompt"}, nil},
	{"empty prompts", withFile("prompts.jsonl", `{"prompt": ""}`+"\n"), byProgram(2), 1, []string{"prompts.jsonl"}, nil},
	{"no rows", withFile("prompts.jsonl", ""), byProgram(2), 1, []string{"prompts.jsonl", "empty"}, nil},
	{"items", workItems, byProgram(2, "--data", "items.json"), 1, []string{"items.json", "posttrain ci-rl"}, nil},
	{"long prompts", nil, byProgram(2, "--set", "data.max_prompt_tokens=2"), 1, []string{"at most 2 tokens leave 0"}, nil},
	{"more prompts than there are", nil, byProgram(2, "--prompts", "40"), 1, []string{"grpo.prompts_per_step 40",
		"20 prompts to train on"}, nil},
}

func TestGRPOFaults(t *testing.T) { refuseAll(t, workPrompts, grpoFaults) }
