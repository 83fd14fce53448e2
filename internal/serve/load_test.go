package serve_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/posttrain/posttrain/internal/serve"
)

// The clients of a load, by what each does.
const (
	readsAll    = iota // of its stream
	readsLate          // when all others have ended
	halfCloses         // its side of the connection
	leaves             // after the first piece of its stream
	hangsUp            // with a reset, perhaps ahead of any reply
	kinds              // how many there are
	loadClients = 200
)

// TestLoadLeavesNoMemory: 200 streams at once, to clients of which many behave badly, leave as much memory in use as the
// same load before, within a tenth and 256 KiB.
func TestLoadLeavesNoMemory(t *testing.T) {
	r := start(t, nil, func(o *serve.Options) { o.MaxQueue = loadClients })
	for range 2 { // what the sampler keeps for more requests
		r.load(t)
	}
	before := r.settle(t)
	for range 2 {
		r.load(t)
	}
	if after := r.settle(t); after > before+before/10+256<<10 {
		t.Errorf("%d KiB are in use, before the load %d KiB", after>>10, before>>10)
	}
	if n := strings.Count(r.log.text(), "200 in "); n < 4*loadClients*2/kinds {
		t.Errorf("%d streams were whole:\n%s", n, r.log.text())
	}
}

// load has all clients ask at once, and waits until they have ended.
func (r *running) load(t *testing.T) {
	t.Helper()
	var all, others sync.WaitGroup
	others.Add(loadClients - loadClients/kinds)
	for i := range loadClients {
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"Tell me %d"}],"stream":true,"max_tokens":8,`+
			`"seed":%d,"logprobs":true}`, i, i)
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://")) // dial would keep it
		if err == nil {
			_, err = fmt.Fprintf(c, plainChat, len(body), body)
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer c.Close()
			if i%kinds == readsLate {
				others.Wait()
			} else {
				defer others.Done()
			}
			if err := behave(c.(*net.TCPConn), i%kinds); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// behave is what a client does with the connection of its request.
func behave(c *net.TCPConn, kind int) error {
	switch kind {
	case halfCloses:
		if err := c.CloseWrite(); err != nil {
			return err
		}
	case hangsUp:
		return c.SetLinger(0)
	}
	reply, err := http.ReadResponse(bufio.NewReader(c), nil)
	if kind == halfCloses { // it may have been fast enough for a reply
		return nil
	}
	if err != nil {
		return err
	}
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", reply.Status)
	}
	if kind == leaves {
		_, err = reply.Body.Read(make([]byte, 1))
		return err
	}
	text, err := io.ReadAll(reply.Body)
	if err == nil && !strings.Contains(string(text), "[DONE]") {
		err = fmt.Errorf("the stream ends early: %q", text)
	}
	return err
}

// settle waits until the server has no connection, and gives the bytes of memory that are in use then.
func (r *running) settle(t *testing.T) uint64 {
	t.Helper()
	until(t, "no request is under way", func() bool { h := r.health(t); return h.Running+h.Waiting == 0 })
	stacks := make([]byte, 4<<20)
	until(t, "all connections are closed", func() bool {
		http.DefaultClient.CloseIdleConnections()
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "net/http.(*conn).serve(")
	})
	for range 3 { // pools are empty after the second collection
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
