package link

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/run"
)

// memory is what an agent keeps on its own disk, in one file that is replaced at once: what it has learned for itself,
// and the update that the server may not have yet. Goroutines may share it.
type memory struct {
	mu   sync.Mutex
	path string
	run  string
	lock *os.File

	Key   taskKey `json:"key"`   // of the update
	Again int     `json:"again"` // how often updates of this key were sent before
	Size  int     `json:"size"`  // of the state

	state  []byte
	update []byte // nil: none
}

// openMemory reads an agent's memory of a run in a folder, which one process may use at a time. It is empty at first,
// and where the file is damaged: the agent then counts as one that has lost its state.
func openMemory(dir, runID, agent string) (m *memory, damaged error, err error) {
	dir = filepath.Join(dir, runID+"-"+agent)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("state folder %s cannot be made: %w", dir, files.Cause(err))
	}
	m = &memory{path: filepath.Join(dir, "memory"), run: runID}
	if m.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, nil, fmt.Errorf("state folder %s: %w", dir, files.Cause(err))
	}
	if err := run.Lock(m.lock); err != nil {
		m.lock.Close()
		return nil, nil, fmt.Errorf("state folder %s is %w: want another --agent or --state", dir, err)
	}
	text, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil, nil
	}
	if err == nil {
		err = m.parse(text)
	}
	if err != nil {
		m.Key, m.Again, m.state, m.update = taskKey{}, 0, nil, nil
		return m, fmt.Errorf("%s: %w: the agent starts without what it had learned", m.path, files.Cause(err)), nil
	}
	return m, nil, nil
}

func (m *memory) parse(text []byte) error {
	line, rest, ok := bytes.Cut(text, []byte{'\n'})
	if err := json.Unmarshal(line, m); err != nil || !ok || m.Size < 0 || m.Size > len(rest) {
		return ErrDamaged
	}
	m.state, m.update = rest[:m.Size], rest[m.Size:]
	if len(m.update) == 0 {
		m.update = nil
	}
	_, err := DecodeState(m.run, m.state)
	return err
}

// secret are the agent's 32 bytes of secure sums, drawn when it first takes part in the run. They stay on this disk.
func (m *memory) secret() ([]byte, error) {
	path := filepath.Join(filepath.Dir(m.path), "secret")
	secret, err := os.ReadFile(path)
	if err == nil && len(secret) == 32 {
		return secret, nil
	}
	secret = make([]byte, 32)
	rand.Read(secret)
	if err := os.WriteFile(path, secret, 0o600); err != nil {
		return nil, fmt.Errorf("state folder %s: %w", filepath.Dir(path), files.Cause(err))
	}
	return secret, nil
}

// learned is the state in memory; ok is false without one.
func (m *memory) learned() (s protocol.State, ok bool, err error) {
	if m.state == nil {
		return s, false, nil
	}
	s, err = DecodeState(m.run, m.state)
	return s, true, err
}

// keep stores a state and an update, flushed to the disk.
func (m *memory) keep(s protocol.State, key taskKey, update []byte) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if key == m.Key {
		m.Again++ // the server refused one of this key before
	} else {
		m.Key, m.Again = key, 0
	}
	if m.state, err = EncodeState(m.run, s); err != nil {
		return err
	}
	m.update = update
	return m.write()
}

// pending is the update that the server may not have; nil: none.
func (m *memory) pending() (key taskKey, again int, update []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Key, m.Again, m.update
}

// settle forgets the pending update: the server has it, or does not want it. After a kill it is sent again and found to
// be a duplicate.
func (m *memory) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.update = nil
}

// retry counts another sending of the pending update.
func (m *memory) retry() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Again++
	return m.write()
}

func (m *memory) write() error {
	m.Size = len(m.state)
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	text := bytes.Join([][]byte{append(line, '\n'), m.state, m.update}, nil)
	if err := writeFile(m.path, text, 0o600); err != nil {
		return fmt.Errorf("%s cannot be written: %w", m.path, files.Cause(err))
	}
	return nil
}

func (m *memory) close() { m.lock.Close() }
