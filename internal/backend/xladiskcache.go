//go:build cgo && linux

package backend

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
)

const (
	diskCacheEnv   = "POSTTRAIN_XLA_CACHE" // a folder, or off
	diskCacheBytes = 1 << 30               // on disk; the programs of a run take a few megabytes each at most

	programSuffix = ".program"
	newPrefix     = ".new-"
	programMagic  = "a compiled program of posttrain, version 1\n"
)

// diskCache keeps compiled programs in a folder between runs. What goes wrong costs time alone: it is said, and the
// program is compiled.
type diskCache struct {
	most int64 // bytes of all programs

	mu     sync.Mutex
	folder string            // "": nothing is kept
	notice func(line string) // nil: nobody listens yet
	unsaid []string
}

// openDiskCache opens the folder that the environment names, or one in the user's cache. Only a bad name is an error.
func openDiskCache() (*diskCache, error) {
	s, folder := &diskCache{most: diskCacheBytes}, os.Getenv(diskCacheEnv)
	if folder == "off" {
		return s, nil
	}
	if folder != "" && !filepath.IsAbs(folder) {
		return nil, fmt.Errorf("%s=%s: want the absolute path of a folder, or off", diskCacheEnv, folder)
	}
	if folder == "" {
		cache, err := os.UserCacheDir()
		if err != nil || !filepath.IsAbs(cache) {
			s.stop(errors.New("neither XDG_CACHE_HOME nor HOME is an absolute path"))
			return s, nil
		}
		folder = filepath.Join(cache, "posttrain", "xla")
	}
	if err := makePrivate(folder); err != nil {
		s.stop(err)
		return s, nil
	}
	s.folder = folder
	s.sweep(folder)
	return s, nil
}

// makePrivate makes a folder, or checks one, that nobody else may write: its files are machine code that will run.
func makePrivate(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others may write %s: want a folder of this user alone", folder)
	}
	return nil
}

// stop keeps no more programs and says why.
func (s *diskCache) stop(reason error) {
	s.mu.Lock()
	s.folder = ""
	s.mu.Unlock()
	s.say("compiled programs are not kept for the next run: %v", reason)
}

// dir is the folder, or "".
func (s *diskCache) dir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.folder
}

func (s *diskCache) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fault.OneLine(fmt.Sprintf(format, args...))
	if s.notice == nil {
		s.unsaid = append(s.unsaid, line)
		return
	}
	s.notice(line)
}

// listen sends the notices to a function, earlier ones too.
func (s *diskCache) listen(notice func(line string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notice = notice
	for _, line := range s.unsaid {
		notice(line)
	}
	s.unsaid = nil
}

// keyOf is a hash of all that a compiled program depends on.
func keyOf(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d\n", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// seal is the head of a file: its program's key, and a hash of the program.
func seal(key string, program []byte) []byte {
	return fmt.Appendf(nil, "%s%s\n%x\n", programMagic, key, sha256.Sum256(program))
}

// take gives a program, or nil if it is not there, or its file cannot be used.
func (s *diskCache) take(key string) []byte {
	folder := s.dir()
	if folder == "" {
		return nil
	}
	text, err := files.Read(os.DirFS(folder), key+programSuffix, s.most)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	head := len(seal(key, nil))
	if err == nil && (len(text) < head || !bytes.Equal(text[:head], seal(key, text[head:]))) {
		err = errors.New("it is damaged, or another program's")
	}
	if err != nil {
		s.drop(key, err)
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Join(folder, key+programSuffix), now, now) // sweep removes the oldest
	return text[head:]
}

// drop removes a file that cannot be used.
func (s *diskCache) drop(key string, reason error) {
	path := filepath.Join(s.dir(), key+programSuffix)
	_ = os.Remove(path)
	s.say("compiled program %s: %v: it is compiled again", path, reason)
}

// put keeps a program. Its file appears as a whole; the hash covers what a power cut may leave of it.
func (s *diskCache) put(key string, program []byte) {
	folder := s.dir()
	if folder == "" {
		return
	}
	if err := writeWhole(folder, key+programSuffix, seal(key, program), program); err != nil {
		s.stop(err)
		return
	}
	s.sweep(folder)
}

func writeWhole(folder, name string, parts ...[]byte) error {
	f, err := os.CreateTemp(folder, newPrefix)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err == nil {
			_, err = f.Write(part)
		}
	}
	if err = cmp.Or(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(folder, name))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// sweep removes what killed processes have left, and the programs used longest ago until the others fit.
func (s *diskCache) sweep(folder string) {
	entries, _ := os.ReadDir(folder)
	var programs []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular():
		case strings.HasSuffix(e.Name(), programSuffix):
			programs = append(programs, info)
		case strings.HasPrefix(e.Name(), newPrefix) && time.Since(info.ModTime()) > time.Hour:
			_ = os.Remove(filepath.Join(folder, e.Name()))
		}
	}
	slices.SortFunc(programs, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	total := int64(0)
	for _, info := range programs {
		if total += info.Size(); total > s.most {
			_ = os.Remove(filepath.Join(folder, info.Name()))
		}
	}
}
