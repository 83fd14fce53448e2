package federated

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/federated/journal"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/federated/wire"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/run"
)

// StepCommand does one step of a run for a federation that is not ours.
const StepCommand = "federated step"

// StepSpec says how a configuration becomes the Options of a step.
var StepSpec = config.Register(&config.Spec[Options]{
	Command:  StepCommand,
	Like:     family,
	Without:  withoutKeys,
	Defaults: DefaultsOf,
	Settle:   func(g *config.Given, o *Options) { o.Settle(g) },
	Check:    func(g *config.Given, o *Options) { o.CheckGiven(g) },
	Idle:     func(o *Options) []string { return o.IdleKeys() },
})

// Step is one step: an agent's work, or the server's. Other frameworks carry the files.
type Step struct {
	Server  bool
	State   string   // folder of what the agent, or the server, keeps between its steps
	Updates []string // of the server: the agents' files
	Close   bool     // of the server: close the round without those who are late

	Agent   int
	Task    string // file of the server's step
	Weights string // instead of Task: θ as raw numbers
	Version int    // of Weights

	Out string // agent: the update's file; server: a folder for tasks and weights
}

// Check names what is wrong with a step.
func (s Step) Check() []fault.Fault {
	var faults fault.Faults
	need := func(key, value, want string) {
		if value == "" {
			faults = append(faults, fault.Fault{Key: key, Value: "is missing", Problem: want})
		}
	}
	need("state", s.State, "want a folder, which this command makes")
	switch {
	case s.Server:
		need("out", s.Out, "want a folder for tasks and weights")
		if s.Task != "" || s.Weights != "" {
			faults.Add("server", true, "task and weights are for an agent; remove them")
		}
		return faults
	case (s.Task == "") == (s.Weights == ""):
		faults.Add("weights", s.Weights, "want weights or task, one of the two")
	case len(s.Updates) > 0 || s.Close:
		faults.Add("update", strings.Join(s.Updates, " "), "update and close are for the server; add server")
	}
	need("out", s.Out, "want a file for the update")
	if s.Version < 0 {
		faults.Add("round", s.Version, "want 0 or more")
	}
	return faults
}

// Run does the step and returns what it did as a line of JSON.
func (s Step) Run(ctx context.Context, o Options, r run.Reporter) (printed string, err error) {
	if faults := s.Check(); len(faults) > 0 {
		return "", faults[0]
	}
	defer o.Close()
	o.heard = r
	var did any
	if s.Server {
		did, err = s.serve(&o, run.Listen(r))
	} else {
		did, err = s.work(ctx, &o)
	}
	if err != nil {
		return "", err
	}
	line, err := json.Marshal(did)
	return string(line) + "\n", err
}

// form is that of all messages of the run. Its id is the hash of the options: nobody else names the run.
func (o *Options) form(d int) wire.Form {
	return wire.Form{Run: run.HashConfig(StepSpec.Resolve(o))[:12], Type: wire.Type(o.Wire), D: d}
}

// Worked says what an agent has done.
type Worked struct {
	Agent   int            `json:"agent"`
	Kind    protocol.Kind  `json:"kind"`
	Version int            `json:"version"`
	Stats   protocol.Stats `json:"stats"`
}

const agentFile = "agent.bin"

// kept is what an agent keeps between steps beside its own state.
type kept struct {
	Agent json.RawMessage
	Done  []int // versions of its last rounds, at most two, for a server that does not say which it counts
	Round int   // of the vector "params": the parameters of the last round
}

// worker is an agent with its folder.
type worker struct {
	folder *run.Folder
	id     string // of the run and the agent
	form   wire.Form
	agent  *protocol.Agent
	kept
	params []float64
}

