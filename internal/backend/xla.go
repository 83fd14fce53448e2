//go:build cgo && linux

package backend

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/go-xla/pjrt"
	"k8s.io/klog/v2"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// openXLA opens a PJRT plugin: the first that is found (""), one by name (cpu, cuda), or one by path, each with
// go-xla's options after a comma (tf32=true, preallocate=true, memory_fraction=0.9, visible_devices=0;1). A CPU is cut
// into as many devices.
func openXLA(arg string, devices int) (*Engine, error) {
	xla.EnableAutoInstall(false) // never download
	config, plugin, err := xlaConfig(arg)
	if err != nil {
		return nil, fmt.Errorf("backend xla: %w: %s", err, xlaHowToGet)
	}
	cuda := pjrt.IsCUDAName(plugin)
	tf32 := cuda && strings.Contains(config, ",tf32=true")
	if cuda && !strings.Contains(config, ",tf32=") {
		config += ",tf32=false" // as PyTorch does; go-xla would round the factors
	}
	var flags []xlaFlag
	switch {
	case cuda:
		flags = slowFlags
	case devices > 1:
		flags = []xlaFlag{patience}
	}
	has := func(flag string) bool { return holds(plugin, flag) }
	for key, value := range pluginEnvironment(plugin, flags, has) {
		if err := os.Setenv(key, value); err != nil {
			return nil, fmt.Errorf("backend xla: set %s: %w", key, err)
		}
	}
	kept, err := openDiskCache()
	if err != nil {
		return nil, fmt.Errorf("backend xla: %w", err)
	}
	opening.Lock()
	defer opening.Unlock()
	table, err := loadPlugin(plugin)
	if err != nil {
		return nil, fmt.Errorf("backend xla: %s: %w: %s", plugin, err, xlaHowToGet)
	}
	klog.SetLogger(logr.Discard()) // the error has the same text
	defer klog.ClearLogger()
	keepPrograms(plugin, table, kept)
	options, err := cutCPU(plugin, devices)
	if err != nil {
		return nil, err
	}
	b, err := xla.NewWithOptions(config, options)
	if err != nil {
		return nil, fmt.Errorf("backend xla: open %q: %s", config, pluginFault(err))
	}
	if err := checkDevices(int(b.NumDevices()), devices); err != nil {
		b.Finalize()
		return nil, fmt.Errorf("backend xla: %s: %w", plugin, err)
	}
	wants := wantsXLA(plugin)
	memory := gpuMemory(plugin)
	wants.TF32, wants.Room = tf32, int(memory/roomShare)
	return &Engine{Backend: b, owner: b, Name: "xla", Detail: describePlugin(b, plugin), memory: memory,
		rows: !cuda, gpu: cuda, Wants: wants, listen: kept.listen}, nil
}

// roomShare is the part of a device's memory that the values of a moment may take.
const roomShare = 128

// holds says whether a file holds a text. The plugin of CUDA has 400 MB, which loading it reads anyway.
func holds(path, text string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	all, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Munmap(all) }() // which has nothing to write
	return bytes.Contains(all, []byte(text))
}

// cutCPU gives the option that cuts a CPU into devices.
func cutCPU(plugin string, devices int) (pjrt.NamedValuesMap, error) {
	if name := pluginName(plugin); devices == 1 || name != "cpu" && name != "amx" {
		return nil, nil
	}
	if devices > mostVirtual {
		return nil, fmt.Errorf("backend xla: %s: %w", plugin, checkDevices(mostVirtual, devices))
	}
	return pjrt.NamedValuesMap{"cpu_device_count": int64(devices)}, nil
}

// opening guards go-xla's list of plugins.
var opening sync.Mutex

// wantsXLA asks for batches that fill the device. More tokens would cost memory alone. A CPU is full early: parts of 512
// and 2,048 tokens of a model of 135M parameters take the same time for a token, and the larger ones 12 instead of 6 GB.
// CUDA's numbers are estimates.
func wantsXLA(plugin string) Wants {
	w := Wants{BFloat16: true, Tokens: 1024, Overhead: 64, Compile: 1e10, Shapes: 8, LiveGraphs: 32,
		Widens: pluginName(plugin) == "cpu"}
	if pjrt.IsCUDAName(plugin) {
		w.Tokens, w.Overhead, w.Compile = 8192, 512, 1e13
	}
	return w
}

// gpuMemory is the memory of the first GPU, in bytes, or 0 for a plugin without one. go-xla cannot ask the plugin, so
// that NVIDIA's tool is asked; without it, 16 GB are assumed. A chip that is known has the memory of its facts, so that a
// run has the shapes for which [OpenDevice] compiles.
func gpuMemory(plugin string) uint64 {
	if !pjrt.IsCUDAName(plugin) {
		return 0
	}
	out, err := exec.Command("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return 16e9
	}
	first, _, _ := strings.Cut(string(out), "\n")
	name, memory, _ := strings.Cut(first, ",")
	mib, err := strconv.ParseUint(strings.TrimSpace(memory), 10, 64)
	if err != nil {
		return 16e9
	}
	for _, known := range Chips() {
		chip, err := readChip(known)
		if err == nil && chip.Name == name && math.Abs(float64(mib<<20)/float64(chip.Memory)-1) < 0.05 {
			return uint64(chip.Memory)
		}
	}
	return mib << 20
}

// pluginFault gives go-xla's reason in one line, without the words before it that repeat the file's name.
func pluginFault(err error) string {
	text := fault.OneLine(err.Error())
	if _, rest, ok := strings.Cut(text, "failed to load PJRT plugin for name "); ok {
		if _, reason, ok := strings.Cut(rest, ": "); ok {
			return reason
		}
	}
	return text
}

// describePlugin gives version, devices and file of an open plugin.
func describePlugin(b *xla.Backend, path string) string {
	plugin, err := pjrt.GetPlugin(b.PluginName()) // which is loaded, so that this cannot fail
	if err != nil {
		return b.Description()
	}
	major, minor := plugin.Version()
	return fmt.Sprintf("PJRT %d.%d, devices: %d, %s", major, minor, b.NumDevices(), path)
}

// statusesXLA has a status for each plugin that is found, or one that says where none is.
func statusesXLA() (all []Status) {
	for _, path := range findPlugins() {
		spec := "xla:" + path
		if name := pluginName(path); findPlugin(name) == path {
			spec = "xla:" + name
		}
		all = append(all, Status{Name: spec, Present: true, Untried: true, Detail: "PJRT, " + path})
	}
	if len(all) == 0 {
		return []Status{{Name: "xla", Detail: noPluginError("").Error(), HowToGet: xlaHowToGet}}
	}
	return all
}
