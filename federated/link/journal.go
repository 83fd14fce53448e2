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
	JournalName  = "journal.jsonl"
	updatesName  = "updates"
	updateEnd    = ".bin"
	lostEnd      = ".lost" // instead of updateEnd: in no line of the journal
	stateName    = "state.bin"
	snapshotName = "snapshot.json"
)

// JournalOptions say what a Journal does beside the lines of its file.
type JournalOptions struct {
	Format Format
	Every  int // versions from one snapshot to the next; 0: only [Journal.Snapshot] makes one
	Keep   int // snapshots that are kept, the newest; 0: all

	// OnRestore is called once by [OpenJournal], with the snapshot's version, before the events after it are repeated.
	OnRestore func(version int) error
	// Observe is called after each event, also when [OpenJournal] repeats it. An error ends the Journal.
	Observe func(Event, protocol.Receipt) error
	Warn    func(run.Warning)
}

// Journal is a server whose every event is on the disk before it is applied. It is not safe for concurrent use. After
// an error of the disk each call returns that error: the folder is to be opened again.
type Journal struct {
	folder *run.Folder
	disk   disk
	server protocol.Server
	o      JournalOptions

	n     int // of the last event
	saved int // version of the last snapshot
	err   error

	named map[string]bool // files of updates that the journal names, while it is read
}

// disk is what a Journal writes to, a [run.Folder]. Everything is flushed when it returns.
type disk interface {
	WriteFile(name string, data []byte) error
	Append(name string, text []byte) error
	WriteCheckpoint(step int, write func(dir string) error) (run.Checkpoint, error)
}

// OpenJournal makes the server of a run durable. The server is as it was constructed; if the folder has a journal, the
// server is brought to its end.
func OpenJournal(folder *run.Folder, server protocol.Server, o JournalOptions) (*Journal, error) {
	return openJournal(folder, folder, server, o)
}

func openJournal(folder *run.Folder, disk disk, server protocol.Server, o JournalOptions) (*Journal, error) {
	if err := o.Format.Check(); err != nil {
		return nil, err
	}
	j := &Journal{folder: folder, disk: disk, server: server, o: o, named: map[string]bool{}}
	from, err := j.restore()
	if err == nil && o.OnRestore != nil {
		err = o.OnRestore(server.Version())
	}
	if err == nil {
		err = j.replay(from)
	}
	if err == nil {
		err = j.tidy()
	}
	if err != nil {
		return nil, err
	}
	j.named = nil
	return j, j.snapshotIfDue()
}

