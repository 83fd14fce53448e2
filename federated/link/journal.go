package link

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/run"
)

// Names in the run's folder and in a snapshot.
const (
	Name         = "journal.jsonl"
	updatesName  = "updates"
	updateEnd    = ".bin"
	stateName    = "state.bin"
	snapshotName = "snapshot.json"
)

// Options say what a Keeper does beside the journal.
type Options struct {
	Form  Form
	Every int // updates from one snapshot to the next; 0: only [Keeper.Snapshot] makes one
	Keep  int // snapshots that are kept, the newest; 0: all

	// Restored is called once by [Open], with the snapshot's version, before the events after it are repeated.
	Restored func(version int) error
	// Observe is called after each event, also when [Open] repeats it. An error ends the Keeper.
	Observe func(Event, protocol.Receipt, []protocol.Send) error
	Warn    func(run.Warning)
}

// Keeper is a server whose every event is on the disk before it is applied. It is not safe for concurrent use. After an
// error of the disk each call returns that error: the folder is to be opened again.
type Keeper struct {
	folder *run.Folder
	disk   disk
	server protocol.Server
	o      Options

	n       int             // of the last event
	pending []byte          // the result of the last event, which is written with the next one
	known   map[string]bool // the update files that are there, by their hashes
	left    []int           // agents that have left
	updates int             // since the last snapshot
	past    Past
	err     error
}

// Past is what the journal had when it was opened.
type Past struct {
	Agents  map[int]AgentPast
	Refused map[string]int // updates, by reason
}

// AgentPast are an agent's updates.
type AgentPast struct {
	Received, Accepted int
	Delay              int // of the last one that was accepted, in versions
}

// Past is what had happened before [Open].
func (k *Keeper) Past() Past { return k.past }

// count adds an update and what it led to.
func (p *Past) count(e Event, r result) {
	if e.Line != Update {
		return
	}
	a := p.Agents[e.Agent]
	if a.Received++; r.Accepted {
		a.Accepted, a.Delay = a.Accepted+1, r.Version-e.Version
	} else {
		p.Refused[r.Reason]++
	}
	p.Agents[e.Agent] = a
}

// disk is what a Keeper writes to, a [run.Folder]. Everything is flushed when it returns.
type disk interface {
	WriteFile(name string, data []byte) error
	Append(name string, text []byte) error
	WriteCheckpoint(step int, write func(dir string) error) (run.Checkpoint, error)
}

// Open makes the server of a run durable. The server is as it was constructed; if the folder has a journal, the server
// is brought to its end.
func Open(folder *run.Folder, server protocol.Server, o Options) (*Keeper, error) {
	return open(folder, folder, server, o)
}

func open(folder *run.Folder, disk disk, server protocol.Server, o Options) (*Keeper, error) {
	if err := o.Form.Check(); err != nil {
		return nil, err
	}
	k := &Keeper{folder: folder, disk: disk, server: server, o: o, known: map[string]bool{},
		past: Past{map[int]AgentPast{}, map[string]int{}}}
	from, err := k.restore()
	if err != nil {
		return nil, err
	}
	if err := k.repeat(from); err != nil {
		return nil, err
	}
	if err := k.tidy(); err != nil {
		return nil, err
	}
	return k, k.snapshotIfDue()
}

