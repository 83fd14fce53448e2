// Package mujoco steps models of MuJoCo, a physics engine. Its C library is opened at run time, when a model is first
// loaded; that needs no C compiler.
package mujoco

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/ebitengine/purego"

	"github.com/posttrain/posttrain/internal/files"
)

// Version is the one that this package takes: bits of states and results differ between versions.
const Version = "4.0.0"

const (
	number     = 4000000 // what mj_version says
	libraryEnv = "MUJOCO_LIBRARY_PATH"
	name       = "libmujoco.so." + Version
	howToGet   = "run scripts/install-mujoco.sh, or set " + libraryEnv + " to a " + name
)

// Parts of a state, mjtState in MuJoCo's headers.
const (
	position int32 = 1 << 1
	velocity int32 = 1 << 2
	control  int32 = 1 << 6
)

// library has MuJoCo's functions. Models and data are pointers to C's memory.
type library struct {
	version                 func() int32
	loadXML                 func(path string, files uintptr, message *byte, size int32) uintptr
	makeData                func(model uintptr) uintptr
	deleteModel, deleteData func(uintptr)
	reset, forward, step    func(model, data uintptr)
	forces                  func(model, data uintptr)
	size                    func(model uintptr, parts int32) int32
	get, set                func(model, data uintptr, state *float64, parts int32)
}

// Find gives the path of the library: the one that the environment names, or the one that the install script got.
func Find() (string, error) {
	if path := os.Getenv(libraryEnv); path != "" {
		return files.Library(path, libraryEnv)
	}
	dir := files.DataDir()
	if dir == "" {
		return "", errors.New("MuJoCo: no folder to search: neither XDG_DATA_HOME nor HOME is an absolute path")
	}
	path := filepath.Join(dir, "mujoco", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("MuJoCo: no file %s; %s", path, howToGet)
	}
	return path, nil
}

// opened are the libraries by path. MuJoCo's parser is used by one model at a time.
var (
	opened = map[string]*library{}
	mutex  sync.Mutex
)

// open opens a library, once. The caller holds the mutex.
func open(path string) (*library, error) {
	if l := opened[path]; l != nil {
		return l, nil
	}
	handle, err := openLibrary(path)
	if err != nil {
		return nil, fmt.Errorf("MuJoCo: cannot open %s: %s; %s", path, strings.TrimPrefix(err.Error(), path+": "),
			howToGet)
	}
	l := new(library)
	for symbol, function := range map[string]any{"mj_version": &l.version, "mj_loadXML": &l.loadXML,
		"mj_makeData": &l.makeData, "mj_deleteModel": &l.deleteModel, "mj_deleteData": &l.deleteData,
		"mj_resetData": &l.reset, "mj_forward": &l.forward, "mj_step": &l.step, "mj_rnePostConstraint": &l.forces,
		"mj_stateSize": &l.size, "mj_getState": &l.get, "mj_setState": &l.set} {
		address, err := lookUp(handle, symbol)
		if err != nil {
			return nil, fmt.Errorf("MuJoCo: %s has no function %s: want MuJoCo %s; %s", path, symbol, Version,
				howToGet)
		}
		purego.RegisterFunc(function, address)
	}
	if got := int(l.version()); got != number {
		return nil, fmt.Errorf("MuJoCo: %s is version %s: want %s; %s", path, dotted(got), Version, howToGet)
	}
	silence(handle)
	opened[path] = l
	return l, nil
}

// dotted is a version as people write it: mj_version said 334 for 3.3.4, and says 4000000 for 4.0.0.
func dotted(v int) string {
	base := 1000
	if v < 1000 {
		base = 10
	}
	return fmt.Sprintf("%d.%d.%d", v/base/base, v/base%base, v%base)
}

// Simulation is a model with its state. It is not safe for concurrent use.
type Simulation struct {
	Positions, Velocities, Controls int // numbers of each

	library     *library
	model, data uintptr
}

// Load reads a model from an XML file in the library's folder.
func Load(file string) (*Simulation, error) {
	mutex.Lock()
	defer mutex.Unlock()
	path, err := Find()
	if err != nil {
		return nil, err
	}
	l, err := open(path)
	if err != nil {
		return nil, err
	}
	file = filepath.Join(filepath.Dir(path), file)
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("MuJoCo: no file %s: the models lie beside the library; run scripts/install-mujoco.sh",
			file)
	}
	return l.load(file)
}

func (l *library) load(file string) (*Simulation, error) {
	message := make([]byte, 1024)
	model := l.loadXML(file, 0, &message[0], int32(len(message)))
	if model == 0 {
		text, _, _ := strings.Cut(string(message), "\x00")
		return nil, fmt.Errorf("MuJoCo: %s: %s", file, strings.Join(strings.Fields(text), " "))
	}
	s := &Simulation{library: l, model: model, data: l.makeData(model), Positions: int(l.size(model, position)),
		Velocities: int(l.size(model, velocity)), Controls: int(l.size(model, control))}
	if s.data == 0 {
		l.deleteModel(model)
		return nil, fmt.Errorf("MuJoCo: %s: no memory for its state", file)
	}
	runtime.AddCleanup(s, func(c [2]uintptr) { l.deleteData(c[0]); l.deleteModel(c[1]) }, [2]uintptr{s.data, s.model})
	return s, nil
}

// Begin makes the state positions, then velocities, all else being as the model has it. Without a state it is the
// model's own start.
func (s *Simulation) Begin(state []float64) {
	s.library.reset(s.model, s.data)
	if state != nil {
		s.library.set(s.model, s.data, &state[0], position|velocity)
		s.library.forward(s.model, s.data)
	}
	runtime.KeepAlive(s)
}

// Step makes n time steps of the model under the same controls. Where the arithmetic diverges, the model begins again
// at its start: MuJoCo does so, and says nothing.
func (s *Simulation) Step(controls []float64, n int) {
	s.library.set(s.model, s.data, &controls[0], control)
	for range n {
		s.library.step(s.model, s.data)
	}
	runtime.KeepAlive(s)
}

// State writes positions, then velocities.
func (s *Simulation) State(state []float64) {
	s.library.get(s.model, s.data, &state[0], position|velocity)
	runtime.KeepAlive(s)
}
