package federated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/link"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
)

// Run simulates a method on a virtual clock, then the one that it is compared with on as many samples, and reports. A
// nil Reporter is silent.
func Run(ctx context.Context, s Simulation, r run.Reporter) (*Result, error) {
	if err := Spec.Verify(&s); err != nil {
		return nil, err
	}
	if err := s.Dir.Check(Spec.Resolve(&s)); err != nil {
		return nil, err
	}
	s.sayIgnored(run.Listen(r))
	if s.Seeds > 0 {
		return runSeeds(ctx, s, run.Listen(r))
	}
	s.heard = r
	m := &simulating{Simulation: s, Reporter: run.Listen(r), known: map[string]bool{}, work: newWork()}
	if err := m.open(ctx); err != nil {
		return nil, err
	}
	defer m.close()
	if err := m.follow(ctx); err != nil {
		return nil, err
	}
	records, err := m.folder.ReadMetrics()
	if err != nil {
		return nil, err
	}
	sides := []Side{m.side(records)}
	if s.Compare != none {
		other, err := m.compare(ctx, sides[0])
		if err != nil {
			return nil, err
		}
		sides = append(sides, other)
	}
	return m.report(sides)
}

// simulating is a simulation on its way.
type simulating struct {
	Simulation
	run.Reporter
	folder *run.Folder
	clock  *protocol.Simulation
	id     protocol.Identity
	known  map[string]bool // refusals that were reported, by agent and reason
	work   *work
}

// work is what the agents of a simulation compute. An interruption ends it where no step would be lost.
type work struct {
	context.Context
	mu    sync.Mutex
	stop  context.CancelFunc
	saved int  // version that a resume continues, 0: the start
	ahead bool // there are steps after it
}

func newWork() *work {
	w := new(work)
	w.Context, w.stop = context.WithCancel(context.Background())
	return w
}

// interrupt ends the work, unless a step would be lost.
func (w *work) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ahead {
		w.stop()
	}
}

// advance notes a step, if the work has not ended before.
func (w *work) advance() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead = w.Err() == nil
	return w.ahead
}

// keep notes a checkpoint.
func (w *work) keep(version int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saved, w.ahead = version, false
}

// open makes the run folder and the clock, or continues with the folder and clock of the run to resume.
func (m *simulating) open(ctx context.Context) (err error) {
	if m.clock, m.id, err = m.newClock(ctx); err != nil {
		return err
	}
	if m.folder, err = m.Dir.Open(Command, Spec.Resolve(&m.Simulation)); err != nil {
		return err
	}
	if err = m.begin(); err != nil {
		m.close()
	}
	return err
}

func (m *simulating) close() {
	m.work.stop()
	m.clock.Wait()
	m.folder.Close()
	m.Simulation.Close()
}

// begin starts the clock at the newest checkpoint, or at time 0.
func (m *simulating) begin() error {
	if m.Dir.Resume == "" {
		m.clock.JoinAll(m.work)
		return nil
	}
	if err := m.folder.Own(compareName); err != nil {
		return err
	}
	latest, warnings, err := m.folder.Latest()
	for _, w := range warnings {
		m.Warn("%s", w)
	}
	if errors.Is(err, run.ErrNoCheckpoint) {
		m.clock.JoinAll(m.work)
		_, err = m.folder.CutMetrics(0)
		return err
	}
	if err == nil {
		err = m.folder.ReadCheckpoint(latest, m.load)
	}
	if err == nil {
		_, err = m.folder.CutMetrics(latest.Step)
	}
	if err == nil {
		m.Say("%s: continuing after %s", m.folder.Dir, m.count(latest.Step))
	}
	return err
}

// stateName is the file of a checkpoint that has server, agents and clock.
const stateName = "simulation.bin"

func (m *simulating) load(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, stateName))
	if err != nil {
		return err
	}
	state, err := link.DecodeState(Command, text)
	if err != nil {
		return fmt.Errorf("%s: %w", stateName, err)
	}
	if err := m.clock.Restore(m.work, state); err != nil {
		return err
	}
	m.work.keep(m.clock.Server.Version())
	return nil
}

