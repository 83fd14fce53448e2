package federated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/posttrain/posttrain/federated/link"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// ServerCommand is the command that serves a run.
const ServerCommand = "federated server"

// Service is a run whose agents are processes on a network.
type Service struct {
	Options `yaml:",inline"`
	Listen  string `yaml:"listen" want:"given" words:"an address and a port, such as 127.0.0.1:4222" flag:"listen" help:"address and port for agents; port 0 takes a free one"`
	TLS     string `yaml:"tls" want:"auto|on|off" flag:"tls" help:"auto: where other machines reach the address, or agents were invited"`
	Spawn   bool   `yaml:"spawn" flag:"spawn=true" help:"start all agents, as processes of this machine"`

	CheckpointEvery int `yaml:"checkpoint_every" want:">=1"` // updates
	CheckpointKeep  int `yaml:"checkpoint_keep" want:">=1"`

	Dir   recipe.RunDir `yaml:"-"`
	Start Launcher      `yaml:"-"` // of an agent, for Spawn
}

// RunDirectory is where the run's folder is.
func (s *Service) RunDirectory() *recipe.RunDir { return &s.Dir }

// ServerSpec says how a configuration becomes a Service.
var ServerSpec = config.Register(&config.Spec[Service]{
	Command: ServerCommand,
	Like:    family,
	Without: withoutKeys,
	Defaults: func(g *config.Given) Service {
		listen := "127.0.0.1:4222"
		if g.Text("spawn") == "true" {
			listen = "127.0.0.1:0"
		}
		return Service{Options: DefaultsOf(g), Listen: listen, TLS: "auto", CheckpointEvery: 100, CheckpointKeep: 2}
	},
	Settle: func(g *config.Given, s *Service) { s.Settle(g) },
	Check: func(g *config.Given, s *Service) {
		s.CheckGiven(g)
		if s.Spawn && s.TLS == "on" {
			g.Fault("spawn", "spawn: agents that this machine starts have no credentials: want tls auto or off")
		}
	},
	Idle: func(s *Service) []string { return s.IdleKeys() },
})

// agentSpec is what the server sends to its agents.
var agentSpec = &config.Spec[Options]{
	Command:  "federated client",
	Without:  withoutKeys,
	Defaults: DefaultsOf,
	Settle:   func(g *config.Given, o *Options) { o.Settle(g) },
	Check:    func(g *config.Given, o *Options) { o.CheckGiven(g) },
	Idle:     (*Options).IdleKeys,
}

// Names in the run folder.
const (
	linkName   = "link.json"
	statusName = "status.json"
	keysName   = "keys"
)

// linked is what a run keeps for its network: the id, and the numbers of its agents.
type linked struct {
	Run    string         `json:"run"`
	Server string         `json:"server"` // URL
	Agents map[string]int `json:"agents"`
}

// service is a running Service.
type service struct {
	Service
	run.Reporter
	folder *run.Folder
	linked linked
	keys   *link.Keys
	local  bool // only this machine reaches the address
	exists bool // the folder of a new run was there before it, empty
	server protocol.Server
	same   protocol.Identity
	keeper *link.Keeper
	bar    run.Bar
	began  time.Time // this process
	status link.Status
	fail   context.CancelCauseFunc // ends the run with an error
}

// Serve runs the server of a run until it is done, and returns its summary.
func Serve(ctx context.Context, o Service, r run.Reporter) (string, error) {
	s := &service{Service: o, Reporter: run.Listen(r)}
	ctx, s.fail = context.WithCancelCause(ctx)
	defer s.fail(nil)
	defer s.Service.Close()
	if err := s.checkAddress(); err != nil {
		return "", err
	}
	var err error
	if s.server, s.same, err = s.NewServer(); err != nil {
		return "", err
	}
	if err := s.open(); err != nil {
		return "", err
	}
	defer s.folder.Close()
	return s.follow(ctx)
}

// checkAddress refuses, ahead of everything else, an address that needs TLS and has none, or is taken.
func (s *service) checkAddress() error {
	local, err := link.CheckListen(s.Listen)
	if err != nil {
		return err
	}
	if s.TLS == "off" && !local {
		return fmt.Errorf("listen %s, tls off: an address that other machines reach needs TLS: want tls auto, or an "+
			"address such as 127.0.0.1:4222", s.Listen)
	}
	s.local = local
	return nil
}

