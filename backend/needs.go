package backend

import (
	"cmp"
	"slices"
)

// This file says what engines take for their programs beside the inputs. The factors were fitted to the peaks of runs
// on this machine's engines; docs/plan.md has these runs, and others that the factors did not see.

// Use is a program of a run.
type Use struct {
	Sketch
	Runs float64
}

// Needs are bytes that an engine takes beside a program's inputs.
type Needs struct {
	Programs int // values of programs, and what they keep between runs
	Stays    int // of Programs, what is not given back between two steps
	Engine   int // its compiler and code, and memory that it has not given back yet
}

// Needs says what the programs of a run take on this engine, where state has the bytes of weights, moments, gradients
// and a reference, and gradients are those among them.
func (e *Engine) Needs(state, gradients int, uses []Use) (n Needs) {
	switch {
	case e.Wants.HoldsMemory: // gradients are outputs of programs, in their memory
		n.Programs = max(0, keptByAll(uses, e.Wants.LiveGraphs)-gradients)
		n.Stays = n.Programs
	case e.Wants.SharedMemory:
		n.Programs = largest(uses, func(u Use) int { return u.Alive })
		n.Engine = goFloor + state + n.Programs // the collector lets the heap double
	default:
		n.Programs = largest(uses, func(u Use) int { return u.Fused })
		n.Engine = xlaFloor + xlaNode*largest(uses, func(u Use) int { return u.Nodes })
	}
	return n
}

const (
	goFloor  = 50e6
	xlaFloor = 240e6
	xlaNode  = 100e3 // bytes of a compiled operation
	// of the bytes alive: in the memory that the first run of a program asks for piece by piece, and with the block that
	// later runs have beside it
	onnxOnce, onnxAgain = 1.1, 2.42
	onnxOutputs         = 0.68 // of the outputs of the first runs, which later ones do not use again
	onnxProgram         = 31e6 // of each program, whatever its size
)

// keptByAll is what the largest programs keep, as many as the cache has room for.
func keptByAll(uses []Use, most int) (sum int) {
	kept := make([]int, len(uses))
	for i, u := range uses {
		if kept[i] = int(onnxProgram + onnxOnce*float64(u.Alive)); u.Runs > 1 {
			kept[i] = int(onnxProgram + onnxAgain*float64(u.Alive) + onnxOutputs*float64(u.Outputs))
		}
	}
	slices.SortFunc(kept, func(a, b int) int { return cmp.Compare(b, a) })
	for _, n := range kept[:min(most, len(kept))] {
		sum += n
	}
	return sum
}

func largest(uses []Use, of func(Use) int) (most int) {
	for _, u := range uses {
		most = max(most, of(u))
	}
	return most
}
