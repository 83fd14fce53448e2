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

// spool is what an agent keeps on its own disk, in one file that is replaced at once: what it has learned for itself,
// and the update that the server may not have yet. Goroutines may share it.
type spool struct {
	mu   sync.Mutex
	path string
	run  string
	lock *os.File

	Key  taskKey `json:"key"`  // of the update
	Size int     `json:"size"` // of the state

	state  []byte
	update []byte // nil: none
}

// openSpool reads an agent's spool of a run in a folder, which one process may use at a time. It is empty at first, and
// where the file is damaged: the agent then counts as one that has lost its state.
func openSpool(dir, runID, agent string) (s *spool, damaged error, err error) {
	dir = filepath.Join(dir, runID+"-"+agent)
	s = &spool{path: filepath.Join(dir, "memory"), run: runID}
	if err = files.MakeAll(dir, 0o700); err == nil {
		s.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("state folder %s: %w", dir, files.Cause(err))
	}
	if err := run.Lock(s.lock); err != nil {
		s.lock.Close()
		return nil, nil, fmt.Errorf("state folder %s is %w: want another --agent or --state", dir, err)
	}
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil, nil
	}
	if err == nil {
		err = s.parse(text)
	}
	if err != nil {
		s.Key, s.state, s.update = taskKey{}, nil, nil
		damaged = fmt.Errorf("%s: %w: the agent starts without what it had learned", s.path, files.Cause(err))
	}
	return s, damaged, nil
}

func (s *spool) parse(text []byte) error {
	line, rest, ok := bytes.Cut(text, []byte{'\n'})
	if err := json.Unmarshal(line, s); err != nil || !ok || s.Size < 0 || s.Size > len(rest) {
		return ErrDamaged
	}
	s.state = rest[:s.Size]
	if s.Size < len(rest) {
		s.update = rest[s.Size:]
	}
	_, err := DecodeState(s.run, s.state)
	return err
}

// secret are the agent's 32 bytes of secure sums, drawn when it first takes part in the run. They stay on this disk.
func (s *spool) secret() ([]byte, error) {
	path := filepath.Join(filepath.Dir(s.path), "secret")
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

// store stores a state and an update, flushed to the disk.
func (s *spool) store(learned protocol.State, key taskKey, update []byte) error {
	state, err := EncodeState(s.run, learned)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Key, s.Size, s.state, s.update = key, len(state), state, update
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	text := bytes.Join([][]byte{append(line, '\n'), s.state, s.update}, nil)
	if err := files.Replace(s.path, text, 0o600); err != nil {
		return fmt.Errorf("%s cannot be written: %w", s.path, files.Cause(err))
	}
	return nil
}

// pending is the update that the server may not have; nil: none.
func (s *spool) pending() (key taskKey, update []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Key, s.update
}

// clear forgets the pending update: the server has it, or does not want it. After a kill it is sent again and found to
// be a duplicate.
func (s *spool) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update = nil
}
