// Package hlo reads programs as XLA's compilers for GPUs leave them (HloModuleProto), and says what their kernels do: how
// often each runs, the operations of its products, and the bytes that it reads and writes.
//
// Glossary:
//   - instruction: an operation with its shape and operands;
//   - computation: instructions with parameters and a root, such as the entry, the body of a loop, or what a fusion does;
//   - kernel: an instruction that the device is given as one piece of work: a fusion, a call of a library, a copy;
//   - trips: how often the body of a loop runs.
package hlo

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Module is an optimised program.
type Module struct {
	entry        int64
	computations map[int64]*computation
}

type computation struct {
	id, root     int64
	instructions []*instruction
	byID         map[int64]*instruction
	checked      bool
}

type instruction struct {
	name, opcode, target string
	id                   int64
	shape                shape
	operands, called     []int64
	contracted           []int64 // axes of the left side that a product sums over
	config               []byte  // JSON
}

// shape is of an array, or of a tuple of shapes.
type shape struct {
	element int64 // PrimitiveType
	dims    []int64
	parts   []shape
}

// The element types of products.
const (
	typeF16  = 10
	typeF32  = 11
	typeF64  = 12
	typeBF16 = 16
)

// bits of an element by PrimitiveType; others have none.
var bits = map[int64]int64{1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, typeF16: 16, typeF32: 32, typeF64: 64,
	typeBF16: 16, 19: 8, 20: 8, 21: 4, 22: 4, 23: 8, 24: 8, 25: 8, 28: 8, 29: 8}

// elements is the number of elements of an array.
func (s shape) elements() float64 {
	n := 1.0
	for _, d := range s.dims {
		n *= float64(d)
	}
	return n
}

// bytes of an array, or of all arrays of a tuple.
func (s shape) bytes() float64 {
	sum := 0.0
	for _, p := range s.parts {
		sum += p.bytes()
	}
	if n := bits[s.element]; n > 0 {
		sum += s.elements() * float64(n) / 8
	}
	return sum
}

// Read reads a serialised HloModuleProto, or one in an HloModuleProtoWithConfig, which is how a plugin gives it.
func Read(text []byte) (*Module, error) {
	m := &Module{computations: map[int64]*computation{}}
	err := fields(text, func(n protowire.Number, x value) error {
		if n == 1 && len(x.bytes) > 0 {
			if inner, err := Read(x.bytes); err == nil && len(inner.computations) > 0 {
				*m = *inner
				return nil
			}
		}
		switch n {
		case 3:
			c, err := readComputation(x.bytes)
			m.computations[c.id] = c
			return err
		case 6:
			m.entry = x.number
		}
		return nil
	})
	switch {
	case err != nil:
	case m.computations[m.entry] == nil:
		err = errors.New("hlo: the program has no entry")
	default:
		err = m.check(m.computations[m.entry], map[int64]bool{})
	}
	return m, err
}

// check wants what a computation, and those that it calls, refers to: operands ahead of their readers, and computations
// that are not on the way to it.
func (m *Module) check(c *computation, within map[int64]bool) error {
	if c.checked {
		return nil
	}
	within[c.id] = true
	defer delete(within, c.id)
	before := map[int64]bool{}
	for _, i := range c.instructions {
		for _, o := range i.operands {
			if !before[o] {
				return fmt.Errorf("hlo: %s has an operand that does not come before it", i.name)
			}
		}
		before[i.id] = true
		if len(i.operands) < leastOperands[i.opcode] {
			return fmt.Errorf("hlo: %s has %d operands, want %d or more", i.name, len(i.operands), leastOperands[i.opcode])
		}
		for _, id := range i.called {
			called := m.computations[id]
			if called == nil || within[id] {
				return fmt.Errorf("hlo: %s calls what does not exist, or itself", i.name)
			}
			if err := m.check(called, within); err != nil {
				return err
			}
		}
	}
	c.checked = true
	return nil
}

// leastOperands of the operations whose operands are looked at one by one.
var leastOperands = map[string]int{"dot": 2, "dynamic-update-slice": 2, "dynamic-slice": 1, "slice": 1, "gather": 1, "bitcast": 1}

func readComputation(text []byte) (*computation, error) {
	c := &computation{byID: map[int64]*instruction{}}
	return c, fields(text, func(n protowire.Number, x value) error {
		switch n {
		case 2:
			i, err := readInstruction(x.bytes)
			c.instructions, c.byID[i.id] = append(c.instructions, i), i
			return err
		case 5:
			c.id = x.number
		case 6:
			c.root = x.number
		}
		return nil
	})
}

func readInstruction(text []byte) (*instruction, error) {
	i := &instruction{}
	return i, fields(text, func(n protowire.Number, x value) (err error) {
		switch n {
		case 1:
			i.name = string(x.bytes)
		case 2:
			i.opcode = string(x.bytes)
		case 3:
			i.shape, err = readShape(x.bytes)
		case 28:
			i.target = string(x.bytes)
		case 30:
			err = fields(x.bytes, func(n protowire.Number, x value) error {
				if n == 1 {
					i.contracted = x.numbers(i.contracted)
				}
				return nil
			})
		case 35:
			i.id = x.number
		case 36:
			i.operands = x.numbers(i.operands)
		case 38:
			i.called = x.numbers(i.called)
		case 43:
			i.config = x.bytes
		case 99:
			err = fields(x.bytes, func(n protowire.Number, x value) error {
				if n == 1 {
					i.config = x.bytes
				}
				return nil
			})
		}
		return err
	})
}

func readShape(text []byte) (s shape, err error) {
	return s, fields(text, func(n protowire.Number, x value) error {
		switch n {
		case 2:
			s.element = x.number
		case 3:
			s.dims = x.numbers(s.dims)
		case 4:
			part, err := readShape(x.bytes)
			s.parts = append(s.parts, part)
			return err
		}
		return nil
	})
}

// value is a field's: a number, or bytes.
type value struct {
	number int64
	bytes  []byte
}

// numbers appends a repeated field of numbers, which may be packed.
func (x value) numbers(to []int64) []int64 {
	if x.bytes == nil {
		return append(to, x.number)
	}
	for rest := x.bytes; len(rest) > 0; {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return to
		}
		to, rest = append(to, int64(v)), rest[n:]
	}
	return to
}

// fields calls f for each field of a message.
func fields(text []byte, f func(n protowire.Number, x value) error) error {
	for len(text) > 0 {
		number, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return fmt.Errorf("hlo: not a program: %w", protowire.ParseError(n))
		}
		var x value
		body := text[n:]
		switch kind {
		case protowire.VarintType:
			v, size := protowire.ConsumeVarint(body)
			x.number, n = int64(v), size
		case protowire.BytesType:
			x.bytes, n = protowire.ConsumeBytes(body)
		default:
			n = protowire.ConsumeFieldValue(number, kind, body)
		}
		if n < 0 {
			return fmt.Errorf("hlo: not a program: %w", protowire.ParseError(n))
		}
		if err := f(number, x); err != nil {
			return err
		}
		text = body[n:]
	}
	return nil
}
