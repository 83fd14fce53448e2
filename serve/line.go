package serve

import (
	"slices"
	"sync"
	"time"
)

// line is where jobs wait for the sampler, in the order in which they came.
type line struct {
	most int           // jobs that wait
	news chan struct{} // of one element: there is a job

	mu      sync.Mutex
	waiting []*job
	running int           // jobs in the batch under way
	took    time.Duration // the batch before
}

func newLine(most int) *line {
	return &line{most: most, news: make(chan struct{}, 1), took: time.Second}
}

// join adds a job, unless the line is full: then it says how long it takes until it may move on.
func (l *line) join(j *job) (retry time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= l.most {
		return min(max(l.took, time.Second), time.Minute), false
	}
	l.waiting = append(l.waiting, j)
	select {
	case l.news <- struct{}{}:
	default:
	}
	return 0, true
}

// leave takes a job out, if it is still there.
func (l *line) leave(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, j); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// next takes out the jobs that are sampled together: as many as have that many rows together, and one at least if there
// is any.
func (l *line) next(rows int) []*job {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, sum := 0, 0
	for n < len(l.waiting) {
		if sum += len(l.waiting[n].requests); n > 0 && sum > rows {
			break
		}
		n++
	}
	jobs := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.running = n
	return jobs
}

// done says that the batch is through.
func (l *line) done(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running, l.took = 0, took
}

// counts are the jobs in the batch and those that wait.
func (l *line) counts() (running, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running, len(l.waiting)
}