func (s Step) work(ctx context.Context, o *Options) (any, error) {
	if o.Inner != nil && *o.Inner > 1 {
		const why = "an inner round needs the samples of the one before, and a step keeps none: want 1"
		return nil, fault.Fault{Key: "inner", Value: fmt.Sprint(*o.Inner), Problem: why}
	}
	w, unlock, err := s.open(o)
	if err != nil {
		return nil, err
	}
	defer unlock()
	t, err := s.task(o, w)
	if err != nil {
		return nil, err
	}
	if t.Kind == protocol.Stop {
		return Worked{Agent: s.Agent, Kind: t.Kind, Version: t.Version}, nil
	}
	u, err := w.do(ctx, t)
	if err != nil {
		return nil, err
	}
	if err := s.writeUpdate(w.form, u); err != nil {
		return nil, err
	}
	return Worked{s.Agent, u.Kind, u.Version, u.Stats}, nil
}

// open makes the agent as it was after its last step.
func (s Step) open(o *Options) (w *worker, unlock func(), err error) {
	w = &worker{}
	if w.agent, err = o.NewAgent(s.Agent); err != nil {
		return nil, nil, err
	}
	w.form = o.form(o.parameters())
	w.id = fmt.Sprintf("%s agent %d", w.form.Run, s.Agent)
	if err := os.MkdirAll(s.State, 0o777); err != nil {
		return nil, nil, fmt.Errorf("%s cannot be made: %w", s.State, run.Cause(err))
	}
	lock, err := lockFolder(s.State)
	if err != nil {
		return nil, nil, err
	}
	w.folder = &run.Folder{Dir: s.State}
	err = w.folder.Own(agentFile)
	if err == nil && o.Secure {
		err = w.secure()
	}
	if err == nil {
		err = w.restore()
	}
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return w, func() { lock.Close() }, nil
}

const (
	secretFile  = "secret"
	secretBytes = 32
)

// secure gives the agent the secret that its masks of secure sums come from, drawn once.
func (w *worker) secure() error {
	path := w.folder.Path(secretFile)
	secret, err := os.ReadFile(path)
	if err != nil || len(secret) != secretBytes {
		secret = make([]byte, secretBytes)
		rand.Read(secret)
		if err := os.WriteFile(path, secret, 0o600); err != nil {
			return fmt.Errorf("%s cannot be written: %w", path, run.Cause(err))
		}
	}
	w.agent.Secure(secret, w.form.Run)
	return nil
}

// lockFolder keeps an agent's folder to one process.
func lockFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be opened: %w", path, run.Cause(err))
	}
	if err := run.Lock(f); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, errors.Join(err, f.Close()))
	}
	return f, nil
}

