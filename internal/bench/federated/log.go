package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// outcome is a run that has ended, K what says which.
type outcome[K comparable] interface {
	key() K
	length() int // iterations or rounds
	String() string
}

// log are the runs that have ended, in memory and as lines of a file.
type log[K comparable, R outcome[K]] struct {
	mu      sync.Mutex
	file    *os.File
	results map[K]R
}

func open[K comparable, R outcome[K]](path string, length int) (*log[K, R], error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	l := &log[K, R]{file: f, results: map[K]R{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r R
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if r.length() != length {
			return nil, fmt.Errorf("%s:%d: a run of %d iterations: want %d, or another file", path, n, r.length(),
				length)
		}
		l.results[r.key()] = r
	}
	return l, lines.Err()
}

func (l *log[K, R]) has(k K) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.results[k]
	return ok
}

func (l *log[K, R]) add(r R) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results[r.key()] = r
	_, err = l.file.Write(append(line, '\n'))
	return err
}

// runAll does the runs that are not done, some at a time.
func runAll[K comparable, R outcome[K]](ctx context.Context, progress io.Writer, some int, runs []K, done *log[K, R],
	do func(context.Context, K) (R, error)) error {
	work, errs := make(chan K), make(chan error, len(runs))
	var group sync.WaitGroup
	for range some {
		group.Go(func() {
			for k := range work {
				r, err := do(ctx, k)
				if err == nil {
					err = done.add(r)
				}
				if err != nil {
					errs <- fmt.Errorf("%+v: %w", k, err)
					continue
				}
				fmt.Fprintln(progress, r)
			}
		})
	}
	for _, k := range runs {
		if !done.has(k) && ctx.Err() == nil {
			work <- k
		}
	}
	close(work)
	group.Wait()
	close(errs)
	return <-errs
}
