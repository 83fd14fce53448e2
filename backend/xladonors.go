//go:build cgo && linux

package backend

import (
	"reflect"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/go-xla/stablehlo"
)

// markDonors tells XLA in the program itself that the last n inputs are donated, as JAX does: go-xla says it only in
// each run, which is too late for XLA to put outputs into their memory. It uses reflection since go-xla has no way to
// the attributes of an input, which are exported, but for one field.
func markDonors(b compute.Builder, n int) {
	builder, ok := b.(*xla.Builder)
	if !ok || n == 0 {
		return
	}
	field := reflect.ValueOf(builder.Main()).Elem().FieldByName("fn")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*stablehlo.Function]() {
		return // it costs memory
	}
	inputs := (*stablehlo.Function)(field.UnsafePointer()).Inputs
	for _, in := range inputs[len(inputs)-n:] {
		if in.Attributes == nil {
			in.Attributes = map[string]any{}
		}
		in.Attributes["jax.buffer_donor"] = true
	}
}
