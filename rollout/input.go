package rollout

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/backend"
)

// input is an input of a program that the host writes: floats or ints.
type input struct {
	dims   []int
	floats []float32
	ints   []int32
	live   compute.Buffer // whose memory floats is, where the engine shares it; nil: it is copied for every run
}

// newFloats makes an input of floats, all zero.
func newFloats(e *backend.Engine, dims ...int) (*input, error) {
	in := &input{dims: dims}
	if !e.Wants.SharedMemory {
		in.floats = make([]float32, size(dims))
		return in, nil
	}
	var err error
	in.live, in.floats, err = e.SharedFloat32(dims...)
	return in, err
}

func newInts(dims ...int) *input { return &input{dims: dims, ints: make([]int32, size(dims))} }

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// buffer gives the input to a program. The caller finalises it, unless it is live.
func (in *input) buffer(e *backend.Engine) (compute.Buffer, error) {
	switch {
	case in.live != nil:
		return in.live, nil
	case in.ints != nil:
		return e.Int32(slices.Clone(in.ints), in.dims...)
	}
	return e.Float32(slices.Clone(in.floats), in.dims...)
}

// inputSet makes inputs one after the other, and remembers the first error.
type inputSet struct {
	engine *backend.Engine
	all    []*input
	err    error
}

// close frees what the inputs share with the engine.
func (s *inputSet) close() {
	for _, in := range s.all {
		backend.FinalizeAll(in.live)
	}
}

func (s *inputSet) fail(err error) {
	if err != nil && s.err == nil {
		s.err = err
	}
}

func (s *inputSet) floats(dims ...int) []float32 {
	in, err := newFloats(s.engine, dims...)
	s.fail(err)
	s.all = append(s.all, in)
	return in.floats
}

func (s *inputSet) ints(dims ...int) []int32 {
	in := newInts(dims...)
	s.all = append(s.all, in)
	return in.ints
}

// embedding is the input that says which tokens are read: their ids, or on engines that want it their rows of the
// embedding.
type embedding struct {
	tokens []int32   // [n]
	rows   []float32 // [n, H]
	table  []float32 // [V, H]
	width  int       // H
}

// embedding makes the input for tokens of some dimensions; rows are flat, [n, H].
func (s *inputSet) embedding(width int, table compute.Buffer, dims ...int) embedding {
	if !s.engine.Wants.HostRows {
		return embedding{tokens: s.ints(dims...)}
	}
	from, err := backend.Floats(table)
	s.fail(err)
	return embedding{rows: s.floats(size(dims), width), table: from, width: width}
}

// put sets token number i.
func (e embedding) put(i int, token int32) {
	if e.tokens != nil {
		e.tokens[i] = token
		return
	}
	copy(e.rows[i*e.width:(i+1)*e.width], e.table[int(token)*e.width:])
}
