package backend

import (
	"slices"
	"sync"

	"github.com/gomlx/gomlx/core/graph"
)

// Cache keeps the programs used last, one a key (a key names the shapes of a batch), and closes those that it drops:
// each onnx program holds an arena of its own, hundreds of megabytes for a training step.
//
// A program got from a cache is good until the next call of Program: it may be the one that is dropped then.
type Cache struct {
	engine *Engine
	live   int

	mu       sync.Mutex
	programs map[string]*Program
	recent   []string // keys, the one used last at the end
}

// NewCache makes a cache of Wants.LiveGraphs programs (at least one).
func (e *Engine) NewCache() *Cache {
	return &Cache{engine: e, live: max(1, e.Wants.LiveGraphs), programs: map[string]*Program{}}
}

// Program gives the program of a key, compiling it with the options where it is not there.
func (c *Cache) Program(key string, build func(g *graph.Graph) []*graph.Node, options ...Option) (*Program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.programs[key]; ok {
		c.touch(key)
		return p, nil
	}
	for len(c.recent) >= c.live { // before compiling, so that two arenas never stand in for one
		c.drop(c.recent[0])
	}
	p, err := c.engine.Compile(key, build, options...)
	if err != nil {
		return nil, err
	}
	c.programs[key] = p
	c.recent = append(c.recent, key)
	return p, nil
}

func (c *Cache) touch(key string) {
	i := slices.Index(c.recent, key)
	c.recent = append(slices.Delete(c.recent, i, i+1), key)
}

func (c *Cache) drop(key string) {
	c.programs[key].Close()
	delete(c.programs, key)
	c.recent = slices.DeleteFunc(c.recent, func(k string) bool { return k == key })
}

// Len is the number of programs held.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.recent)
}

// Close closes every program held.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.recent) > 0 {
		c.drop(c.recent[0])
	}
}
