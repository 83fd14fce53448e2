//go:build cgo && linux

package backend

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/go-xla/stablehlo"
)

// markDonated tells XLA in the program itself that the last n inputs are donated, as JAX does: go-xla says it only in
// each run, which is too late for XLA to put outputs into their memory. It uses reflection since go-xla has no way to
// the attributes of an input, which are exported, but for one field. With output, the first donated input is written
// over by the output of that number, and the next ones by those that follow; -1: XLA chooses among outputs of their
// sizes.
func markDonated(b compute.Builder, n, output int) {
	inputs := inputsOf(b)
	if len(inputs) < n {
		return // it costs memory
	}
	for i, in := range inputs[len(inputs)-n:] {
		if output < 0 {
			in.Attributes["jax.buffer_donor"] = true
		} else {
			in.Attributes["tf.aliasing_output"] = int32(output + i)
		}
	}
}

// inputsOf gives the inputs of a program that is being built, with attributes that can be written.
func inputsOf(b compute.Builder) []*stablehlo.Value {
	builder, ok := b.(*xla.Builder)
	if !ok {
		return nil
	}
	field := reflect.ValueOf(builder.Main()).Elem().FieldByName("fn")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*stablehlo.Function]() {
		return nil
	}
	inputs := (*stablehlo.Function)(field.UnsafePointer()).Inputs
	for _, in := range inputs {
		if in.Attributes == nil {
			in.Attributes = map[string]any{}
		}
	}
	return inputs
}

// literal is an attribute in the program's language.
type literal string

func (l literal) ToStableHLO() string { return string(l) }

// markWhole says of each input that is not cut that it is whole on every device. XLA would cut some as it likes.
func markWhole(b compute.Builder, mesh string) error {
	inputs := inputsOf(b)
	if inputs == nil {
		return errors.New("go-xla hides the inputs of a program for several devices")
	}
	for _, in := range inputs {
		const key = "sdy.sharding"
		if axes := strings.Repeat(", {}", in.Shape().Rank()); in.Attributes[key] == nil {
			in.Attributes[key] = literal(fmt.Sprintf("#sdy.sharding<@%s, [%s]>", mesh, strings.TrimPrefix(axes, ", ")))
		}
	}
	return nil
}

// inputSpecs gives how each input of a program is cut over the mesh. It uses reflection since go-xla has no way to it.
func inputSpecs(exec compute.Executable) ([]*compute.ShardingSpec, error) {
	field := reflect.ValueOf(exec).Elem().FieldByName("parameterSpecs")
	if !field.IsValid() || field.Type() != reflect.TypeFor[[]*compute.ShardingSpec]() {
		return nil, errors.New("go-xla does not say how inputs are cut over the mesh")
	}
	return *(*[]*compute.ShardingSpec)(unsafe.Pointer(field.UnsafeAddr())), nil
}
