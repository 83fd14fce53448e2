package train

import "runtime"

// writer does one job at a time while its caller continues. The zero value is ready.
type writer struct {
	done chan result // of the job that nobody has waited for; nil: none
}

// result is what a job ended with. Its panic is the caller's.
type result struct {
	err   error
	panic any
}

// start waits for the job before, whose error it returns, and starts another. With a single core it does the job.
func (w *writer) start(job func() error) error {
	if err := w.wait(); err != nil {
		return err
	}
	if runtime.GOMAXPROCS(0) == 1 {
		return job()
	}
	done := make(chan result, 1)
	w.done = done
	go func() {
		var r result
		defer func() {
			r.panic = recover()
			done <- r
		}()
		r.err = job()
	}()
	return nil
}

// busy reports whether a job is under way.
func (w *writer) busy() bool { return w.done != nil && len(w.done) == 0 }

// check returns the error of a job that has ended.
func (w *writer) check() error {
	if w.busy() {
		return nil
	}
	return w.wait()
}

// wait returns the error of the job under way when it ends.
func (w *writer) wait() error {
	if w.done == nil {
		return nil
	}
	r := <-w.done
	w.done = nil
	if r.panic != nil {
		panic(r.panic)
	}
	return r.err
}
