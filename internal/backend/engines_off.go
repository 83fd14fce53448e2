//go:build !(cgo && linux)

package backend

import (
	"fmt"
	"math"

	"github.com/gomlx/compute"
)

const onnxBuilt = false

func openONNX(string) (*Engine, error)     { return nil, notBuilt("onnx", "ONNX Runtime") }
func openXLA(string, int) (*Engine, error) { return nil, notBuilt("xla", "XLA") }

// OpenDevice is for xla alone.
func OpenDevice(string, Shard) (*Engine, error) { return nil, notBuilt("xla", "XLA") }

// target is for xla alone.
type target struct{ Device }

// Compiled is for xla alone.
func (e *Engine) Compiled() []*Compiled { return nil }

// KeepPrograms is for xla alone.
func (e *Engine) KeepPrograms(string) error { return notBuilt("xla", "XLA") }

func (*target) during(func() error) (*Compiled, error) { return nil, notBuilt("xla", "XLA") }

func notBuilt(name, engine string) error {
	return fmt.Errorf("backend %s: not built in: %s needs Linux and a build with cgo (CGO_ENABLED=1 and a C compiler)",
		name, engine)
}

func statusONNX() Status    { return statusNotBuilt("onnx", "ONNX Runtime", onnxHowToGet) }
func statusesXLA() []Status { return []Status{statusNotBuilt("xla", "XLA", xlaHowToGet)} }

func statusNotBuilt(name, engine, howToGet string) Status {
	return Status{
		Name: name, Detail: "not built in: " + engine + " needs Linux and a build with cgo",
		HowToGet: "build with CGO_ENABLED=1 and a C compiler, then " + howToGet,
	}
}

// markDonated is for xla alone.
func markDonated(compute.Builder, int, int) {}

// markWhole is for xla alone.
func markWhole(compute.Builder, string) error { return nil }

// inputSpecs is for xla alone.
func inputSpecs(compute.Executable) ([]*compute.ShardingSpec, error) { return nil, nil }

// trimHeap is for engines in C alone.
func trimHeap() {}

// usedHeap says that it is unknown.
func usedHeap() uint64 { return math.MaxUint64 }
