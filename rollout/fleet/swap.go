package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// written are the weights that were last written for the servers.
type written struct {
	version int
	name    string // of the weights; "": none were written yet
	folder  string
	before  string // the folder of the weights before these, which a server may still read
}

// heldWeights are the names of weights that a server keeps.
const heldWeights = 2

// swap gives the present weights to all servers that do not have them. It fails if no server takes them.
func (f *Fleet) swap(ctx context.Context) error {
	if v := f.policy.Version(); f.written.name == "" || v != f.written.version {
		if err := f.write(v); err != nil {
			return err
		}
	}
	errs := make([]error, len(f.servers))
	var wg sync.WaitGroup
	for i, s := range f.servers {
		if s.weights == f.written.name {
			continue
		}
		wg.Go(func() { errs[i] = f.give(ctx, s) })
	}
	wg.Wait()
	for _, err := range errs {
		if wrong, ok := errors.AsType[mismatch](err); ok {
			return wrong
		}
	}
	have := 0
	for i, s := range f.servers {
		if s.lost = errs[i]; s.lost == nil {
			have++
		} else {
			f.warn("%v; the other servers go on", s.lost)
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case have == 0:
		return fmt.Errorf("no server takes the weights: %w", errors.Join(errs...))
	}
	return nil
}

// write writes the weights of a version into a folder of their own, and removes those before the last.
func (f *Fleet) write(version int) error {
	folder, err := filepath.Abs(f.options.Folder)
	if err != nil {
		return err
	}
	next := written{version: version, name: fmt.Sprintf("%s-v%d", f.id, version), before: f.written.folder}
	next.folder = filepath.Join(folder, next.name)
	if err := os.RemoveAll(next.folder); err != nil { // of a run that was interrupted
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := f.policy.Write(next.folder); err != nil {
		return err
	}
	old := f.written.before
	if f.written = next; old != "" && old != next.folder {
		return os.RemoveAll(old)
	}
	return nil
}

// Close frees the weights on the servers and removes those that were written.
func (f *Fleet) Close() error {
	var errs []error
	for _, s := range f.servers {
		for _, name := range s.held {
			if s.lost == nil {
				errs = append(errs, f.protocol.drop(context.Background(), s, name))
			}
		}
	}
	for _, folder := range []string{f.written.before, f.written.folder} {
		if folder != "" {
			errs = append(errs, os.RemoveAll(folder))
		}
	}
	os.Remove(f.options.Folder) // fails if others use it
	return errors.Join(errs...)
}

// give gives a server the weights that were written, and frees those before the last: answers may still be drawn from
// the last.
func (f *Fleet) give(ctx context.Context, s *server) error {
	err := f.protocol.give(ctx, s, f.written)
	if err == nil {
		err = f.probe(ctx, s)
	}
	if err != nil {
		return err
	}
	s.weights = f.written.name
	if s.held = append(s.held, f.written.name); len(s.held) > heldWeights {
		err = f.protocol.drop(ctx, s, s.held[0])
		s.held = s.held[1:]
	}
	return err
}
