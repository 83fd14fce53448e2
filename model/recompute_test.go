package model

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestRecomputedLayersStayApart: XLA's operations are as large in a deep model as in a flat one. When one held the
// operations of all later layers, SmolLM2-135M compiled eight times as long with gradient checkpointing as without.
func TestRecomputedLayersStayApart(t *testing.T) {
	const childEnv = "POSTTRAIN_TEST_XLA_DUMP"
	if os.Getenv(childEnv) != "" {
		compileRecomputed(t)
		return
	}
	backendtest.XLA(t)
	dump := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$") // XLA reads its flags once in a process
	child.Env = append(os.Environ(), childEnv+"=1", "XLA_FLAGS=--xla_dump_hlo_as_text --xla_dump_to="+dump)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if flat, deep := largestOperation(t, dump, 3), largestOperation(t, dump, 9); deep > flat {
		t.Errorf("the largest operation has %d instructions with 9 layers and %d with 3", deep, flat)
	}
}

// compileRecomputed compiles the gradients of 3 and of 9 recomputed layers.
func compileRecomputed(t *testing.T) {
	e := backendtest.XLA(t)
	for _, layers := range []int{3, 9} {
		p, err := e.Compile(fmt.Sprintf("layers%d", layers), func(g *Graph) []*Node {
			x := Parameter(g, "x", shapes.Make(dtypes.Float32, 8, 4))
			y, wanted := x, []*Node{x}
			for i := range layers {
				w := []*Node{Parameter(g, fmt.Sprint("w", i), shapes.Make(dtypes.Float32, 4, 4)),
					Parameter(g, fmt.Sprint("norm", i), shapes.Make(dtypes.Float32, 4))}
				wanted = append(wanted, w...)
				y = recompute(y, w, func(x *Node, w []*Node) *Node {
					return Add(x, linear(rmsNorm(x, w[1], 1e-5), w[0]))
				})
			}
			return Gradient(ReduceAllSum(Square(y)), wanted...)
		})
		expect.OK(t, err)
		p.Close()
	}
}

// largestOperation counts the instructions of the largest fused operation.
func largestOperation(t *testing.T, dump string, layers int) (most int) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dump, fmt.Sprintf("*layers%d.cpu_after_optimizations.txt", layers)))
	if len(files) != 1 {
		t.Fatalf("found the optimised programs %v, want one", files)
	}
	f := expect.Must(os.Open(files[0]))(t)
	defer f.Close()
	n, fused := 0, false
	for lines := bufio.NewScanner(f); lines.Scan(); n++ {
		if strings.HasPrefix(lines.Text(), "%fused") {
			n, fused = 0, true
		}
		if lines.Text() == "}" && fused {
			most, fused = max(most, n-1), false
		}
	}
	return most
}