// tidy makes the folder of updates, and removes the unfinished files that a kill has left there. Updates that no line
// names do not count: a kill leaves one, whose agent makes it again, and a journal without its end has more.
func (j *Journal) tidy() error {
	dir := j.folder.Path(updatesName)
	if err := files.MakeAll(dir, 0o777); err != nil {
		return fmt.Errorf("%s cannot be made: %w", dir, run.Cause(err))
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	lost := j.unnamed()
	for _, path := range lost {
		err = errors.Join(err, os.Rename(path, strings.TrimSuffix(path, updateEnd)+lostEnd))
	}
	if len(lost) > 0 {
		j.warn(run.Warning(fmt.Sprintf("%s ends in event %d: %d in %s are in no line and do not count; they are now *%s",
			j.folder.Path(JournalName), j.n, len(lost), dir, lostEnd)))
	}
	return err
}

// unnamed are the files of updates that no line names.
func (j *Journal) unnamed() []string {
	all, _ := filepath.Glob(j.folder.Path(updatePath("*"))) // an error: of another pattern than this
	return slices.DeleteFunc(all, func(path string) bool { return j.named[filepath.Base(path)] })
}

func (j *Journal) warn(w run.Warning) {
	if j.o.Warn != nil {
		j.o.Warn(w)
	}
}

// restore brings the server to the newest undamaged snapshot and returns the snapshot's event, 0 without one: the
// journal has everything from the start.
func (j *Journal) restore() (event int, err error) {
	c, warnings, err := j.folder.Latest()
	for _, w := range warnings {
		j.warn(w)
	}
	if errors.Is(err, run.ErrNoCheckpoint) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	err = j.folder.ReadCheckpoint(c, func(dir string) error {
		s, err := readSnapshot(dir)
		if err != nil {
			return err
		}
		event, j.saved = s.Event, s.Version
		state, err := DecodeState(j.o.Format.Run, s.state)
		if err != nil {
			return err
		}
		return j.server.Restore(state)
	})
	return event, err
}

// replay reads the journal and applies the events after the given one. It drops half a last line, and writes the first
// one.
func (j *Journal) replay(from int) error {
	r := &reader{path: j.folder.Path(JournalName), format: j.o.Format}
	r.event = func(e Event) error {
		j.named[e.File+updateEnd] = true
		if j.n = e.N; e.N <= from {
			return nil
		}
		return j.replayEvent(e)
	}
	file, err := openFile(r.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := r.read(file); err != nil {
		return err
	}
	if lost := j.unnamed(); r.line == 0 && len(lost) > 0 {
		return fmt.Errorf("%s has no lines, but there are %d updates such as %s: want the journal that names them, or "+
			"another folder", r.path, len(lost), lost[0])
	}
	if j.n < from {
		return fmt.Errorf("%s ends in event %d, but the newest snapshot is of event %d", r.path, j.n, from)
	}
	if r.torn {
		j.warn(run.Warning(fmt.Sprintf("%s:%d: half a line, which a crash has left, was dropped", r.path, r.line+1)))
		if err := os.Truncate(r.path, r.good); err != nil {
			return fmt.Errorf("%s cannot be cut: %w", r.path, run.Cause(err))
		}
	}
	if r.line > 0 {
		return nil
	}
	return j.disk.Append(JournalName, firstLine(j.o.Format, protocol.Version))
}

// replayEvent applies an event of the journal.
func (j *Journal) replayEvent(e Event) error {
	if now := j.server.Version(); e.At > 0 && e.At != now {
		return fmt.Errorf("event %d came at version %d, and now comes at version %d: is the run's config, or the "+
			"program, another one?", e.N, e.At, now)
	}
	u, err := readUpdate(j.folder.Dir, j.o.Format, e)
	if err == nil {
		_, _, err = j.apply(e, u)
	}
	return err
}

// apply gives an event to the server.
func (j *Journal) apply(e Event, u protocol.Update) (r protocol.Receipt, sends []protocol.Send, err error) {
	switch e.Line {
	case Join:
		r, sends = j.server.Join(e.Agent)
	case Update:
		r, sends = j.server.Receive(u)
	case Deadline:
		r, sends = j.server.Deadline()
	case Leave:
		r, sends = j.server.Leave(e.Agent)
	}
	if j.o.Observe != nil {
		err = j.o.Observe(e, r)
	}
	return r, sends, err
}

// updatePath is an update's file, relative to the run's folder.
func updatePath(hash string) string { return filepath.Join(updatesName, hash+updateEnd) }

// readUpdate reads the file of an event; other events than updates have none.
func readUpdate(dir string, format Format, e Event) (u protocol.Update, err error) {
	if e.Line != Update {
		return u, nil
	}
	path := filepath.Join(dir, updatePath(e.File))
	b, err := files.Read(os.DirFS(filepath.Join(dir, updatesName)), e.File+updateEnd, int64(format.MaxBytes()))
	if err != nil {
		return u, fmt.Errorf("event %d: %s cannot be read: %w", e.N, path, run.Cause(err))
	}
	if sumOf(b) != e.File {
		return u, fmt.Errorf("event %d: %s is damaged: its SHA-256 is not its name", e.N, path)
	}
	if u, err = format.DecodeUpdate(b); err != nil {
		return u, fmt.Errorf("event %d: %s: %w", e.N, path, err)
	}
	return u, nil
}

// Version is the version of the server's parameters.
func (j *Journal) Version() int { return j.server.Version() }

// Done reports whether the run has ended.
func (j *Journal) Done() bool { return j.server.Done() }

// Do is the server's Join, Deadline or Leave, durable.
func (j *Journal) Do(what string, agent int) (protocol.Receipt, []protocol.Send, error) {
	return j.do(Event{Line: what, Agent: agent}, protocol.Update{})
}

// Receive is [protocol.Server.Receive], durable, of an update that was read from a message. When it returns without an
// error, the update may be acknowledged.
func (j *Journal) Receive(u protocol.Update, message []byte) (protocol.Receipt, []protocol.Send, error) {
	e := Event{Line: Update, Agent: u.Agent, Kind: u.Kind, Version: u.Version, File: sumOf(message)}
	if _, err := os.Stat(j.folder.Path(updatePath(e.File))); err != nil && j.err == nil {
		j.err = j.disk.WriteFile(updatePath(e.File), message)
	}
	return j.do(e, u)
}

// do writes an event and applies it. After an error nobody knows what is on the disk.
func (j *Journal) do(e Event, u protocol.Update) (r protocol.Receipt, sends []protocol.Send, err error) {
	if j.err != nil {
		return r, nil, j.err
	}
	e.N, e.At = j.n+1, j.server.Version()
	if j.err = j.disk.Append(JournalName, encodeLine(e)); j.err != nil {
		return r, nil, j.err
	}
	j.n = e.N
	if r, sends, j.err = j.apply(e, u); j.err == nil {
		j.err = j.snapshotIfDue()
	}
	return r, sends, j.err
}

// snapshot says which event a snapshot is of.
type snapshot struct {
	Event   int    `json:"event"`
	Version int    `json:"version"`
	Params  string `json:"params"` // [Hash] of θ

	state []byte
}

func (j *Journal) snapshotIfDue() error {
	if j.o.Every == 0 || j.server.Version()-j.saved < j.o.Every {
		return nil
	}
	return j.Snapshot()
}

// Snapshot stores the server's state, from which [OpenJournal] continues.
func (j *Journal) Snapshot() error {
	if j.err != nil {
		return j.err
	}
	s, err := snapshotOf(j.server, j.o.Format.Run, j.n)
	if err == nil {
		_, err = j.disk.WriteCheckpoint(s.Version, s.write)
	}
	if err == nil && j.o.Keep > 0 {
		err = j.folder.Prune(j.o.Keep)
	}
	j.saved, j.err = s.Version, err
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
