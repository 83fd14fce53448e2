package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// written are the weights that were last written for the servers.
type written struct {
	version int
	name    string // of the weights; "": none were written yet
	folder  string
}

// swap gives the present weights to all servers that do not have them. It fails if no server takes them.
func (f *Fleet) swap(ctx context.Context) error {
	switch v := f.policy.Version(); {
	case f.written.name == "" || v > f.written.version:
		if err := f.tidy(ctx); err != nil {
			return err
		}
		if err := f.write(v); err != nil {
			return err
		}
	case v < f.written.version:
		return fmt.Errorf("the policy's version is %d, but the servers were given %d: versions do not go back", v,
			f.written.version)
	}
	errs := make([]error, len(f.servers))
	var wg sync.WaitGroup
	for i, s := range f.servers {
		if !f.serverHas(s, f.written.name) {
			wg.Go(func() { errs[i] = f.give(ctx, s) })
		}
	}
	wg.Wait()
	for _, err := range errs {
		if wrong, ok := errors.AsType[mismatch](err); ok {
			return wrong
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !slices.ContainsFunc(f.servers, func(s *server) bool { return f.serverHas(s, f.written.name) }):
		return fmt.Errorf("no server takes the weights: %w", errors.Join(errs...))
	}
	return nil
}

func (f *Fleet) serverHas(s *server, weights string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(s.has, weights)
}

// tidy frees what this run left on servers and in the folder when it was killed.
func (f *Fleet) tidy(ctx context.Context) error {
	if f.written.name != "" || f.run == "" {
		return nil
	}
	entries, err := os.ReadDir(f.options.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), f.run) {
			for _, s := range f.servers {
				f.drop(ctx, s, e.Name())
			}
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.options.Folder, e.Name())))
		}
	}
	return err
}

// drop frees weights on a server, if it can.
func (f *Fleet) drop(ctx context.Context, s *server, name string) {
	if err := f.protocol.drop(ctx, s, name); err != nil && ctx.Err() == nil {
		f.warn("%v; it may keep weights that are used no more", err)
	}
}

// write writes the weights of a version into a folder of their own, and removes those that no server has any more.
func (f *Fleet) write(version int) error {
	folder, err := filepath.Abs(f.options.Folder)
	if err != nil {
		return err
	}
	next := written{version: version, name: fmt.Sprintf("%s%s-v%d", f.run, f.id, version)}
	next.folder = filepath.Join(folder, next.name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	f.folders = append(f.folders, next.folder)
	if err := f.policy.Write(next.folder); err != nil {
		return err
	}
	f.written = next
	for len(f.folders) > f.protocol.holds()+1 {
		if err := os.RemoveAll(f.folders[0]); err != nil {
			return err
		}
		f.folders = f.folders[1:]
	}
	return nil
}

// farewell is how long the servers may take to free weights when a run ends.
const farewell = 10 * time.Second

// Close frees the weights on all servers at once, as one may hang, and removes those that were written. Calls of Sample
// must have ended.
func (f *Fleet) Close() error {
	ctx, stop := context.WithTimeout(context.Background(), farewell)
	defer stop()
	errs := make([]error, len(f.servers))
	var wg sync.WaitGroup
	for i, s := range f.servers {
		wg.Go(func() { errs[i] = f.release(ctx, s) })
	}
	wg.Wait()
	for _, folder := range f.folders {
		errs = append(errs, os.RemoveAll(folder))
	}
	os.Remove(f.options.Folder) // fails if others use it
	return errors.Join(errs...)
}

// release frees all weights on a server. It ends with the first that the server does not free.
func (f *Fleet) release(ctx context.Context, s *server) error {
	for _, name := range s.has {
		err := f.protocol.drop(ctx, s, name)
		if ctx.Err() != nil {
			return s.Fail("no reply within %v; it may keep weights that are used no more", farewell)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// give gives a server the weights that were written, and frees those that no completion is drawn from any more. A
// server that fails is lost.
func (f *Fleet) give(ctx context.Context, s *server) error {
	err := f.protocol.give(ctx, s, f.written)
	if err == nil {
		err = f.probe(ctx, s)
	}
	for _, name := range f.noteGiven(s, err) {
		f.drop(ctx, s, name)
	}
	return err
}

// noteGiven notes that a server has the weights that were written, or failed to take them, and returns the names of
// those that it should drop.
func (f *Fleet) noteGiven(s *server, failed error) (drop []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.lost = failed; failed != nil {
		s.left, s.has = append(s.left, s.has...), nil
		if !errors.As(failed, new(mismatch)) {
			f.warn("%v; the other servers go on", failed)
		}
		return nil
	}
	s.has = append(s.has, f.written.name)
	old := max(len(s.has)-f.protocol.holds(), 0)
	drop = append(slices.DeleteFunc(s.left, func(name string) bool { return name == f.written.name }), s.has[:old]...)
	s.left, s.has = nil, s.has[old:]
	return drop
}
