package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/run"
)

// download brings files of a commit into the cache, with a bar.
func (r repo) download(ctx context.Context, commit string, names []string, out run.Reporter) error {
	var all []file
	total, room := int64(0), freeBytes(r.hub.Cache)
	for _, name := range names {
		f, err := r.head(ctx, commit, name)
		if err != nil {
			return err
		}
		if room -= f.size - r.begun(f); room < 0 {
			return fmt.Errorf("%s: %s says that it has %d MB, for which the cache %s has no room", name, r.hub.shown(),
				megabytes(f.size), r.hub.Cache)
		}
		all, total = append(all, f), total+f.size
	}
	bar := out.Progress("MB of "+r.id.Name, 0, int(megabytes(total)))
	defer bar.Close()
	done := int64(0)
	tick := func(n int64) {
		done += n
		bar.Step(int(megabytes(done)), nil)
	}
	for _, f := range all {
		if err := r.bring(ctx, f, tick); err != nil {
			return err
		}
		if err := r.link(f); err != nil {
			return err
		}
	}
	return nil
}

// begun is how many bytes of a file the cache has.
func (r repo) begun(f file) int64 {
	for _, path := range []string{r.blob(f), r.blob(f) + ".incomplete"} {
		if info, err := os.Stat(path); err == nil {
			return min(info.Size(), f.size)
		}
	}
	return 0
}

// megabytes rounds up.
func megabytes(n int64) int64 { return n/1_000_000 + min(1, n%1_000_000) }

// bring makes a blob of a file, unless it is there. tick hears the bytes that came.
func (r repo) bring(ctx context.Context, f file, tick func(int64)) error {
	blob := r.blob(f)
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return r.diskError(err)
	}
	lock, err := r.lock(ctx, f)
	if err != nil {
		return err
	}
	defer lock.Close()
	if info, err := os.Stat(blob); err == nil && info.Size() == f.size {
		tick(f.size)
		return nil
	}
	if err := r.receive(ctx, f, blob+".incomplete", tick); err != nil {
		return err
	}
	if f.size <= mostText {
		text, err := os.ReadFile(blob + ".incomplete")
		if err == nil {
			err = r.hub.checkToken(text)
		}
		if err != nil {
			os.Remove(blob + ".incomplete")
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := os.Rename(blob+".incomplete", blob); err != nil {
		return r.diskError(err)
	}
	return nil
}

// mostText is the size in bytes up to which a file is searched for the token. It is the bound of a README.md, too.
const mostText = 8 << 20

// lock keeps a blob to one process, as huggingface_hub does. The file stays: whoever waits has it open.
func (r repo) lock(ctx context.Context, f file) (*os.File, error) {
	folder := filepath.Join(r.hub.Cache, ".locks", filepath.Base(r.folder()))
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, r.diskError(err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, f.hash+".lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, r.diskError(err)
	}
	for {
		err := run.Lock(lock)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, run.ErrInUse) {
			lock.Close()
			return nil, r.diskError(err)
		}
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			lock.Close()
			return nil, context.Cause(ctx)
		}
	}
}

// mostLosses is how often a connection may break without a byte in between.
const mostLosses = 5

// errLost says that a connection broke.
var errLost = errors.New("the connection broke")

// receive completes the file at path, which may hold the beginning.
func (r repo) receive(ctx context.Context, f file, path string, tick func(int64)) error {
	to, err := openSink(path, f.size, tick)
	if err != nil {
		return r.diskError(err)
	}
	defer to.file.Close()
	for losses := 0; to.have < f.size; losses++ {
		before := to.have
		err := r.part(ctx, f, to)
		switch {
		case to.broken != nil:
			return r.diskError(to.broken)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, errLost):
			return fmt.Errorf("%s: %w", f.name, err)
		case to.have > before:
			losses = 0
		case losses == mostLosses:
			return fmt.Errorf("%s: the connection breaks at %d of %d bytes: the same command continues", f.name,
				to.have, f.size)
		default:
			pause(ctx, r.hub.client.Backoff(r.hub.client.RetryWaitMin, r.hub.client.RetryWaitMax, losses, nil))
		}
	}
	return r.verify(f, to.file)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// part asks for what is missing and writes what comes of it.
func (r repo) part(ctx context.Context, f file, to *sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	header := http.Header{}
	if to.have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", to.have))
	}
	resp, err := r.send(ctx, http.MethodGet, r.address(f.commit, f.name), header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	from := fmt.Sprintf("bytes %d-", to.have)
	switch partial := resp.StatusCode == http.StatusPartialContent; {
	case partial && !strings.HasPrefix(resp.Header.Get("Content-Range"), from):
		return fmt.Errorf("the server sends %q in the place of %s", resp.Header.Get("Content-Range"), from)
	case !partial && to.have > 0: // it sends the whole file
		if to.broken = to.cut(); to.broken != nil {
			return to.broken
		}
	}
	watch := time.AfterFunc(r.hub.stall, cancel)
	defer watch.Stop()
	to.beat = func() { watch.Reset(r.hub.stall) }
	if _, err := io.Copy(to, io.LimitReader(resp.Body, f.size-to.have)); err != nil || to.have < f.size {
		return errLost
	}
	return nil
}

// sink is a file that is received.
type sink struct {
	file   *os.File
	have   int64       // bytes
	tick   func(int64) // hears how many came, or went
	beat   func()      // is called when bytes come
	broken error       // of the disk
}

// openSink opens a file behind what it has already. More than the whole cannot be its beginning.
func openSink(path string, size int64, tick func(int64)) (*sink, error) {
	opened, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	s := &sink{file: opened, tick: tick}
	if s.have, err = opened.Seek(0, io.SeekEnd); err == nil {
		if s.tick(s.have); s.have > size {
			err = s.cut()
		}
	}
	if err != nil {
		opened.Close()
	}
	return s, err
}

// cut begins the file anew.
func (s *sink) cut() error {
	s.tick(-s.have)
	s.have = 0
	_, err := s.file.Seek(0, io.SeekStart)
	return errors.Join(err, s.file.Truncate(0))
}

func (s *sink) Write(p []byte) (int, error) {
	s.beat()
	n, err := s.file.Write(p)
	s.have += int64(n)
	s.tick(int64(n))
	s.broken = err
	return n, err
}

// verify compares a file with its hash and makes sure that the disk has it. A wrong one is deleted.
func (r repo) verify(f file, got *os.File) error {
	if err := got.Sync(); err != nil {
		return r.diskError(err)
	}
	sum, name := f.hasher()
	if sum == nil {
		return nil
	}
	_, err := got.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(sum, got)
	}
	if err != nil {
		return r.diskError(err)
	}
	if found := fmt.Sprintf("%x", sum.Sum(nil)); found != f.hash {
		os.Remove(got.Name())
		return fmt.Errorf("%s: what came is not what the hub has: its %s begins with %.12s, want %.12s; it was "+
			"deleted, try again", f.name, name, found, f.hash)
	}
	return nil
}

// hasher is the hash that a file's content must have, with its name; nil where the server gives another.
func (f file) hasher() (hash.Hash, string) {
	switch {
	case len(f.hash) == sha256.Size*2:
		return sha256.New(), "SHA-256"
	case len(f.hash) == sha1.Size*2:
		sum := sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", f.size) // as git hashes a file
		return sum, "SHA-1"
	}
	return nil, ""
}
