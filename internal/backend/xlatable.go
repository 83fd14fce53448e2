//go:build cgo && linux

package backend

// #include <stdlib.h>
// #include "xlatable.h"
import "C"
import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/gomlx/go-xla/pjrt"
)

// keeper keeps the compiled programs of a plugin. go-xla can compile only. So it gets a copy of the plugin's table of
// functions whose compiling function is posttrainCompile.
type keeper struct {
	slot      C.int
	identity  []byte     // of the plugin and the processor
	cuda      bool       // it compiles for GPUs
	diskCache *diskCache // of the engine that was opened last
	target    *target    // for which it compiles instead; nil: none
}

// keepers keep the programs of all plugins of this process, by slot; the first has the path paths[0].
var keepers struct {
	mu    sync.Mutex
	all   []*keeper
	paths []string
}

// keepPrograms lets programs of a plugin go to a cache on disk. It must come before go-xla opens the plugin.
func keepPrograms(path string, table *C.posttrain_table, s *diskCache) {
	if err := register(path, table, &keeper{identity: identify(path, table), cuda: pjrt.IsCUDAName(path), diskCache: s}); err != nil {
		s.stop(err)
	}
}

// register gives go-xla a copy of a plugin's table that compiles by the keeper. Its path is its name for go-xla, which
// looks for cpu and cuda in it. A later keeper takes the place of an earlier one.
func register(path string, table *C.posttrain_table, k *keeper) error {
	keepers.mu.Lock()
	defer keepers.mu.Unlock()
	if i := slices.Index(keepers.paths, path); i >= 0 {
		k.slot, keepers.all[i] = keepers.all[i].slot, k
		return nil
	}
	slot := len(keepers.all)
	if slot == C.POSTTRAIN_TABLES {
		return fmt.Errorf("%d plugins are open already", slot)
	}
	copied := C.posttrain_wrap(table, C.int(slot))
	if copied == nil {
		return errors.New("the plugin cannot write compiled programs")
	}
	if err := pjrt.RegisterPreloadedPlugin(path, uintptr(unsafe.Pointer(copied))); err != nil {
		return err // go-xla will give the error again
	}
	k.slot, keepers.paths, keepers.all = C.int(slot), append(keepers.paths, path), append(keepers.all, k)
	return nil
}

// identify names what compiles: a plugin's file and version, and the processors. A program for GPUs has nothing of the
// machine on which it was compiled, which may be another one than where it runs: of its plugin the content counts.
func identify(path string, table *C.posttrain_table) []byte {
	text := fmt.Appendf(nil, "PJRT %d.%d\n", table.version.major, table.version.minor)
	if pjrt.IsCUDAName(path) {
		return append(text, digest(path)...)
	}
	text = fmt.Appendf(text, "%d processors\n", runtime.NumCPU())
	if info, err := os.Stat(path); err == nil {
		text = fmt.Appendf(text, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
	}
	return append(text, processor()...)
}

// digest tells plugins apart by their size and their first megabyte, which has the linker's hash of all.
func digest(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return []byte(path)
	}
	defer f.Close()
	h := sha256.New()
	_, _ = io.CopyN(h, f, 1<<20)
	size, _ := f.Seek(0, io.SeekEnd)
	return fmt.Appendf(h.Sum(nil), " %d\n", size)
}

// compilerEnvironment lists the variables that the compiler reads, with these flags of XLA. Where CUDA's tools lie changes
// no program.
func compilerEnvironment(xlaFlags string) []byte {
	tools := func(flag string) bool { return strings.HasPrefix(flag, "--"+cudaTools+"=") }
	all := []string{"XLA_FLAGS=" + strings.Join(slices.DeleteFunc(strings.Fields(xlaFlags), tools), " ")}
	for _, v := range os.Environ() {
		for _, prefix := range []string{"XLA_", "TF_", "ONEDNN_", "DNNL_", "NVIDIA_", "NPROC="} {
			if strings.HasPrefix(v, prefix) && !strings.HasPrefix(v, "XLA_FLAGS=") {
				all = append(all, v)
			}
		}
	}
	slices.Sort(all)
	text := strings.Join(all, "\n")
	if xlaFlags != "" && !strings.HasPrefix(xlaFlags, "-") { // a file of flags
		flags, _ := os.ReadFile(xlaFlags)
		text += "\n" + string(flags)
	}
	return []byte(text)
}

// posttrainCompile takes a program from the cache on disk, or compiles it and puts it there. Its result is PJRT's error.
//
//export posttrainCompile
func posttrainCompile(slot C.int, arguments unsafe.Pointer) unsafe.Pointer {
	keepers.mu.Lock()
	k := *keepers.all[slot]
	keepers.mu.Unlock()
	args := (*C.posttrain_compile_args)(arguments)
	if k.target != nil {
		k.target.compile(args)
		args.program.bytes = 0 // which the plugin refuses: the error ends go-xla's work
		return C.posttrain_compile(slot, args)
	}
	if k.diskCache.dir() == "" {
		return C.posttrain_compile(slot, args)
	}
	key := k.key(args)
	if program := k.diskCache.take(key); program != nil {
		err := k.load(program, args)
		if err == nil {
			return nil
		}
		k.diskCache.drop(key, err)
	}
	if failed := C.posttrain_compile(slot, args); failed != nil {
		return failed
	}
	k.save(key, args)
	return nil
}

// key is a program's: of all that it depends on.
func (k *keeper) key(args *C.posttrain_compile_args) string {
	var version, kind C.posttrain_text
	C.posttrain_describe(k.slot, args.client, &version, &kind)
	device := bytesAt(kind.start, kind.bytes)
	if !k.cuda {
		device = append(slices.Clone(bytesAt(version.start, version.bytes)), device...)
	}
	return programKey(k.identity, os.Getenv("XLA_FLAGS"), device, args)
}

func programKey(identity []byte, xlaFlags string, device []byte, args *C.posttrain_compile_args) string {
	return keyOf(identity, compilerEnvironment(xlaFlags), device,
		bytesAt(args.program.format, args.program.format_bytes), bytesAt(args.program.code, args.program.bytes),
		bytesAt(args.options, args.options_bytes))
}

// bytesAt are C's bytes, which are not copied.
func bytesAt(start *C.char, n C.size_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(start)), int(n))
}

func (k *keeper) load(program []byte, args *C.posttrain_compile_args) error {
	start := unsafe.Pointer(unsafe.SliceData(program))
	return textError(C.posttrain_load(k.slot, args.client, start, C.size_t(len(program)), &args.executable))
}

func (k *keeper) save(key string, args *C.posttrain_compile_args) {
	var saved C.posttrain_saved
	if err := textError(C.posttrain_save(k.slot, args.executable, &saved)); err != nil {
		k.diskCache.stop(err)
		return
	}
	defer C.posttrain_free_saved(&saved)
	k.diskCache.put(key, bytesAt(saved.text.start, saved.text.bytes))
}

// textError is an error of a text that C has allocated.
func textError(text *C.char) error {
	if text == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(text))
	return errors.New(C.GoString(text))
}
