package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// tally is what a judge saw in a run.
type tally struct {
	requests int
	twice    int // requests whose prompt had come before
	most     int // requests at the same time
	replies  int
	first    time.Time // of the first request
	last     time.Time // of the last reply
}

// slowJudge is a server that answers every question with a verdict after a delay.
type slowJudge struct {
	url     string // ends in /v1
	server  *http.Server
	reasons string

	mu    sync.Mutex
	tally tally
	delay time.Duration
	now   int
	seen  map[[sha256.Size]byte]bool
}

// serveJudge listens on this machine until the judge is closed.
func serveJudge() (*slowJudge, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	j := &slowJudge{url: fmt.Sprintf("http://%s/v1", listener.Addr()), reasons: prose(rand.New(rand.NewPCG(4, 4)), 600)}
	j.begin(0)
	j.server = &http.Server{Handler: http.HandlerFunc(j.judge)}
	go j.server.Serve(listener)
	return j, nil
}

func (j *slowJudge) close() { j.server.Close() }

// begin resets the tally and sets the delay.
func (j *slowJudge) begin(delay time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tally, j.delay, j.seen = tally{}, delay, map[[sha256.Size]byte]bool{}
}

// end is the tally since begin.
func (j *slowJudge) end() tally {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tally
}

func (j *slowJudge) replyCount() int { return j.end().replies }

func (j *slowJudge) judge(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	var q struct{ Messages []struct{ Content string } }
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Messages) == 0 {
		http.Error(w, `{"error": {"message": "want messages"}}`, http.StatusBadRequest)
		return
	}
	prompt := q.Messages[len(q.Messages)-1].Content
	name := sha256.Sum256([]byte(prompt))
	time.Sleep(time.Until(began.Add(j.arrive(name))))
	reply, _ := json.Marshal(completion(prompt, j.verdict(name))) // strings and numbers
	_, _ = w.Write(reply)                                         // a client that left needs no reply
	j.leave()
}

func (j *slowJudge) arrive(name [sha256.Size]byte) (delay time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t := &j.tally; t.requests == 0 {
		t.first = time.Now()
	}
	if j.seen[name] {
		j.tally.twice++
	}
	j.seen[name] = true
	j.now++
	j.tally.requests++
	j.tally.most = max(j.tally.most, j.now)
	return j.delay
}

func (j *slowJudge) leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now--
	j.tally.replies++
	j.tally.last = time.Now()
}

// verdict serves both for leakage and for helpfulness. A tenth of the questions are leaks.
func (j *slowJudge) verdict(name [sha256.Size]byte) string {
	leaks := "No"
	if name[0] < 26 {
		leaks = "Yes"
	}
	return fmt.Sprintf("%s\nAnswer: %s. Good", j.reasons, leaks)
}

// completion is a chat completion; a token has four bytes.
func completion(prompt, reply string) any {
	in, out := len(prompt)/4, len(reply)/4
	return map[string]any{
		"id": "bench", "object": "chat.completion", "model": "bench",
		"choices": []any{map[string]any{"index": 0, "finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": reply}}},
		"usage": map[string]any{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out},
	}
}
