package metered

import (
	"bufio"
	"bytes"
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

// header is the first line of a cache. Its wording is that of the first caches, so that they still load.
const header = `{"file":"replies of a posttrain judge","version":1}` + "\n"

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

// cache keeps replies in a file, and their places in memory. Lines that arrive together are flushed together. A nil
// cache keeps nothing.
type cache struct {
	path   string
	server string // whose replies are used; "": those of all
	file   *os.File
	queue  chan *pending
	ended  chan struct{} // closed when the queue is written

	mu     sync.Mutex
	places map[name]place
	size   int64 // of whole lines
	broken error // why the file ends in half a line that cannot be removed
}

// place is a line in the file.
type place struct {
	at   int64
	size int
}

// pending is a line to be written.
type pending struct {
	name name
	line []byte
	done chan error
}

// openCache opens or creates a cache for this process alone. It cuts off half a line at the end.
func openCache(path, server string) (*cache, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, fmt.Errorf("%s, the cache of replies, cannot be opened: %w", path, run.Cause(err))
	}
	c := &cache{path: path, server: server, file: file, queue: make(chan *pending, 64), ended: make(chan struct{}),
		places: map[name]place{}}
	if err := c.load(); err != nil {
		file.Close()
		return nil, err
	}
	go c.writeQueue()
	return c, nil
}

func (c *cache) load() error {
	if info, err := c.file.Stat(); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%s, the cache of replies: want a file", c.path)
	}
	if err := run.Lock(c.file); err != nil {
		return fmt.Errorf("%s, the cache of replies, cannot be locked: %w: "+
			"wait for the other run to end, or name another file", c.path, err)
	}
	lines := bufio.NewReaderSize(c.file, 1<<16)
	first, err := lines.ReadString('\n')
	switch {
	case err != nil && err != io.EOF:
		return c.readError(err)
	case err == io.EOF && strings.HasPrefix(header, first): // a new file, or its creator was killed at once
		return c.begin()
	case first != header:
		return fmt.Errorf("%s is not a cache of replies: its first line is not %s; name another file",
			c.path, strings.TrimSpace(header))
	}
	c.size = int64(len(header))
	return c.index(lines)
}

// begin writes the header.
func (c *cache) begin() error {
	err := c.file.Truncate(0)
	if err == nil {
		_, err = c.file.WriteString(header)
	}
	if err == nil {
		err = c.file.Sync()
	}
	if err != nil {
		return c.writeError(err)
	}
	c.size = int64(len(header))
	return nil
}

func (c *cache) readError(err error) error {
	return fmt.Errorf("%s, the cache of replies, cannot be read: %w", c.path, run.Cause(err))
}

func (c *cache) writeError(err error) error {
	return fmt.Errorf("%s, the cache of replies, cannot be written: %w", c.path, run.Cause(err))
}

// index notes the places of the replies. It completes a last line that lacks only its newline and cuts off half a line.
func (c *cache) index(lines *bufio.Reader) error {
	for number := 2; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return c.readError(err)
		}
		n, server, fault := nameOf(line)
		switch {
		case err == io.EOF && fault != nil:
			return c.cut(len(line))
		case fault != nil:
			return fmt.Errorf("%s:%d: not a reply (%w): remove the line", c.path, number, fault)
		}
		if err == io.EOF {
			if _, err := c.file.WriteString("\n"); err != nil {
				return c.writeError(err)
			}
			line = append(line, '\n')
		}
		if c.uses(server) {
			c.note(n, len(line))
		} else {
			c.size += int64(len(line))
		}
		if err == io.EOF {
			return nil
		}
	}
}

// cut removes n bytes that follow the whole lines.
func (c *cache) cut(n int) error {
	if n == 0 {
		return nil
	}
	if err := c.file.Truncate(c.size); err != nil {
		return c.writeError(err)
	}
	return nil
}

// note records the place of the next line.
func (c *cache) note(n name, size int) {
	c.places[n] = place{c.size, size}
	c.size += int64(size)
}

// uses says whether replies of a server are used; older lines do not name theirs.
func (c *cache) uses(server string) bool { return c.server == "" || server == "" || server == c.server }

// nameOf reads the name of an entry and its server, or says why the line is not one.
func nameOf(line []byte) (n name, server string, err error) {
	var e struct {
		Name   *string
		Reply  *string
		Server string
	}
	switch err := json.Unmarshal(line, &e); {
	case err != nil:
		return n, "", err
	case e.Name == nil || e.Reply == nil:
		return n, "", errors.New("name or reply is missing")
	}
	b, err := hex.DecodeString(*e.Name)
	if err != nil || len(b) != len(n) {
		return n, "", fmt.Errorf("name %q: want %d hex digits", *e.Name, 2*len(n))
	}
	return name(b), e.Server, nil
}

func (c *cache) has(n name) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.places[n]
	return ok
}

// read returns a reply that the cache has.
func (c *cache) read(n name) (Reply, error) {
	c.mu.Lock()
	p := c.places[n]
	c.mu.Unlock()
	line := make([]byte, p.size)
	if _, err := c.file.ReadAt(line, p.at); err != nil {
		return Reply{}, c.readError(err)
	}
	var e entry
	if err := json.Unmarshal(line, &e); err != nil || e.Name != hex.EncodeToString(n[:]) {
		return Reply{}, fmt.Errorf("%s was changed by another program: start again", c.path)
	}
	return Reply{e.Reply, e.Top, e.Reason == rollout.Length}, nil
}

// add keeps a reply: it is on disk when add returns.
func (c *cache) add(n name, e entry) error {
	e.Name = hex.EncodeToString(n[:])
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	p := &pending{n, append(line, '\n'), make(chan error, 1)}
	c.queue <- p
	return <-p.done
}

// writeQueue writes queued lines, all that are there at a time.
func (c *cache) writeQueue() {
	defer close(c.ended)
	for p := range c.queue {
		batch := []*pending{p}
		for more := true; more; {
			select {
			case p, ok := <-c.queue:
				if more = ok; ok {
					batch = append(batch, p)
				}
			default:
				more = false
			}
		}
		err := c.append(batch)
		for _, p := range batch {
			p.done <- err
		}
	}
}

// append writes and flushes lines. If that fails it cuts them off again, so that the file stays whole.
func (c *cache) append(batch []*pending) error {
	if c.broken != nil {
		return c.broken
	}
	var lines bytes.Buffer
	for _, p := range batch {
		lines.Write(p.line)
	}
	_, err := c.file.Write(lines.Bytes())
	if err == nil {
		err = c.file.Sync()
	}
	if err != nil {
		err = c.writeError(err)
		if c.cut(lines.Len()) != nil {
			c.broken = err
		}
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range batch {
		c.note(p.name, len(p.line))
	}
	return nil
}

// close must follow the last add.
func (c *cache) close() error {
	if c == nil {
		return nil
	}
	close(c.queue)
	<-c.ended
	if err := c.file.Close(); err != nil {
		return c.writeError(err)
	}
	return nil
}