// tidy makes the folder of updates, and removes the unfinished files that a kill has left there.
func (k *Keeper) tidy() error {
	dir := k.folder.Path(updatesName)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("%s cannot be made: %w", dir, run.Cause(err))
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// restore brings the server to the newest undamaged snapshot and returns the snapshot's event, 0 without one: the
// journal has everything from the start.
func (k *Keeper) restore() (event int, err error) {
	c, warnings, err := k.folder.Latest()
	for _, w := range warnings {
		k.warn(w)
	}
	if errors.Is(err, run.ErrNoCheckpoint) {
		return 0, k.restored()
	}
	if err != nil {
		return 0, err
	}
	var s snapshot
	err = k.folder.ReadCheckpoint(c, func(dir string) (err error) {
		s, err = readSnapshot(dir)
		if err != nil {
			return err
		}
		state, err := DecodeState(k.o.Form.Run, s.state)
		if err != nil {
			return err
		}
		return k.server.Restore(state)
	})
	if err != nil {
		return 0, err
	}
	return s.Event, k.restored()
}

func (k *Keeper) restored() error {
	if k.o.Restored == nil {
		return nil
	}
	return k.o.Restored(k.server.Version())
}

func (k *Keeper) warn(w run.Warning) {
	if k.o.Warn != nil {
		k.o.Warn(w)
	}
}

// repeat reads the journal and applies the events after the given one.
func (k *Keeper) repeat(from int) error {
	last := result{}
	r := &reader{path: k.folder.Path(Name), form: &k.o.Form}
	r.event = func(e Event) (err error) {
		k.note(e)
		if e.N > from {
			last, err = k.repeatEvent(e)
		}
		return err
	}
	r.result = func(e Event, found result) error {
		if e.N > from && found != last {
			return differs(found, last)
		}
		k.past.count(e, found)
		return nil
	}
	if err := r.read(); err != nil {
		return err
	}
	if k.n < from || r.open && k.n == from {
		return fmt.Errorf("%s ends in event %d, but the newest snapshot is of event %d", r.path, k.n, from)
	}
	if r.open {
		k.pending = encodeLine(last)
		k.past.count(r.last, last)
	}
	return k.mend(r)
}

// differs says that an event led to something else than before.
func differs(journal, now result) error {
	const fault = "event %d led to %s, and now to %s: is the run's config, or the program, another one?"
	return fmt.Errorf(fault, journal.N, journal, now)
}

func (r result) String() string {
	switch {
	case r.Reason != "":
		return fmt.Sprintf("a refusal (%s) at version %d", r.Reason, r.Version)
	case r.Accepted:
		return fmt.Sprintf("an accepted update and version %d", r.Version)
	}
	return fmt.Sprintf("version %d", r.Version)
}

// mend drops half a last line, and writes the first one.
func (k *Keeper) mend(r *reader) error {
	if r.torn {
		k.warn(run.Warning(fmt.Sprintf("%s:%d: half a line, which a crash has left, was dropped", r.path, r.line+1)))
		if err := os.Truncate(r.path, r.good); err != nil {
			return fmt.Errorf("%s cannot be cut: %w", r.path, run.Cause(err))
		}
	}
	if r.line > 0 {
		return nil
	}
	f := k.o.Form
	return k.disk.Append(Name, encodeLine(first{lineRun, f.Run, protocol.Version, f.Type, f.D}))
}

// note keeps what the journal says beside the server's state.
func (k *Keeper) note(e Event) {
	k.n = e.N
	if e.File != "" {
		k.known[e.File] = true
	}
	if e.Line == Leave {
		k.left = append(k.left, e.Agent)
	}
}

// repeatEvent applies an event of the journal.
func (k *Keeper) repeatEvent(e Event) (result, error) {
	u, err := readUpdate(k.folder.Dir, k.o.Form, e)
	if err != nil {
		return result{}, err
	}
	receipt, sends := apply(k.server, e, u)
	if e.Line == Update {
		k.updates++
	}
	return resultOf(e, receipt, k.server), k.observe(e, receipt, sends)
}

func (k *Keeper) observe(e Event, r protocol.Receipt, sends []protocol.Send) error {
	if k.o.Observe == nil {
		return nil
	}
	return k.o.Observe(e, r, sends)
}

// apply gives an event to a server.
func apply(s protocol.Server, e Event, u protocol.Update) (r protocol.Receipt, sends []protocol.Send) {
	switch e.Line {
	case Join:
		sends = s.Join(e.Agent)
		r = s.Closed()
	case Update:
		r, sends = s.Receive(u)
	case DeadlineLine:
		r, sends = s.Deadline()
	case Leave:
		sends = s.Leave(e.Agent)
		r = s.Closed()
	}
	return r, sends
}

func resultOf(e Event, r protocol.Receipt, s protocol.Server) result {
	return result{lineResult, e.N, r.Accepted, r.Reason, r.Stepped, s.Version()}
}

// updatePath is an update's file, relative to the run's folder.
func updatePath(hash string) string { return filepath.Join(updatesName, hash+updateEnd) }

// readUpdate reads the file of an event; other events than updates have none.
func readUpdate(dir string, form Form, e Event) (u protocol.Update, err error) {
	if e.Line != Update {
		return u, nil
	}
	if b, err := hex.DecodeString(e.File); err != nil || len(b) != sha256.Size {
		return u, fmt.Errorf("event %d: found the hash %q, want %d hexadecimal digits", e.N, e.File, 2*sha256.Size)
	}
	path := filepath.Join(dir, updatePath(e.File))
	b, err := files.Read(os.DirFS(filepath.Join(dir, updatesName)), e.File+updateEnd, int64(form.Most()))
	if err != nil {
		return u, fmt.Errorf("event %d: %s cannot be read: %w", e.N, path, run.Cause(err))
	}
	if sumOf(b) != e.File {
		return u, fmt.Errorf("event %d: %s is damaged: its SHA-256 is not its name", e.N, path)
	}
	if u, err = form.DecodeUpdate(b); err != nil {
		return u, fmt.Errorf("event %d: %s: %w", e.N, path, err)
	}
	return u, nil
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Version is the version of the server's parameters.
func (k *Keeper) Version() int { return k.server.Version() }

// Done reports whether the run has ended.
func (k *Keeper) Done() bool { return k.server.Done() }

// Left are the agents that have left the run for good.
func (k *Keeper) Left() []int { return slices.Clone(k.left) }

// Join is [protocol.Server.Join], durable.
func (k *Keeper) Join(agent int) ([]protocol.Send, error) {
	_, sends, err := k.do(Event{Line: Join, Agent: agent}, protocol.Update{})
	return sends, err
}

// Leave is [protocol.Server.Leave], durable.
func (k *Keeper) Leave(agent int) ([]protocol.Send, error) {
	_, sends, err := k.do(Event{Line: Leave, Agent: agent}, protocol.Update{})
	return sends, err
}

// Deadline is [protocol.Server.Deadline], durable.
func (k *Keeper) Deadline() (protocol.Receipt, []protocol.Send, error) {
	return k.do(Event{Line: DeadlineLine}, protocol.Update{})
}

// Receive is [protocol.Server.Receive], durable. When it returns without an error, the update may be acknowledged.
func (k *Keeper) Receive(u protocol.Update) (protocol.Receipt, []protocol.Send, error) {
	if k.err != nil {
		return protocol.Receipt{}, nil, k.err
	}
	b, err := k.o.Form.EncodeUpdate(u)
	if err == nil {
		u, err = k.o.Form.DecodeUpdate(b) // what a replay will read
	}
	if err != nil {
		return protocol.Receipt{}, nil, err
	}
	e := Event{Line: Update, Agent: u.Agent, Kind: u.Kind, Version: u.Version, File: sumOf(b)}
	if !k.known[e.File] {
		if err := k.disk.WriteFile(updatePath(e.File), b); err != nil {
			return protocol.Receipt{}, nil, k.fail(err)
		}
	}
	return k.do(e, u)
}

// fail ends the Keeper: after an error nobody knows what is on the disk.
func (k *Keeper) fail(err error) error {
	k.err = err
	return err
}

// do writes an event and applies it.
func (k *Keeper) do(e Event, u protocol.Update) (r protocol.Receipt, sends []protocol.Send, err error) {
	if k.err != nil {
		return r, nil, k.err
	}
	e.N = k.n + 1
	if err := k.disk.Append(Name, append(k.pending, encodeLine(e)...)); err != nil {
		return r, nil, k.fail(err)
	}
	k.note(e)
	r, sends = apply(k.server, e, u)
	k.pending = encodeLine(resultOf(e, r, k.server))
	if e.Line == Update {
		k.updates++
	}
	if err := k.observe(e, r, sends); err != nil {
		return r, sends, k.fail(err)
	}
	return r, sends, k.snapshotIfDue()
}

// Close writes the result of the last event. It leaves the folder open.
func (k *Keeper) Close() error {
	if k.err != nil {
		return nil // the caller has it
	}
	return k.flush()
}

// flush writes the result that waits for the next event.
func (k *Keeper) flush() error {
	if len(k.pending) == 0 {
		return nil
	}
	if err := k.disk.Append(Name, k.pending); err != nil {
		return k.fail(err)
	}
	k.pending = nil
	return nil
}

// snapshot says which event a snapshot is of.
type snapshot struct {
	Event   int    `json:"event"`
	Version int    `json:"version"`
	Params  string `json:"params"` // [Hash] of θ

	state []byte
}

func (k *Keeper) snapshotIfDue() error {
	if k.o.Every == 0 || k.updates < k.o.Every {
		return nil
	}
	return k.Snapshot()
}

// Snapshot stores the server's state, from which [Open] continues.
func (k *Keeper) Snapshot() error {
	if k.err != nil {
		return k.err
	}
	s, err := snapshotOf(k.server, k.o.Form.Run, k.n)
	if err != nil {
		return k.fail(err)
	}
	if err := k.flush(); err != nil {
		return err
	}
	if _, err := k.disk.WriteCheckpoint(s.Version, s.write); err != nil {
		return k.fail(err)
	}
	k.updates = 0
	if k.o.Keep > 0 {
		if err := k.folder.Prune(k.o.Keep); err != nil {
			return k.fail(err)
		}
	}
	return nil
}

func snapshotOf(server protocol.Server, id string, event int) (s snapshot, err error) {
	state, err := server.State()
	if err != nil {
		return s, err
	}
	b, err := EncodeState(id, state)
	return snapshot{event, server.Version(), Hash(server.Params()), b}, err
}

func (s snapshot) write(dir string) error {
	head, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, snapshotName), append(head, '\n'), 0o666); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, stateName), s.state, 0o666)
}

func readSnapshot(dir string) (s snapshot, err error) {
	b, err := os.ReadFile(filepath.Join(dir, snapshotName))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s: not a snapshot: %w", snapshotName, err)
	}
	s.state, err = os.ReadFile(filepath.Join(dir, stateName))
	return s, err
}

// Hash is the SHA-256 of a vector's float64 numbers, little-endian.
func Hash(v []float64) string {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return sumOf(b)
}
