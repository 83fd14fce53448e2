package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// log are the runs that have ended, in memory and as lines of a file.
type log struct {
	mu      sync.Mutex
	file    *os.File
	results map[run]result
}

func open(path string, iterations int) (*log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	l := &log{file: f, results: map[run]result{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if r.Iterations != iterations {
			return nil, fmt.Errorf("%s:%d: a run of %d iterations: want %d, or another file", path, n, r.Iterations,
				iterations)
		}
		l.results[r.run] = r
	}
	return l, lines.Err()
}

func (l *log) has(r run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.results[r]
	return ok
}

func (l *log) add(r result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results[r.run] = r
	_, err = l.file.Write(append(line, '\n'))
	return err
}
