//go:build cgo && linux

package backend

// #include <stdlib.h>
// #include <string.h>
// #include "xlatable.h"
import "C"
import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/go-xla/compute/xla"
	"google.golang.org/protobuf/encoding/protowire"
)

// target is a device that is not there. Graphs are built on XLA's plugin for CPUs, since go-xla needs a client; where it
// hands a program to that plugin's compiler, CUDA's gets it instead, with a description of the device in place of a client.
type target struct {
	Device
	table    *C.posttrain_table
	topology unsafe.Pointer
	options  []byte     // of every program: a part of CompileOptionsProto
	plugin   string     // the compiler's file
	into     *diskCache // for runs on such a device; nil: no program is kept

	mu        sync.Mutex
	newest    *Compiled
	err       error
	optimized []byte      // newest, as the compiler left it
	all       []*Compiled // in the order in which they were compiled
}

// openTargets are the targets of this process: a plugin keeps its topologies.
var openTargets = map[string]*target{}

// OpenDevice opens an engine that compiles programs for devices that are not there ([Program.Compiled]). It allocates
// nothing for arrays: they have shapes and no values, and what is read of them is zero.
func OpenDevice(spec string, shard Shard) (e *Engine, err error) {
	defer catchPanic(&err, "open "+spec)
	d, err := ReadDevice(spec)
	if err != nil {
		return nil, err
	}
	plugin := compilerPlugin()
	if plugin == "" {
		return nil, fmt.Errorf("device %q: %s", spec, compilerHowToGet)
	}
	cpu := findPlugin("cpu")
	if cpu == "" {
		return nil, fmt.Errorf("device %q: programs are written with XLA's plugin for CPUs: %s", spec, xlaHowToGet)
	}
	opening.Lock()
	defer opening.Unlock()
	t := openTargets[spec]
	if t == nil {
		err = silently(func() (err error) {
			t, err = newTarget(d, plugin)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("device %q: %s: %w", spec, plugin, err)
		}
		openTargets[spec] = t
	}
	t.mu.Lock()
	t.all, t.into = nil, nil
	t.mu.Unlock()
	b, err := t.builder(cpu, spec)
	if err != nil {
		return nil, fmt.Errorf("device %q: %s: %s", spec, cpu, pluginFault(err))
	}
	e = &Engine{Backend: b, Name: "xla", Detail: d.Name + ", which is not there", memory: uint64(d.Memory), gpu: true, target: t,
		Wants: wantsXLA(plugin)}
	e.owner, e.Wants.Room = e.Backend, d.Memory/roomShare
	if n := d.Devices(); n > 1 {
		e.Mesh, err = distributed.NewDeviceMesh([]int{n}, []string{DataAxis})
		e.failed, e.Shard = &failure{}, shard
		e.Wants.Tokens *= n
	}
	return e, err
}

// silently runs f without the lines that a plugin prints: this one would say that it finds no GPU.
func silently(f func() error) error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	kept, err := syscall.Dup(syscall.Stderr)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(kept) }()
	if err := syscall.Dup3(int(null.Fd()), syscall.Stderr, 0); err != nil {
		return err
	}
	err = f()
	return errors.Join(err, syscall.Dup3(kept, syscall.Stderr, 0))
}

func newTarget(d Device, plugin string) (*target, error) {
	table, err := loadPlugin(plugin)
	if err != nil {
		return nil, err
	}
	if err := textError(C.posttrain_initialize(table)); err != nil {
		return nil, err
	}
	t := &target{Device: d, table: table, options: targetOptions(plugin), plugin: plugin}
	config, topology := C.CString(d.config()), C.CString(d.topology())
	defer C.free(unsafe.Pointer(config))
	defer C.free(unsafe.Pointer(topology))
	err = textError(C.posttrain_topology(table, config, C.strlen(config), topology, C.strlen(topology), &t.topology))
	return t, err
}

// builder opens the plugin for CPUs with as many devices, and the target's compiler in the place of its own.
func (t *target) builder(cpu, spec string) (*xla.Backend, error) {
	table, err := loadPlugin(cpu)
	if err != nil {
		return nil, err
	}
	name := "/cuda/" + spec // go-xla writes programs for CUDA where it is in the name
	if err := register(name, table, &keeper{target: t, diskCache: &diskCache{}}); err != nil {
		return nil, err
	}
	options, err := cutCPU(cpu, t.Devices())
	if err != nil {
		return nil, err
	}
	return xla.NewWithOptions(name+",tf32=false", options)
}

