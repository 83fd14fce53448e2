package federated

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/journal"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/federated/virtual"
)

// small are a method's options for a short run of 3 agents.
func small(t *testing.T, method string) Options {
	t.Helper()
	o := Defaults(method)
	o.Agents, o.Seed = 3, 7
	o.Control.Steps, o.Control.Hidden = 60, []int{4}
	if protocol.Asynchronous(method) {
		o.Updates = new(7)
	} else {
		o.Rounds = new(3)
	}
	if method == protocol.FedNPG {
		o.CG.Iters = new(2)
	}
	if method == protocol.FedBuff {
		o.Buffer = new(2)
	}
	if err := StepSpec.Verify(&o); err != nil {
		t.Fatal(err)
	}
	return o
}

// simulated is the SHA-256 of the parameters at the end of a run in one process.
func simulated(t *testing.T, o Options) string {
	t.Helper()
	server, _, err := o.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	var agents []*protocol.Agent
	for i := range o.Agents {
		a, err := o.NewAgent(i)
		if err != nil {
			t.Fatal(err)
		}
		a.Secure(bytes.Repeat([]byte{byte(i)}, secretBytes), "simulated")
		agents = append(agents, a)
	}
	s, err := virtual.New(server, agents, slices.Repeat([]float64{1}, o.Agents))
	if err != nil {
		t.Fatal(err)
	}
	for s.JoinAll(t.Context()); !server.Done(); {
		if _, err := s.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.Wait()
	return journal.Hash(server.Params())
}

// step runs a step and decodes what it prints.
func step[T any](t *testing.T, o Options, s Step) (did T) {
	t.Helper()
	printed, err := s.Run(context.Background(), o, nil)
	if err == nil {
		err = json.Unmarshal([]byte(printed), &did)
	}
	if err != nil {
		t.Fatal(err)
	}
	return did
}

// rounds runs a whole federation by steps, each of them twice, and returns the SHA-256 of the parameters.
func rounds(t *testing.T, o Options, twice bool) string {
	t.Helper()
	server := Step{Server: true, State: "server", Out: "tasks"}
	did := step[Served](t, o, server)
	for !did.Done {
		server.Updates = nil
		for _, agent := range did.Tasks {
			s := Step{Agent: agent, State: fmt.Sprint("agent-", agent), Out: fmt.Sprint("update-", agent),
				Task: fmt.Sprintf("tasks/task-%d.bin", agent)}
			first := step[Worked](t, o, s)
			if twice {
				before := content(t, s.Out)
				if again := step[Worked](t, o, s); again != first || content(t, s.Out) != before {
					t.Fatalf("agent %d at version %d: done again, the update differs", agent, first.Version)
				}
			}
			server.Updates = append(server.Updates, s.Out)
		}
		did = step[Served](t, o, server)
		if tasks := did.Tasks; twice && !did.Done {
			if did = step[Served](t, o, server); !slices.Equal(did.Tasks, tasks) {
				t.Fatalf("tasks %v, and %v when the step is done again", tasks, did.Tasks)
			}
		}
	}
	return did.Params
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestStepsAreASimulation: steps that exchange files give the parameters of a simulation, bit for bit, and the server's
// folder replays to them.
func TestStepsAreASimulation(t *testing.T) {
	for _, name := range append(protocol.Methods(), "secure fedpg") {
		t.Run(name, func(t *testing.T) {
			method, secure := strings.CutPrefix(name, "secure ")
			o := small(t, method)
			if o.Secure = secure; secure {
				o.Clip = 0
			}
			want := simulated(t, o)
			t.Chdir(t.TempDir())
			if got := rounds(t, o, false); got != want {
				t.Errorf("parameters %.12s, simulated %.12s", got, want)
			}
			printed, err := Replay("server")
			if err != nil || !strings.Contains(printed, want) || !strings.Contains(printed, "2 of 2 checkpoints") {
				t.Errorf("%s, error %v", printed, err)
			}
		})
	}
}

// TestStepsDoneAgain: every step may be done twice, as after a kill, and changes nothing.
func TestStepsDoneAgain(t *testing.T) {
	for _, method := range []string{protocol.FedNPGADMM, protocol.FedPG} {
		t.Run(method, func(t *testing.T) {
			o := small(t, method)
			want := simulated(t, o)
			t.Chdir(t.TempDir())
			if got := rounds(t, o, true); got != want {
				t.Errorf("parameters %.12s, simulated %.12s", got, want)
			}
		})
	}
}

// TestPlainWeights: with raw numbers in the place of a task, an agent gives the same numbers.
func TestPlainWeights(t *testing.T) {
	for _, method := range []string{protocol.FedPG, protocol.FedAvg} {
		t.Run(method, func(t *testing.T) {
			o := small(t, method)
			t.Chdir(t.TempDir())
			server := Step{Server: true, State: "server", Out: "tasks"}
			did := step[Served](t, o, server)
			for !did.Done {
				server.Updates = nil
				for _, agent := range did.Tasks {
					task, name := fmt.Sprintf("tasks/task-%d.bin", agent), fmt.Sprint(agent)
					step[Worked](t, o, Step{Agent: agent, State: "a" + name, Out: "u" + name, Task: task})
					numbers := content(t, task)
					_, numbers, _ = strings.Cut(numbers, "\n")
					if err := os.WriteFile("weights", []byte(numbers), 0o666); err != nil {
						t.Fatal(err)
					}
					plain := Step{Agent: agent, State: "p" + name, Out: "raw", Weights: "weights", Version: did.Version}
					step[Worked](t, o, plain)
					if raw := content(t, "raw"); !strings.HasSuffix(content(t, "u"+name), "\n"+raw) {
						t.Errorf("agent %d, round %d: other numbers", agent, did.Version)
					}
					server.Updates = append(server.Updates, "u"+name)
				}
				did = step[Served](t, o, server)
			}
		})
	}
}

// TestClosedRound: the server closes a round without an agent that does not answer.
func TestClosedRound(t *testing.T) {
	o := small(t, protocol.FedPG)
	t.Chdir(t.TempDir())
	server := Step{Server: true, State: "server", Out: "tasks"}
	step[Served](t, o, server)
	for _, agent := range []int{2, 0} {
		step[Worked](t, o, Step{Agent: agent, State: fmt.Sprint("agent-", agent), Out: fmt.Sprint("u", agent),
			Task: fmt.Sprintf("tasks/task-%d.bin", agent)})
		server.Updates = append(server.Updates, fmt.Sprint("u", agent))
	}
	if did := step[Served](t, o, server); did.Version != 0 || len(did.Tasks) != 0 {
		t.Errorf("%+v: want the round to wait for agent 1", did)
	}
	did := step[Served](t, o, Step{Server: true, State: "server", Out: "tasks", Close: true})
	if did.Version != 1 || !slices.Equal(did.Tasks, []int{0, 1, 2}) {
		t.Errorf("%+v: want all to begin round 1", did)
	}
}

// TestRefusedSteps: each is one line that says what was found and what is wanted.
func TestRefusedSteps(t *testing.T) {
	o := small(t, protocol.FedPG)
	t.Chdir(t.TempDir())
	step[Served](t, o, Step{Server: true, State: "server", Out: "tasks"})
	step[Worked](t, o, Step{State: "a", Out: "u", Task: "tasks/task-0.bin"})
	if err := os.WriteFile("short", make([]byte, 10), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("broken", []byte(content(t, "u")[:200]), 0o666); err != nil {
		t.Fatal(err)
	}
	other, natural := o, small(t, protocol.FedNPGADMM)
	other.Seed++
	inner, secure := natural, o
	inner.Inner, secure.Secure, secure.Clip = new(2), true, 0
	for _, c := range []struct {
		o    Options
		s    Step
		says string
	}{
		{o, Step{}, "state is missing: want a folder"},
		{o, Step{State: "a"}, "want weights or task, one of the two"},
		{o, Step{State: "a", Task: "t", Weights: "w", Out: "u"}, "want weights or task, one of the two"},
		{o, Step{State: "a", Task: "t"}, "out is missing: want a file"},
		{o, Step{Server: true, State: "server"}, "out is missing: want a folder"},
		{o, Step{State: "a", Weights: "short", Out: "u", Version: -1}, "want 0 or more"},
		{o, Step{State: "a", Weights: "short", Out: "u"}, "short has 10 bytes: want"},
		{o, Step{State: "a", Weights: "none", Out: "u"}, "none cannot be read: no such file"},
		{o, Step{State: "a", Task: "tasks", Out: "u"}, "tasks cannot be read: found a folder"},
		{o, Step{State: "a", Task: "tasks/task-0.bin", Out: "none/u"}, "none/u cannot be written: no such file"},
		{o, Step{State: "a", Task: "u", Out: "v"}, `u: task: of another run: found "update", want "task"`},
		{o, Step{State: "a", Agent: 3, Task: "tasks/task-0.bin", Out: "u"}, "agent 3: want 0 to 2"},
		{o, Step{State: "a", Agent: 1, Task: "tasks/task-1.bin", Out: "u"}, "a/agent.bin cannot be read: state: of"},
		{other, Step{State: "b", Task: "tasks/task-0.bin", Out: "u"}, "tasks/task-0.bin: task: of another run"},
		{natural, Step{State: "b", Weights: "short", Out: "u"}, "sends its agents more than weights: want task"},
		{secure, Step{State: "c", Weights: "short", Out: "u"}, "a secure sum needs the keys of its agents too"},
		{inner, Step{State: "b", Task: "tasks/task-0.bin", Out: "u"}, "a step keeps none: want 1"},
		{o, Step{Server: true, State: "server", Out: "tasks", Updates: []string{"broken"}}, "broken: update: damaged"},
		{other, Step{Server: true, State: "server", Out: "tasks"}, "server: the config has changed since the run was"},
		{o, Step{Server: true, State: "tasks", Out: "tasks"}, "run folder tasks is not empty"},
	} {
		_, err := c.s.Run(t.Context(), c.o, nil)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: error %v, want one with %q", c.s, err, c.says)
		}
	}
}

// TestRefusedReplays: each is one line.
func TestRefusedReplays(t *testing.T) {
	o := small(t, protocol.FedPG)
	t.Chdir(t.TempDir())
	step[Served](t, o, Step{Server: true, State: "server", Out: "tasks"})
	for name, text := range map[string]string{"none": "", "mappo": "command: mappo\n", "odd": "command: [1]\n",
		"empty": "command: federated step\n"} {
		if text == "" {
			continue
		}
		if err := os.Mkdir(name, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(name, "config.yaml"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for dir, says := range map[string]string{"none": "none: there is no run in it (no config.yaml)",
		"mappo": "command mappo: want a run of federated", "odd": "want a run of federated",
		"empty": "empty: there is no journal in it (no journal.jsonl)"} {
		if _, err := Replay(dir); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want one with %q", dir, err, says)
		}
	}
	text := strings.Replace(content(t, "server/config.yaml"), "wire: float32", "wire: float64", 1)
	if err := os.WriteFile("server/config.yaml", []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	const says = "of type float32, but the run's config gives"
	if _, err := Replay("server"); err == nil || !strings.Contains(err.Error(), says) {
		t.Error(err)
	}
}