func (w *worker) restore() error {
	b, err := os.ReadFile(w.folder.Path(agentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var s protocol.State
	if err == nil {
		s, err = wire.DecodeState(w.id, b)
	}
	if err == nil {
		err = json.Unmarshal(s.Head, &w.kept)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", w.folder.Path(agentFile), run.Cause(err))
	}
	w.params = s.Vectors["params"]
	delete(s.Vectors, "params")
	s.Head = w.kept.Agent
	return w.agent.Restore(s)
}

// do does a task and stores what the agent keeps. A task that is done again, after a kill, gives the same update.
func (w *worker) do(ctx context.Context, t protocol.Task) (u protocol.Update, err error) {
	switch {
	case t.Params != nil:
		w.params, w.Round = t.Params, t.Version
	case w.Round == t.Version:
		t.Params = w.params // the samples of the round are drawn again
	}
	if u, err = w.agent.Do(ctx, t); err != nil {
		return u, err
	}
	if len(w.Done) == 0 || w.Done[len(w.Done)-1] < t.Version {
		w.Done = append(w.Done, t.Version)
		w.Done = w.Done[max(0, len(w.Done)-2):]
	}
	s, err := w.agent.State()
	if err != nil {
		return u, err
	}
	w.kept.Agent = s.Head
	if s.Head, err = json.Marshal(w.kept); err != nil {
		return u, err
	}
	s.Vectors["params"] = w.params
	b, err := wire.EncodeState(w.id, s)
	if err != nil {
		return u, err
	}
	return u, w.folder.WriteFile(agentFile, b)
}

// task reads what the agent is to do.
func (s Step) task(o *Options, w *worker) (t protocol.Task, err error) {
	if s.Weights != "" {
		return s.plainTask(o, w)
	}
	b, err := readFile(s.Task, int64(w.form.Most()))
	if err != nil {
		return t, err
	}
	if t, err = w.form.DecodeTask(b); err != nil {
		return t, fmt.Errorf("%s: %w", s.Task, err)
	}
	return t, nil
}

// plainTask makes the task of a round from the weights alone. The last round of the agent is taken for counted.
func (s Step) plainTask(o *Options, w *worker) (protocol.Task, error) {
	kind := protocol.Gradient
	if o.Secure {
		const why = "a secure sum needs the keys of its agents too: want task, a file of the server's step"
		return protocol.Task{}, fault.Fault{Key: "weights", Value: s.Weights, Problem: why}
	}
	switch o.Method {
	case protocol.FedNPGADMM, protocol.FedNPG:
		const why = "method %s sends its agents more than weights: want task, a file of the server's step"
		return protocol.Task{}, fault.Fault{Key: "weights", Value: s.Weights, Problem: fmt.Sprintf(why, o.Method)}
	case protocol.FedPPO, protocol.FedAvg, protocol.FedProx, protocol.FedBuff, protocol.DiLoCo:
		kind = protocol.Train
	}
	params, err := readNumbers(s.Weights, w.form)
	if err != nil {
		return protocol.Task{}, err
	}
	w.Done = slices.DeleteFunc(w.Done, func(v int) bool { return v >= s.Version })
	last := -1
	if n := len(w.Done); n > 0 {
		last = w.Done[n-1]
	}
	return protocol.Task{Kind: kind, Version: s.Version, Accepted: last, Params: params}, nil
}

// writeUpdate stores an update: as the server's step reads it, or as raw numbers if the task was raw numbers.
func (s Step) writeUpdate(form wire.Form, u protocol.Update) error {
	b, err := form.EncodeUpdate(u)
	if err != nil {
		return err
	}
	if s.Weights != "" {
		b = b[len(b)-wire.Payload(b):]
	}
	return replaceFile(s.Out, b)
}

// replaceFile writes a whole file, at once or not at all. What a kill leaves has a fixed name, which the next step uses
// again: the folder may be anybody's.
func replaceFile(path string, data []byte) error {
	aside := path + ".new"
	f, err := os.Create(aside)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(aside, path)
	}
	if err != nil {
		os.Remove(aside)
		return fmt.Errorf("%s cannot be written: %w", path, run.Cause(err))
	}
	return nil
}

// readNumbers reads θ: little-endian numbers of the run's type and nothing else.
func readNumbers(path string, form wire.Form) ([]float64, error) {
	size := form.Type.Size()
	b, err := readFile(path, int64(form.Most()))
	if err != nil {
		return nil, err
	}
	if len(b) != size*form.D {
		return nil, fmt.Errorf("%s has %d bytes: want %d, %d numbers of type %s", path, len(b), size*form.D, form.D,
			form.Type)
	}
	v := make([]float64, form.D)
	for i := range v {
		if size == 4 {
			v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		} else {
			v[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	return v, nil
}

func readFile(path string, most int64) ([]byte, error) {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	b, err := files.Read(os.DirFS(dir), name, most)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, run.Cause(err))
	}
	return b, nil
}

// Served says what the server has done.
type Served struct {
	Version  int       `json:"version"`
	Done     bool      `json:"done"`
	Params   string    `json:"params"` // SHA-256 of θ in float64, as in weights.bin
	Tasks    []int     `json:"tasks"`  // agents that have a new task
	Receipts []Receipt `json:"receipts"`
}

// Receipt says what became of an agent's update.
type Receipt struct {
	Agent    int    `json:"agent"`
	Accepted bool   `json:"accepted"`
	Reason   string `json:"reason,omitempty"`
}

// serving is a server's step. Its state is the folder of a run with a journal.
type serving struct {
	Step
	form   wire.Form
	server protocol.Server
	keeper *journal.Keeper
	tasks  map[int]protocol.Task
	did    Served
}

func (s Step) serve(o *Options, r run.Reporter) (any, error) {
	folder, err := openState(s.State, StepSpec.Resolve(o))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	v := &serving{Step: s, tasks: map[int]protocol.Task{}, did: Served{Tasks: []int{}, Receipts: []Receipt{}}}
	if v.server, _, err = o.NewServer(); err != nil {
		return nil, err
	}
	v.form = o.form(len(v.server.Params()))
	v.keeper, err = journal.Open(folder, v.server, journal.Options{Form: v.form, Every: o.Agents, Keep: 2,
		Warn: func(w run.Warning) { r.Warn("%s", w) }})
	if err != nil {
		return nil, err
	}
	if err = v.do(o); err == nil {
		err = v.keeper.Close()
	}
	if err == nil {
		err = v.write(o)
	}
	return v.did, err
}

// openState makes the server's folder, or opens that of the steps before, which had the same options.
func openState(dir string, resolved []byte) (*run.Folder, error) {
	stored, err := config.Open(filepath.Join(dir, "config.yaml"))
	if err != nil {
		folder, err := run.Create(dir, StepCommand)
		if err != nil {
			return nil, err
		}
		return folder, folder.WriteConfig(resolved)
	}
	if changed := config.Diff(stored, resolved); len(changed) > 0 {
		return nil, fmt.Errorf("%s: the config has changed since the run was started (%s): change it back, or name "+
			"another folder", dir, strings.Join(changed, "; "))
	}
	return run.Open(dir)
}

// do gives the server the updates. Without any, all agents get their tasks, again if they had them.
func (v *serving) do(o *Options) error {
	if len(v.Updates) == 0 && !v.Close {
		for agent := range o.Agents {
			if err := v.join(agent); err != nil {
				return err
			}
		}
		return nil
	}
	for _, path := range v.Updates {
		if err := v.receive(path); err != nil {
			return err
		}
	}
	if !v.Close {
		return nil
	}
	_, sends, err := v.keeper.Deadline()
	v.take(sends)
	return err
}

func (v *serving) join(agent int) error {
	sends, err := v.keeper.Join(agent)
	v.take(sends)
	return err
}

func (v *serving) take(sends []protocol.Send) {
	for _, s := range sends {
		v.tasks[s.Agent] = s.Task
	}
}

// receive gives the server an update. One that it had already, from a step that was killed, has its agent asked again.
func (v *serving) receive(path string) error {
	b, err := readFile(path, int64(v.form.Most()))
	if err != nil {
		return err
	}
	u, err := v.form.DecodeUpdate(b)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	receipt, sends, err := v.keeper.Receive(u)
	if err != nil {
		return err
	}
	v.take(sends)
	v.did.Receipts = append(v.did.Receipts, Receipt{u.Agent, receipt.Accepted, receipt.Reason})
	if receipt.Accepted || len(sends) > 0 {
		return nil
	}
	return v.join(u.Agent)
}

// write stores the new tasks and θ, and removes the tasks of the step before.
func (v *serving) write(o *Options) error {
	if err := os.MkdirAll(v.Out, 0o777); err != nil {
		return fmt.Errorf("%s cannot be made: %w", v.Out, run.Cause(err))
	}
	out := &run.Folder{Dir: v.Out}
	taskName := func(agent int) string { return fmt.Sprintf("task-%d.bin", agent) }
	names := []string{"weights.bin"}
	for agent := range o.Agents {
		names = append(names, taskName(agent))
	}
	if err := out.Own(names...); err != nil {
		return err
	}
	for agent := range o.Agents {
		name := taskName(agent)
		t, ok := v.tasks[agent]
		if !ok {
			if err := os.Remove(out.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s cannot be removed: %w", out.Path(name), run.Cause(err))
			}
			continue
		}
		b, err := v.form.EncodeTask(t)
		if err == nil {
			err = out.WriteFile(name, b)
		}
		if err != nil {
			return err
		}
		v.did.Tasks = append(v.did.Tasks, agent)
	}
	v.did.Version, v.did.Done, v.did.Params = v.server.Version(), v.server.Done(), journal.Hash(v.server.Params())
	return out.WriteFile("weights.bin", rawNumbers(v.server.Params()))
}

func rawNumbers(v []float64) []byte {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}
