package backend

import (
	"sync"

	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/gomlx/compute"
)

// Replicas gives an engine for each device of the mesh: what it uploads lies there, and its programs run there, at the
// same time as those of the others. The programs that their caches have under one key are the same and are compiled
// once. An engine without a mesh is its only replica.
func (e *Engine) Replicas() []*Engine {
	if e.Mesh == nil {
		return []*Engine{e}
	}
	all, shared := make([]*Engine, e.Devices()), &sharedPrograms{programs: map[string]*sharedProgram{}}
	for d := range all {
		all[d] = e.Device(d)
		all[d].shared = shared
		if e.memory == 0 { // the devices are shares of the machine's
			all[d].memory = e.Memory() / uint64(len(all))
		}
	}
	return all
}

// sharedPrograms are compiled programs that several engines run, each on its own device.
type sharedPrograms struct {
	mu       sync.Mutex
	programs map[string]*sharedProgram // by key
}

type sharedProgram struct {
	*Program
	users int
}

// compiled is Compile, or the program of the key that another replica has compiled.
func (e *Engine) compiled(key string, build func(g *graph.Graph) []*graph.Node, options ...Option) (*Program, error) {
	s := e.shared
	if s == nil {
		return e.Compile(key, build, options...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.programs[key]
	if p == nil {
		first, err := e.Compile(key, build, options...)
		if err != nil {
			return nil, err
		}
		p = &sharedProgram{Program: first}
		s.programs[key] = p
	}
	p.users++
	return &Program{name: p.name, engine: e, names: p.names, inputs: p.inputs, outputs: p.outputs, donate: p.donate,
		exec: p.exec, leave: func() { s.leave(key, p) }}, nil
}

// leave closes a program that no engine needs any more.
func (s *sharedPrograms) leave(key string, p *sharedProgram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(s.programs, key)
		p.Close()
	}
}

// Spec says how an array is cut over the engine's mesh.
func (e *Engine) Spec(b compute.Buffer) (*distributed.ShardingSpec, error) {
	s, ok := b.(*shards)
	if !ok || e.Mesh == nil {
		return nil, nil
	}
	return distributed.NewShardingSpec(e.Mesh, s.axes...)
}
