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

	Key  taskKey `json:"key"`  // of the update
	Size int     `json:"size"` // of the state

	state  []byte
	update []byte // nil: none
}

// openMemory reads an agent's memory of a run in a folder, which one process may use at a time. It is empty at first,
// and where the file is damaged: the agent then counts as one that has lost its state.
func openMemory(dir, runID, agent string) (m *memory, damaged error, err error) {
	dir = filepath.Join(dir, runID+"-"+agent)
	m = &memory{path: filepath.Join(dir, "memory"), run: runID}
	if err = files.MakeAll(dir, 0o700); err == nil {
		m.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	}
	if err != nil {
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
		m.Key, m.state, m.update = taskKey{}, nil, nil
		damaged = fmt.Errorf("%s: %w: the agent starts without what it had learned", m.path, files.Cause(err))
	}
	return m, damaged, nil
}

func (m *memory) parse(text []byte) error {
	line, rest, ok := bytes.Cut(text, []byte{'\n'})
	if err := json.Unmarshal(line, m); err != nil || !ok || m.Size < 0 || m.Size > len(rest) {
		return ErrDamaged
	}
	m.state = rest[:m.Size]
	if m.Size < len(rest) {
		m.update = rest[m.Size:]
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
	if err := files.Replace(path, secret, 0o600); err != nil {
		return nil, fmt.Errorf("state folder %s: %w", filepath.Dir(path), files.Cause(err))
	}
	return secret, nil
}

// keep stores a state and an update, flushed to the disk.
func (m *memory) keep(s protocol.State, key taskKey, update []byte) error {
	state, err := EncodeState(m.run, s)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Key, m.Size, m.state, m.update = key, len(state), state, update
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	text := bytes.Join([][]byte{append(line, '\n'), m.state, m.update}, nil)
	if err := files.Replace(m.path, text, 0o600); err != nil {
		return fmt.Errorf("%s cannot be written: %w", m.path, files.Cause(err))
	}
	return nil
}

// pending is the update that the server may not have; nil: none.
func (m *memory) pending() (key taskKey, update []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Key, m.update
}

// settle forgets the pending update: the server has it, or does not want it. After a kill it is sent again and found to
// be a duplicate.
func (m *memory) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.update = nil
}
