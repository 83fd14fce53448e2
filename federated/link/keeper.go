package link

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/run"
)

// Names in the run's folder and in a snapshot.
const (
	Name         = "journal.jsonl"
	updatesName  = "updates"
	updateEnd    = ".bin"
	lostEnd      = ".lost" // instead of updateEnd: in no line of the journal
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
	Observe func(Event, protocol.Receipt) error
	Warn    func(run.Warning)
}

// Keeper is a server whose every event is on the disk before it is applied. It is not safe for concurrent use. After an
// error of the disk each call returns that error: the folder is to be opened again.
type Keeper struct {
	folder *run.Folder
	disk   disk
	server protocol.Server
	o      Options

	n       int // of the last event
	updates int // since the last snapshot
	err     error

	named map[string]bool // files of updates that the journal names, while it is read
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
	k := &Keeper{folder: folder, disk: disk, server: server, o: o, named: map[string]bool{}}
	from, err := k.restore()
	if err == nil && o.Restored != nil {
		err = o.Restored(server.Version())
	}
	if err == nil {
		err = k.repeat(from)
	}
	if err == nil {
		err = k.tidy()
	}
	if err != nil {
		return nil, err
	}
	k.named = nil
	return k, k.snapshotIfDue()
}

// tidy makes the folder of updates, and removes the unfinished files that a kill has left there. Updates that no line
// names do not count: a kill leaves one, whose agent makes it again, and a journal without its end has more.
func (k *Keeper) tidy() error {
	dir := k.folder.Path(updatesName)
	if err := files.MakeAll(dir, 0o777); err != nil {
		return fmt.Errorf("%s cannot be made: %w", dir, run.Cause(err))
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	lost := k.unnamed()
	for _, path := range lost {
		err = errors.Join(err, os.Rename(path, strings.TrimSuffix(path, updateEnd)+lostEnd))
	}
	if len(lost) > 0 {
		k.warn(run.Warning(fmt.Sprintf("%s ends in event %d: %d in %s are in no line and do not count; they are now *%s",
			k.folder.Path(Name), k.n, len(lost), dir, lostEnd)))
	}
	return err
}

// unnamed are the files of updates that no line names.
func (k *Keeper) unnamed() []string {
	all, _ := filepath.Glob(k.folder.Path(updatePath("*"))) // an error: of another pattern than this
	return slices.DeleteFunc(all, func(path string) bool { return k.named[filepath.Base(path)] })
}

func (k *Keeper) warn(w run.Warning) {
	if k.o.Warn != nil {
		k.o.Warn(w)
	}
}

// restore brings the server to the newest undamaged snapshot and returns the snapshot's event, 0 without one: the
// journal has everything from the start.
func (k *Keeper) restore() (event int, err error) {
	c, warnings, err := k.folder.Latest()
	for _, w := range warnings {
		k.warn(w)
	}
	if errors.Is(err, run.ErrNoCheckpoint) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	err = k.folder.ReadCheckpoint(c, func(dir string) error {
		s, err := readSnapshot(dir)
		if err != nil {
			return err
		}
		event = s.Event
		state, err := DecodeState(k.o.Form.Run, s.state)
		if err != nil {
			return err
		}
		return k.server.Restore(state)
	})
	return event, err
}

// repeat reads the journal and applies the events after the given one. It drops half a last line, and writes the first
// one.
func (k *Keeper) repeat(from int) error {
	r := &reader{path: k.folder.Path(Name), form: k.o.Form}
	r.event = func(e Event) error {
		k.named[e.File+updateEnd] = true
		if k.n = e.N; e.N <= from {
			return nil
		}
		return k.again(e)
	}
	file, err := openJournal(r.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := r.read(file); err != nil {
		return err
	}
	if lost := k.unnamed(); r.line == 0 && len(lost) > 0 {
		return fmt.Errorf("%s has no lines, but there are %d updates such as %s: want the journal that names them, or "+
			"another folder", r.path, len(lost), lost[0])
	}
	if k.n < from {
		return fmt.Errorf("%s ends in event %d, but the newest snapshot is of event %d", r.path, k.n, from)
	}
	if r.torn {
		k.warn(run.Warning(fmt.Sprintf("%s:%d: half a line, which a crash has left, was dropped", r.path, r.line+1)))
		if err := os.Truncate(r.path, r.good); err != nil {
			return fmt.Errorf("%s cannot be cut: %w", r.path, run.Cause(err))
		}
	}
	if r.line > 0 {
		return nil
	}
	return k.disk.Append(Name, firstLine(k.o.Form, protocol.Version))
}

// again applies an event of the journal.
func (k *Keeper) again(e Event) error {
	if now := k.server.Version(); e.At > 0 && e.At != now {
		return fmt.Errorf("event %d came at version %d, and now comes at version %d: is the run's config, or the "+
			"program, another one?", e.N, e.At, now)
	}
	u, err := readUpdate(k.folder.Dir, k.o.Form, e)
	if err == nil {
		_, _, err = k.apply(e, u)
	}
	return err
}

// apply gives an event to the server.
func (k *Keeper) apply(e Event, u protocol.Update) (r protocol.Receipt, sends []protocol.Send, err error) {
	switch e.Line {
	case Join:
		r, sends = k.server.Join(e.Agent)
	case Update:
		k.updates++
		r, sends = k.server.Receive(u)
	case Deadline:
		r, sends = k.server.Deadline()
	case Leave:
		r, sends = k.server.Leave(e.Agent)
	}
	if k.o.Observe != nil {
		err = k.o.Observe(e, r)
	}
	return r, sends, err
}

// updatePath is an update's file, relative to the run's folder.
func updatePath(hash string) string { return filepath.Join(updatesName, hash+updateEnd) }

// readUpdate reads the file of an event; other events than updates have none.
func readUpdate(dir string, form Form, e Event) (u protocol.Update, err error) {
	if e.Line != Update {
		return u, nil
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

// Version is the version of the server's parameters.
func (k *Keeper) Version() int { return k.server.Version() }

// Done reports whether the run has ended.
func (k *Keeper) Done() bool { return k.server.Done() }

// Do is the server's Join, Deadline or Leave, durable.
func (k *Keeper) Do(what string, agent int) (protocol.Receipt, []protocol.Send, error) {
	return k.do(Event{Line: what, Agent: agent}, protocol.Update{})
}

// Receive is [protocol.Server.Receive], durable, of an update that was read from a message. When it returns without an
// error, the update may be acknowledged.
func (k *Keeper) Receive(u protocol.Update, message []byte) (protocol.Receipt, []protocol.Send, error) {
	e := Event{Line: Update, Agent: u.Agent, Kind: u.Kind, Version: u.Version, File: sumOf(message)}
	if _, err := os.Stat(k.folder.Path(updatePath(e.File))); err != nil && k.err == nil {
		k.err = k.disk.WriteFile(updatePath(e.File), message)
	}
	return k.do(e, u)
}

// do writes an event and applies it. After an error nobody knows what is on the disk.
func (k *Keeper) do(e Event, u protocol.Update) (r protocol.Receipt, sends []protocol.Send, err error) {
	if k.err != nil {
		return r, nil, k.err
	}
	e.N, e.At = k.n+1, k.server.Version()
	if k.err = k.disk.Append(Name, encodeLine(e)); k.err != nil {
		return r, nil, k.err
	}
	k.n = e.N
	if r, sends, k.err = k.apply(e, u); k.err == nil {
		k.err = k.snapshotIfDue()
	}
	return r, sends, k.err
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
	if err == nil {
		_, err = k.disk.WriteCheckpoint(s.Version, s.write)
	}
	if err == nil && k.o.Keep > 0 {
		err = k.folder.Prune(k.o.Keep)
	}
	k.updates, k.err = 0, err
	return err
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
