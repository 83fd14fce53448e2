package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestFewAreReadAtOnce: however many clients send at once, few requests are read at a time, and no more arrive than the
// server has memory for.
func TestFewAreReadAtOnce(t *testing.T) {
	s := New(Options{MaxQueue: 8})
	var now, most, refused atomic.Int64
	read := func([]byte) (*ask, *problem) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		runtime.Gosched()
		return nil, refuse("", "read")
	}
	clients := arrivals*s.options.MaxQueue + 40
	all, sent := make(chan struct{}), sync.WaitGroup{}
	for range clients {
		sent.Go(func() {
			body := &gate{all}
			w := httptest.NewRecorder()
			if _, p := s.accept(w, httptest.NewRequest("POST", "/", body), read); p.status == http.StatusTooManyRequests {
				refused.Add(1)
			}
		})
	}
	for s.arriving.Load() < int64(arrivals*s.options.MaxQueue) || refused.Load() < 40 {
		runtime.Gosched()
	}
	close(all)
	sent.Wait()
	if n := most.Load(); n < 1 || n > int64(cap(s.reading)) || refused.Load() != 40 || s.arriving.Load() != 0 {
		t.Errorf("%d were read at once, %d refused, %d are left", n, refused.Load(), s.arriving.Load())
	}
}

// gate is a body that arrives when it is opened.
type gate struct{ open chan struct{} }

func (g *gate) Read([]byte) (int, error) {
	<-g.open
	return 0, io.EOF
}