// open makes the run folder, or opens the one to continue.
func (s *service) open() (err error) {
	if dir := s.Dir.Resume; dir != "" {
		if err = s.checkSame(dir); err != nil {
			return err
		}
		if s.folder, err = run.Open(dir); err == nil {
			err = s.resume()
		}
		return s.opened(err)
	}
	_, missing := os.Stat(s.Dir.Out)
	s.exists = s.Dir.Out != "" && missing == nil
	if s.folder, err = run.Create(s.Dir.Out, strings.ReplaceAll(ServerCommand, " ", "-")); err == nil {
		s.linked = linked{Run: link.NewRunID(), Agents: map[string]int{}}
		err = s.folder.WriteConfig(ServerSpec.Resolve(&s.Service))
		if err == nil {
			err = s.store()
		}
	}
	return s.opened(err)
}

// opened completes a folder that was opened without an error.
func (s *service) opened(err error) error {
	if err == nil {
		err = s.openKeys()
	}
	if err != nil && s.folder != nil {
		s.folder.Close()
	}
	return err
}

// discard removes the folder of a new run that has not begun. Everything in it is the run's.
func (s *service) discard() {
	if s.Dir.Resume != "" {
		return
	}
	entries, err := os.ReadDir(s.folder.Dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(s.folder.Path(e.Name())))
	}
	if !s.exists {
		err = errors.Join(err, os.Remove(s.folder.Dir))
	}
	if err != nil {
		s.Warn("run folder %s cannot be removed: %s", s.folder.Dir, run.Cause(err))
	}
}

// checkSame wants the options that the run was started with. Where it listens and how often it saves may change.
func (s *service) checkSame(dir string) error {
	path := filepath.Join(dir, "config.yaml")
	text, err := config.Open(path)
	if err != nil {
		return err
	}
	if command := config.CommandOf(text); command != ServerCommand && command != "federated run" {
		return fmt.Errorf("--resume %s: it is a run of posttrain %s: want one of posttrain %s", dir, command, ServerCommand)
	}
	stored, err := ServerSpec.Load(config.Input{Path: path})
	if err != nil {
		return err
	}
	changed := config.Diff(agentSpec.Resolve(&stored.Options), agentSpec.Resolve(&s.Options))
	if len(changed) == 0 {
		return nil
	}
	return fmt.Errorf("--resume %s: the config has changed since the run was started (%s): resume without changing "+
		"it, or start a new run with --out", dir, strings.Join(changed, "; "))
}

func (s *service) resume() error {
	path := s.folder.Path(linkName)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) { // killed before the first agent came
		s.linked = linked{Run: link.NewRunID(), Agents: map[string]int{}}
		return s.store()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, run.Cause(err))
	}
	return s.linked.parse(path, text)
}

func (l *linked) parse(path string, text []byte) error {
	if err := json.Unmarshal(text, l); err != nil || l.Run == "" || l.Agents == nil {
		return fmt.Errorf("%s: damaged: want the file that posttrain federated server wrote", path)
	}
	return nil
}

// store writes link.json.
func (s *service) store() error {
	text, err := json.MarshalIndent(s.linked, "", "  ")
	if err != nil {
		return err
	}
	return s.folder.WriteFile(linkName, append(text, '\n'))
}

// openKeys reads or makes the run's keys, where it has any.
func (s *service) openKeys() (err error) {
	dir := s.folder.Path(keysName)
	needs := s.TLS == "on" || s.TLS == "auto" && (link.HasKeys(dir) || !s.local)
	if needs {
		s.keys, err = link.OpenKeys(dir)
	}
	return err
}

// follow brings the server to its end.
func (s *service) follow(ctx context.Context) (string, error) {
	form := link.Form{Run: s.linked.Run, Type: link.Type(s.Wire), D: len(s.server.Params())}
	var err error
	s.keeper, err = link.Open(s.folder, s.server, link.Options{Form: form, Every: s.CheckpointEvery,
		Keep: s.CheckpointKeep, Restored: s.restored, Observe: s.observe,
		Warn: func(w run.Warning) { s.Warn("%s", w) }})
	if err != nil {
		return "", err
	}
	b, err := link.StartBroker(link.BrokerOptions{Listen: s.Listen, Run: s.linked.Run, Keys: s.keys, Warn: s.Warn})
	if err != nil {
		s.discard()
		return "", err
	}
	defer b.Close()
	s.linked.Server = b.URL()
	if err := s.store(); err != nil {
		return "", err
	}
	s.Say("run folder %s: agents connect to %s", s.folder.Dir, s.linked.Server)
	if s.Dir.Resume != "" {
		s.Say("%s: continuing after version %d", s.folder.Dir, s.server.Version())
	}
	err = s.work(ctx, s.linkOptions(b, form))
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err == nil || errors.Is(err, context.Canceled) {
		if saved := s.keeper.Snapshot(); saved != nil {
			return "", saved
		}
	}
	if errors.Is(err, context.Canceled) {
		return "", &recipe.Stopped{Where: fmt.Sprintf("at version %d, saved", s.server.Version()), Dir: s.folder.Dir}
	}
	if err != nil {
		return "", s.explainStuck(s.server, err)
	}
	return s.conclude()
}

