//go:build cgo && linux

package backend

import (
	"errors"
	"reflect"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/go-xla/stablehlo"
)

// markDonors tells XLA in the program itself that the last n inputs are donated, as JAX does: go-xla says it only in
// each run, which is too late for XLA to put outputs into their memory. It uses reflection since go-xla has no way to
// the attributes of an input, which are exported, but for one field. With output, the first donated input is written
// over by the output of that number, and the next ones by those that follow; -1: XLA chooses among outputs of their
// sizes.
func markDonors(b compute.Builder, n, output int) {
	builder, ok := b.(*xla.Builder)
	if !ok || n == 0 {
		return
	}
	field := reflect.ValueOf(builder.Main()).Elem().FieldByName("fn")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*stablehlo.Function]() {
		return // it costs memory
	}
	inputs := (*stablehlo.Function)(field.UnsafePointer()).Inputs
	for i, in := range inputs[len(inputs)-n:] {
		if in.Attributes == nil {
			in.Attributes = map[string]any{}
		}
		if output < 0 {
			in.Attributes["jax.buffer_donor"] = true
		} else {
			in.Attributes["tf.aliasing_output"] = int32(output + i)
		}
	}
}

// inputSpecs gives how each input of a program is cut over the mesh. It uses reflection since go-xla has no way to it.
func inputSpecs(exec compute.Executable) ([]*compute.ShardingSpec, error) {
	field := reflect.ValueOf(exec).Elem().FieldByName("parameterSpecs")
	if !field.IsValid() || field.Type() != reflect.TypeFor[[]*compute.ShardingSpec]() {
		return nil, errors.New("go-xla does not say how inputs are cut over the mesh")
	}
	return *(*[]*compute.ShardingSpec)(unsafe.Pointer(field.UnsafeAddr())), nil
}