// targetOptions are flags of XLA for each program: they say where CUDA's tools are, and that nothing is tried on a GPU. A
// plugin refuses a flag that it does not know, so that only flags that it has are among them.
func targetOptions(plugin string) (options []byte) {
	add := func(flag string, kind protowire.Number, value []byte) {
		var entry []byte
		entry = protowire.AppendString(protowire.AppendTag(entry, 1, protowire.BytesType), flag)
		entry = protowire.AppendTag(entry, 2, protowire.BytesType)
		entry = protowire.AppendBytes(entry, value)
		options = protowire.AppendTag(options, envOptionOverrides, protowire.BytesType)
		options = protowire.AppendBytes(options, entry)
	}
	if dir := cudaDataDir(plugin); dir != "" {
		add(cudaTools, 1, protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), dir))
	}
	for _, flag := range append(slowFlags, xlaFlag{"xla_gpu_autotune_level", "0"}) {
		if !holds(plugin, flag.name) {
			continue
		}
		kind := protowire.Number(3) // a whole number
		if flag.value == "false" {
			kind = 2
		}
		add(flag.name, kind, protowire.AppendVarint(protowire.AppendTag(nil, kind, protowire.VarintType), 0))
	}
	return options
}

// envOptionOverrides is the number of that field of CompileOptionsProto.
const envOptionOverrides = 7

// compile compiles a program of go-xla's for the target, and keeps what became of it.
func (t *target) compile(args *C.posttrain_compile_args) {
	options := append(unsafe.Slice((*byte)(unsafe.Pointer(args.options)), int(args.options_bytes)), t.options...)
	var out C.posttrain_compiled
	start := time.Now()
	err := textError(C.posttrain_compile_for(t.table, t.topology, args.program,
		(*C.char)(unsafe.Pointer(unsafe.SliceData(options))), C.size_t(len(options)), &out))
	seconds := time.Since(start).Seconds()
	defer C.posttrain_free_compiled(t.table, &out)
	if err != nil {
		t.newest, t.err = nil, err
		return
	}
	t.optimized = C.GoBytes(unsafe.Pointer(out.optimized), C.int(out.bytes))
	t.newest, t.err = newCompiled("", t.optimized, t.Device)
	if t.err == nil {
		c, m := t.newest, out.memory
		c.Seconds, c.Arguments, c.Results = seconds, int(m.arguments), int(m.results)
		c.Aliased, c.Temporary = int(m.aliased), int(m.temporary)
		t.err = t.keep(args, out.executable)
	}
}

// keep puts a program where a run on such a device looks for it.
func (t *target) keep(args *C.posttrain_compile_args, executable unsafe.Pointer) error {
	if t.into == nil {
		return nil
	}
	flags := pluginEnvironment(t.plugin, slowFlags, func(flag string) bool { return holds(t.plugin, flag) })["XLA_FLAGS"]
	var saved C.posttrain_saved
	if err := textError(C.posttrain_serialize(t.table, executable, &saved)); err != nil {
		return fmt.Errorf("%s does not write it: %w", t.plugin, err)
	}
	defer C.posttrain_free_saved(&saved)
	key := programKey(identify(t.plugin, t.table), cmp.Or(flags, os.Getenv("XLA_FLAGS")), []byte(t.Name), args)
	t.into.put(key, bytesAt(saved.text.start, saved.text.bytes))
	if t.into.dir() == "" {
		return errors.New(strings.Join(t.into.unsaid, "; "))
	}
	return nil
}

// KeepPrograms puts the programs that are compiled for a device that is not there into a folder, where a run on such a
// device looks for them if [diskCacheEnv] names the folder there.
func (e *Engine) KeepPrograms(folder string) error {
	if e.target == nil {
		return fmt.Errorf("backend %s: it compiles for a device that is there", e.Name)
	}
	if err := makePrivate(folder); err != nil {
		return err
	}
	e.target.mu.Lock()
	defer e.target.mu.Unlock()
	e.target.into = &diskCache{most: diskCacheBytes, folder: folder}
	return nil
}

// during runs a build of go-xla that hands over one program, and gives what became of it.
func (t *target) during(build func() error) (*Compiled, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newest, t.err = nil, nil
	err := build()
	switch {
	case t.err != nil:
		return nil, t.err
	case t.newest == nil && err != nil:
		return nil, err
	case t.newest == nil:
		return nil, errors.New("go-xla did not compile it")
	}
	t.all = append(t.all, t.newest)
	return t.newest, nil
}

// Compiled lists the programs that were compiled for the engine's device, if it is not there.
func (e *Engine) Compiled() []*Compiled {
	if e.target == nil {
		return nil
	}
	e.target.mu.Lock()
	defer e.target.mu.Unlock()
	return slices.Clone(e.target.all)
}
