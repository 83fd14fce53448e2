//go:build goexperiment.simd && amd64

package backend

import (
	"os"
	"runtime"
	"simd/archsimd"
	"strings"
	"sync"
	_ "unsafe" // for go:linkname
)

// goHint says what would make the engine faster; "" if nothing would.
const goHint = ""

// largeProducts makes the engine go compute small matrix products with the kernels of large ones. The library has the
// variable for its tests alone.
//
//go:linkname largeProducts github.com/gomlx/compute/internal/gobackend/dot/matmul.ForceLargeVariant
var largeProducts bool

// chooseKernels chooses kernels by the processor. Those for small products add up each result in scalar registers behind
// vector ones, without clearing the upper halves between. On Intel's processors that makes sampling twice as slow as the
// kernels for large products. With AVX2 alone they are slow on every processor: three steps of the quick start took 82 s of
// processor time, and 24 s with the others.
var chooseKernels = sync.OnceFunc(func() { largeProducts = isIntel() || !archsimd.X86.AVX512() })

func isIntel() bool {
	return runtime.GOOS == "darwin" || strings.Contains(processor()+os.Getenv("PROCESSOR_IDENTIFIER"), "GenuineIntel")
}