// work serves the agents, and starts them where the run brings its own.
func (s *service) work(ctx context.Context, o link.ServerOptions) error {
	unit, most := "round", s.Rounds
	if protocol.Asynchronous(s.Method) {
		unit, most = "update", s.Updates
	}
	s.bar, s.began = s.Progress(unit, s.server.Version(), *most), time.Now()
	defer s.bar.Close()
	if !s.Spawn {
		return link.Serve(ctx, o)
	}
	agents, err := startAgents(s.Reporter, s.Start, s.Agents, s.linked.Server, s.folder.Path(clientsName))
	if err != nil {
		return err
	}
	defer agents.stop()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go agents.watch(ctx, stop)
	err = link.Serve(ctx, o)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, protocol.ErrStuck) {
		return cause
	}
	return err
}

func (s *service) linkOptions(b *link.Broker, form link.Form) link.ServerOptions {
	o := link.ServerOptions{
		Broker: b, Form: form, Agents: s.Agents, Config: string(agentSpec.Resolve(&s.Options)), Identity: s.same,
		Keeper: s.keeper, Places: s.linked.Agents, Warn: s.Warn,
		NewPlace: func(name string, number int) error { s.linked.Agents[name] = number; return s.store() },
		Tick:     s.tick,
	}
	for i := range s.Agents {
		if s.server.Member(i).Left {
			o.Left = append(o.Left, i)
		}
	}
	if s.Deadline != nil {
		o.Deadline = *s.Deadline
	}
	return o
}

// restored begins the metrics anew after the snapshot from which the run continues.
func (s *service) restored(version int) error {
	_, err := s.folder.CutMetrics(version)
	return err
}

// observe logs a step.
func (s *service) observe(_ link.Event, r protocol.Receipt) error {
	if !r.Stepped {
		return nil
	}
	values := r.Metrics
	if s.bar != nil { // not a repetition from the journal
		s.bar.Step(s.server.Version(), shown(values))
		values = maps.Clone(values)
		values["time/elapsed"] = time.Since(s.began).Seconds()
	}
	return s.folder.Log(run.Record{Step: s.server.Version(), Values: values})
}

// shown are the metrics for the progress bar.
func shown(metrics map[string]float64) map[string]float64 {
	few := map[string]float64{}
	for _, name := range []string{"return", "delay", "norm", "kl"} {
		if v, ok := metrics[name]; ok {
			few[name] = v
		}
	}
	return few
}

// tick stores what posttrain federated status shows.
func (s *service) tick(status *link.Status) {
	s.status = *status
	s.status.Server, s.status.PID, s.status.Written = s.linked.Server, os.Getpid(), time.Now()
	s.status.Version, s.status.Done = s.server.Version(), s.server.Done()
	s.status.Refused = maps.Clone(s.server.Refusals())
	for reason, n := range status.Refused { // of updates that the server did not see
		s.status.Refused[reason] += n
	}
	for _, a := range s.status.Agents {
		m := s.server.Member(a.Number)
		a.Updates, a.Up, a.Down, a.Validation = m.Batches, m.Up, m.Down, m.Validation
	}
	text, err := json.MarshalIndent(s.status, "", "  ")
	if err == nil {
		err = s.folder.WriteFile(statusName, append(text, '\n'))
	}
	if err != nil {
		s.Warn("%s", err)
	}
}

// conclude writes curves and summary of a finished run.
func (s *service) conclude() (string, error) {
	if err := s.folder.WriteCurves(fmt.Sprintf("%s (posttrain federated)", s.Method)); err != nil {
		return "", err
	}
	records, err := s.folder.ReadMetrics()
	if err != nil {
		return "", err
	}
	policy, err := s.writePolicy(s.folder, s.same, s.server.Params())
	if err != nil {
		return "", err
	}
	text := s.status.String() + validationText(records) + s.account(records) +
		fmt.Sprintf("Policy: %s\nCurves: %s\nMetrics: %s\n", policy, s.folder.Path("curves.png"),
			s.folder.Path("metrics.jsonl"))
	if err := s.writeCard(s.folder, text); err != nil {
		return "", err
	}
	return text, s.folder.WriteSummary(text)
}

// ReadStatus says in words what the server of a run folder stored last.
func ReadStatus(dir string) (string, error) {
	path, s := filepath.Join(dir, statusName), link.Status{}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: want the folder of a federated run", path, run.Cause(err))
	}
	return s.String(), nil
}
