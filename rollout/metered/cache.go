package metered

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout"
)

// header is the first line of a cache. Its wording is as in the first caches, so that they still load.
const header = `{"file":"replies of a posttrain judge","version":1}`

// entry is a line of a cache: a reply and the parameters that it depends on, but for the prompt.
type entry struct {
	Name             string  `json:"name"`             // hex
	Server           string  `json:"server,omitempty"` // its base URL; absent from older caches
	Model            string  `json:"model"`
	Temperature      float64 `json:"temperature"`
	MaxTokens        int     `json:"max_tokens"`
	Reply            string  `json:"reply"`
	Reason           string  `json:"reason"`
	PromptTokens     int     `json:"prompt_tokens"`
	CompletionTokens int     `json:"completion_tokens"`

	Top map[string]float64 `json:"top,omitempty"` // log-probabilities of the likeliest first tokens
}

func (e *entry) answer() Reply { return Reply{e.Reply, e.Top, e.Reason == rollout.Length} }

// cache keeps replies in a journal, and in memory. A nil cache keeps nothing.
type cache struct {
	file *run.Journal[json.RawMessage]

	mu      sync.Mutex
	replies map[string]Reply // by name
}

// openCache opens or creates a cache for this process alone. Only the replies of a server are used; "": all servers'
// replies.
func openCache(path, server string) (*cache, error) {
	err := checkHeader(path)
	if err != nil {
		return nil, err
	}
	c := &cache{replies: map[string]Reply{}}
	var lines []json.RawMessage
	if c.file, lines, err = run.OpenJournal[json.RawMessage](path); err != nil {
		return nil, fmt.Errorf("the cache of replies: %w", err)
	}
	if len(lines) == 0 {
		err = c.file.Add(json.RawMessage(header))
	}
	for i := 1; i < len(lines) && err == nil; i++ {
		var e entry
		if e, err = entryOf(lines[i]); err != nil {
			err = fmt.Errorf("%s:%d: not a reply (%w): remove the line", path, i+1, err)
		} else if server == "" || e.Server == "" || e.Server == server { // older lines do not name their server
			c.replies[e.Name] = e.answer()
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.file.Close())
	}
	return c, nil
}

// checkHeader leaves a file alone that is no cache. A new one, or one whose creator was killed at once, has part of the
// header.
func checkHeader(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var start []byte
	if err == nil {
		defer file.Close()
		start, err = io.ReadAll(io.LimitReader(file, int64(len(header)+1)))
	}
	if err != nil {
		return fmt.Errorf("%s, the cache of replies, cannot be read: %w", path, run.Cause(err))
	}
	if !strings.HasPrefix(header+"\n", string(start)) {
		return fmt.Errorf("%s is not a cache of replies: its first line is not %s; name another file", path, header)
	}
	return nil
}

func entryOf(line []byte) (e entry, err error) {
	if err = json.Unmarshal(line, &e); err == nil && len(e.Name) != 2*len(name{}) {
		err = fmt.Errorf("name %q: want %d hex digits", e.Name, 2*len(name{}))
	}
	return e, err
}

// get is the reply to a question, if the cache has it.
func (c *cache) get(n name) (r Reply, found bool) {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		r, found = c.replies[hex.EncodeToString(n[:])]
	}
	return r, found
}

// add keeps a reply: it is on disk when add returns.
func (c *cache) add(n name, e entry) error {
	e.Name = hex.EncodeToString(n[:])
	line, err := json.Marshal(e)
	if err == nil {
		err = c.file.Add(line)
	}
	if err == nil {
		err = c.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("the cache of replies: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies[e.Name] = e.answer()
	return nil
}

// close must follow the last add.
func (c *cache) close() error {
	if c == nil {
		return nil
	}
	return c.file.Close()
}