// save writes a checkpoint.
func (m *simulating) save() error {
	state, err := m.clock.State()
	if err != nil {
		return err
	}
	text, err := link.EncodeState(Command, state)
	if err != nil {
		return err
	}
	_, err = m.folder.WriteCheckpoint(m.clock.Server.Version(), func(dir string) error {
		return os.WriteFile(filepath.Join(dir, stateName), text, 0o666)
	})
	if err != nil {
		return err
	}
	m.work.keep(m.clock.Server.Version())
	return m.folder.Prune(m.CheckpointKeep)
}

// newClock makes server, agents and clock. Many agents take a while.
func (s *Simulation) newClock(ctx context.Context) (*protocol.Simulation, protocol.Identity, error) {
	server, id, err := s.NewServer()
	if err != nil {
		return nil, id, err
	}
	agents := make([]*protocol.Agent, s.Agents)
	for i := range agents {
		if ctx.Err() != nil {
			return nil, id, fmt.Errorf("%w before the first step", recipe.ErrInterrupted)
		}
		if agents[i], err = s.NewAgent(i); err != nil {
			return nil, id, err
		}
	}
	clock, err := protocol.NewSimulation(server, agents, s.times())
	if err == nil && s.Deadline != nil {
		clock.Deadline = s.Deadline.Seconds()
	}
	return clock, id, err
}

// follow lets the clock run to the end of the run, and saves it there. If ctx ends, it saves after the step under way,
// or stops at once where all steps are saved.
func (m *simulating) follow(ctx context.Context) error {
	stopped, err := m.simulate(ctx, m.folder.Log, m.save)
	if !stopped || err != nil {
		return err
	}
	where := "after " + m.count(m.work.saved) + ", saved"
	if m.work.saved == 0 {
		where = "before the first " + m.unit()
	}
	return &recipe.Stopped{Where: where, Dir: m.folder.Dir}
}

// simulate lets the clock run until the server is done, or ctx has ended. Versions are logged, and saved where that is
// due.
func (m *simulating) simulate(ctx context.Context, log func(run.Record) error, save func() error) (bool, error) {
	bar, server := m.progress(), m.clock.Server
	defer bar.Close()
	defer context.AfterFunc(ctx, m.work.interrupt)()
	for !server.Done() {
		e, err := m.clock.Step(m.work)
		if m.work.Err() != nil || e.Receipt.Stepped && !m.work.advance() {
			return true, nil
		}
		if err != nil {
			return false, m.explainStuck(server, err)
		}
		m.reportRefusal(bar, e)
		if !e.Receipt.Stepped {
			continue
		}
		e.Receipt.Metrics["time"] = e.Time
		record := run.Record{Step: server.Version(), Values: e.Receipt.Metrics}
		if err := log(record); err != nil {
			return false, err
		}
		m.show(bar, record)
		stop, every := ctx.Err() != nil, m.CheckpointEvery
		if !server.Done() && (stop || every > 0 && record.Step%every == 0) {
			if err := save(); err != nil || stop {
				return stop, err
			}
		}
	}
	return false, save()
}

// reportRefusal reports the first refusal of an agent for a reason.
func (m *simulating) reportRefusal(bar run.Bar, e protocol.Event) {
	key := fmt.Sprintf("%d %s", e.Agent, e.Receipt.Reason)
	if e.Receipt.Reason == "" || m.known[key] {
		return
	}
	m.known[key] = true
	bar.Notice(fmt.Sprintf("agent %d, version %d, refused (%s): %s", e.Agent, e.Task.Version, e.Receipt.Reason,
		e.Receipt.Detail))
}

// explainStuck says what to do where no agent has work left.
func (o *Options) explainStuck(s protocol.Server, err error) error {
	if !errors.Is(err, protocol.ErrStuck) {
		return err
	}
	few := ""
	if o.Secure {
		few = "too few agents are left for a sum, or "
	}
	return fmt.Errorf("after %s %w: %seach one's last update was refused; want a smaller lr, or agents whose gradients "+
		"are finite and not 0", o.count(s.Version()), protocol.ErrStuck, few)
}

// unit names what versions count.
func (o *Options) unit() string {
	if protocol.Asynchronous(o.Method) {
		return "update"
	}
	return "round"
}

func (o *Options) count(n int) string { return recipe.Count(n, o.unit()) }

// progress shows how far the run's limit is; where it has two, the limit of rounds or updates.
func (m *simulating) progress() run.Bar {
	if most := m.Limit(); most > 0 {
		return m.Progress(m.unit(), m.clock.Server.Version(), most)
	}
	return m.Progress("sample", 0, m.Samples)
}

