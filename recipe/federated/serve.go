package federated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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
	Listen  string `yaml:"listen" want:"given" words:"an address and a port, such as 127.0.0.1:4222" default:"127.0.0.1:4222" flag:"listen" help:"address and port for agents; port 0 takes a free one"`
	TLS     string `yaml:"tls" want:"auto|on|off" default:"auto" flag:"tls" help:"auto: where other machines reach the address, or agents were invited"`
	Spawn   bool   `yaml:"spawn" flag:"spawn=true" help:"start all agents, as processes of this machine"`

	CheckpointEvery int `yaml:"checkpoint_every" want:">=1" default:"100" help:"updates or rounds between checkpoints"`
	CheckpointKeep  int `yaml:"checkpoint_keep" want:">=1" default:"2" help:"how many of the newest are kept"`

	Dir recipe.RunDir `yaml:"-"`
}

// RunDirectory is where the run's folder is.
func (s *Service) RunDirectory() *recipe.RunDir { return &s.Dir }

// ServerSpec says how a configuration becomes a Service.
var ServerSpec = config.Register(&config.Spec[Service]{
	Command: ServerCommand,
	Like:    family,
	Without: withoutKeys,
})

// Resolve takes a free port for agents that the server starts.
func (s *Service) Resolve(g *config.Given) {
	if s.Spawn && !g.Has("listen") {
		s.Listen = "127.0.0.1:0"
	}
}

// Validate looks across the server's own keys.
func (s *Service) Validate(g *config.Given) {
	if s.Spawn && s.TLS == "on" {
		g.Fault("spawn", "spawn: agents that this machine starts have no credentials: want tls auto or off")
	}
}

// agentSpec is what the server sends to its agents.
var agentSpec = &config.Spec[Options]{
	Command: "federated client",
	Without: withoutKeys,
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
	server protocol.Server
	same   protocol.Identity
	keeper *link.Journal
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
	var err error
	if s.local, err = link.CheckListen(s.Listen); err != nil {
		return "", err
	}
	if s.TLS == "off" && !s.local {
		return "", fmt.Errorf("listen %s, tls off: an address that other machines reach needs TLS: want tls auto, or an "+
			"address such as 127.0.0.1:4222", s.Listen)
	}
	if err := s.Dir.Check(ServerSpec.Resolve(&s.Service)); err != nil {
		return "", err
	}
	s.sayIgnored(s)
	if s.server, s.same, err = s.NewServer(); err != nil {
		return "", err
	}
	if err := s.open(); err != nil {
		return "", err
	}
	defer s.folder.Close()
	return s.follow(ctx)
}

// open makes the run folder, or opens the one to continue, with the run's keys where it needs any.
func (s *service) open() (err error) {
	if s.folder, err = s.Dir.Open(ServerCommand, ServerSpec.Resolve(&s.Service)); err != nil {
		return err
	}
	s.linked, err = readLinked(s.folder.Dir)
	if errors.Is(err, os.ErrNotExist) { // a new run, or one that was killed as it began
		s.linked = linked{Run: link.NewRunID(), Agents: map[string]int{}}
		err = s.store()
	}
	dir := s.folder.Path(keysName)
	if err == nil && (s.TLS == "on" || s.TLS == "auto" && (link.HasKeys(dir) || !s.local)) {
		s.keys, err = link.OpenKeys(dir)
	}
	if err != nil {
		s.folder.Close()
	}
	return err
}

// readLinked reads link.json of a run folder.
func readLinked(dir string) (l linked, err error) {
	path := filepath.Join(dir, linkName)
	text, err := os.ReadFile(path)
	if err != nil {
		return l, fmt.Errorf("%s: %w: want the folder of a run that posttrain federated server has started", path,
			run.Cause(err))
	}
	if err := json.Unmarshal(text, &l); err != nil || l.Run == "" || l.Agents == nil {
		return l, fmt.Errorf("%s: damaged: want the file that posttrain federated server wrote", path)
	}
	return l, nil
}

// store writes link.json.
func (s *service) store() error { return s.folder.WriteJSON(linkName, s.linked) }

// follow brings the server to its end.
func (s *service) follow(ctx context.Context) (string, error) {
	form := link.Format{Run: s.linked.Run, Type: link.Type(s.Wire), D: len(s.server.Params())}
	var err error
	s.keeper, err = link.OpenJournal(s.folder, s.server, link.JournalOptions{Format: form, Every: s.CheckpointEvery,
		Keep: s.CheckpointKeep, Observe: s.observe,
		OnRestore: func(version int) error { // the metrics begin anew after the snapshot from which the run continues
			_, err := s.folder.CutMetrics(version)
			return err
		},
		Warn: func(w run.Warning) { s.Warn("%s", w) }})
	if err != nil {
		return "", err
	}
	b, err := link.StartBroker(link.BrokerOptions{Listen: s.Listen, Run: s.linked.Run, Keys: s.keys, Warn: s.Warn})
	if err != nil {
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
	return s.finish()
}

// work serves the agents, and starts them where the run brings its own.
func (s *service) work(ctx context.Context, o link.ServerOptions) error {
	s.bar, s.began = s.Progress(s.unit(), s.server.Version(), s.Limit()), time.Now()
	defer s.bar.Close()
	if !s.Spawn {
		return link.Serve(ctx, o)
	}
	ctx, stop := context.WithCancelCause(ctx)
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	agents, err := s.spawn(alive, stop)
	defer agents.Wait()
	defer end()
	defer stop(nil)
	if err != nil {
		return err
	}
	err = link.Serve(ctx, o)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, protocol.ErrStuck) {
		return cause
	}
	return err
}

func (s *service) linkOptions(b *link.Broker, form link.Format) link.ServerOptions {
	o := link.ServerOptions{
		Broker: b, Format: form, Agents: s.Agents, Config: string(agentSpec.Resolve(&s.Options)), Identity: s.same,
		Journal: s.keeper, Numbers: s.linked.Agents, Warn: s.Warn,
		StoreNumber: func(name string, number int) error { s.linked.Agents[name] = number; return s.store() },
		Tick:        s.tick,
	}
	for i := range s.Agents {
		if s.server.Member(i).Left {
			o.Revoked = append(o.Revoked, i)
		}
	}
	if s.Deadline != nil {
		o.Deadline = *s.Deadline
	}
	return o
}

// observe logs a step.
func (s *service) observe(_ link.Event, r protocol.Receipt) error {
	if !r.Stepped {
		return nil
	}
	values := r.Metrics
	if s.bar != nil { // not a repetition from the journal
		shown := map[string]float64{}
		for _, name := range []string{"return", "delay", "norm", "kl"} {
			if v, ok := values[name]; ok {
				shown[name] = v
			}
		}
		s.bar.Step(s.server.Version(), shown)
		values = maps.Clone(values)
		values["time/elapsed"] = time.Since(s.began).Seconds()
	}
	return s.folder.Log(run.Record{Step: s.server.Version(), Values: values})
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
	if err := s.folder.WriteJSON(statusName, s.status); err != nil {
		s.Warn("%s", err)
	}
}

// finish writes curves and summary of a finished run.
func (s *service) finish() (string, error) {
	if err := s.folder.WriteCurves(fmt.Sprintf("%s (posttrain federated)", s.Method)); err != nil {
		return "", err
	}
	records, err := s.folder.ReadMetrics()
	if err != nil {
		return "", err
	}
	return s.conclude(s.folder, s.same, s.server.Params(), s.status.String()+validationText(records)+s.account(records))
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