func (m *simulating) show(bar run.Bar, r run.Record) {
	values := map[string]float64{}
	for _, name := range []string{"return", "refused"} {
		if v, ok := r.Values[name]; ok && (v != 0 || name == "return") {
			values[name] = v
		}
	}
	done := r.Step
	if m.Limit() == 0 {
		done = int(r.Values["samples"])
	}
	bar.Step(done, values)
}

// none is no method to compare with.
const none = "none"

// compare simulates the other method, with its own defaults, on as many samples.
func (m *simulating) compare(ctx context.Context, first Side) (Side, error) {
	o := *m
	o.known, o.work = map[string]bool{}, newWork()
	defer o.work.stop()
	o.Method, o.Options.Options = m.Compare, m.other(first.Samples)
	if m.Control.Entropy == entropyOf(m.Method) {
		o.Control.Entropy = entropyOf(m.Compare)
	}
	var err error
	if o.clock, _, err = o.newClock(ctx); err != nil {
		return Side{}, fmt.Errorf("compare %s: %w", m.Compare, err)
	}
	defer o.clock.Wait()
	o.Say("the same samples by %s", m.Compare)
	o.clock.JoinAll(o.work)
	var records []run.Record
	var rows []any
	log := func(r run.Record) error {
		records, rows = append(records, r), append(rows, r)
		o.work.keep(r.Step) // nothing is lost where this is stopped
		return nil
	}
	stopped, err := o.simulate(ctx, log, func() error { return nil })
	switch {
	case err != nil:
		return Side{}, fmt.Errorf("compare %s: %w", m.Compare, err)
	case stopped:
		return Side{}, &recipe.Stopped{Where: "while " + m.Compare + " was simulated; the run itself is saved",
			Dir: m.folder.Dir}
	}
	return o.side(records), m.folder.WriteLines(compareName, rows...)
}

// compareName is the file with the metrics of the method that the run is compared with.
const compareName = "compare.jsonl"

// other are the options of the method to compare with: its defaults on the workload, and what all methods share.
func (m *simulating) other(samples int) protocol.Options {
	rule := ""
	if m.Rule != nil {
		rule = *m.Rule
	}
	o := methodOn(m.Workload, m.Compare, rule)
	o.Agents, o.Wire, o.Samples = m.Agents, m.Wire, samples
	if own := methodOn(m.Workload, m.Method, rule).Clip; rule != protocol.AdamW && m.Clip != own { // it has no clip
		o.Clip = m.Clip
	}
	if o.Rounds != nil {
		o.Rounds = new(0)
	} else {
		o.Updates = new(0)
	}
	if o.Deadline != nil && m.Deadline != nil {
		o.Deadline = m.Deadline
	}
	return o
}

// conclude writes the policy and the summary of a run, which begins with what is said, and returns the summary.
func (o *Options) conclude(folder *run.Folder, id protocol.Identity, theta []float64, said string) (string, error) {
	policy, err := o.writePolicy(folder, id, theta)
	if err != nil {
		return "", err
	}
	text := said + fmt.Sprintf("Policy: %s\nCurves: %s\nMetrics: %s\n", policy, folder.Path("curves.png"),
		folder.Path("metrics.jsonl"))
	if o.ofModels() {
		settings, err := os.ReadFile(folder.Path("config.yaml"))
		if err == nil {
			err = o.world.describe(folder, fmt.Sprintf("%s\nconfig.yaml\n\n%s", text, settings))
		}
		if err != nil {
			return "", err
		}
	}
	return text, folder.WriteSummary(text)
}

// writePolicy writes parameters into the run folder: a model folder or an adapter's, else tensors of float32.
func (o *Options) writePolicy(folder *run.Folder, id protocol.Identity, theta []float64) (path string, err error) {
	if o.ofModels() {
		return o.world.write(folder, theta)
	}
	var tensors []model.Tensor
	for i, floats := range protocol.Split(federated.Narrow(theta), id.Tensors) {
		tensors = append(tensors, model.Tensor{Name: id.Tensors[i].Name, Shape: id.Tensors[i].Shape, Floats: floats})
	}
	return folder.Path(run.ModelName), folder.WriteResult(run.ModelName, func(dir string) error {
		return model.WriteTensors(filepath.Join(dir, policyName), tensors, map[string]string{"task": id.Task})
	})
}

const policyName = "policy.safetensors"
