//go:build cgo && linux

package backend

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

var update = flag.Bool("update", false, "write the programs of internal/hlo/testdata")

// openTestDevice opens a device that is not there.
func openTestDevice(t *testing.T, spec string) *Engine {
	t.Helper()
	need.Ask(t, "xla")
	need.Ask(t, "cuda-compiler")
	e := expect.Must(OpenMesh("device:"+spec, Mesh{}))(t)
	t.Cleanup(e.Close)
	return e
}

// compileOn compiles a program for a device, and keeps it for the tests of internal/hlo where -update says so.
func compileOn(t *testing.T, e *Engine, name string, build func(g *graph.Graph) []*graph.Node, options ...Option) *Compiled {
	t.Helper()
	p := expect.Must(e.Compile(name, build, options...))(t)
	if *update {
		path := filepath.Join("..", "hlo", "testdata", name+".pb")
		expect.Write(t, path, e.target.optimized)
	}
	return p.Compiled()
}

// TestDeviceProduct: the compiler's figures of a product and of what follows it, on each chip.
func TestDeviceProduct(t *testing.T) {
	for _, chip := range Chips() {
		t.Run(chip, func(t *testing.T) {
			e := openTestDevice(t, chip)
			c := compileOn(t, e, "product", func(g *graph.Graph) []*graph.Node {
				x := graph.Parameter(g, "x", shapes.Make(dtypes.BFloat16, 1024, 2048))
				y := graph.Parameter(g, "y", shapes.Make(dtypes.BFloat16, 2048, 512))
				return []*graph.Node{graph.Exp(graph.Dot(x, y).Product())}
			})
			if c.Arguments != 2*(1024*2048+2048*512) || c.Results != 2*1024*512 || c.Flops != 2*1024*2048*512 {
				t.Errorf("%+v", c)
			}
			least := c.Flops / e.Absent().Flops16
			if c.Kernels < 1 || c.Kernels > 3 || c.Floor < least || c.Floor > 20*least {
				t.Errorf("%g kernels, a floor of %g s, products at their rate %g s", c.Kernels, c.Floor, least)
			}
		})
	}
}

// TestDeviceProgramsAreKept: programs of two processes that compile the same have the same name, which says for which chip
// they are.
func TestDeviceProgramsAreKept(t *testing.T) {
	kept := func(chip string) string {
		e, folder := openTestDevice(t, chip), filepath.Join(t.TempDir(), "programs")
		expect.OK(t, e.KeepPrograms(folder))
		compileOn(t, e, "twice", func(g *graph.Graph) []*graph.Node {
			x := graph.Parameter(g, "x", shapes.Make(dtypes.BFloat16, 64, 64))
			return []*graph.Node{graph.Add(x, x)}
		})
		files, err := os.ReadDir(folder)
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v: want one program", files, err)
		}
		return files[0].Name()
	}
	first, again, other := kept("h100"), kept("h100"), kept("a100")
	if first != again || first == other {
		t.Errorf("a program of h100 is %s, then %s; of a100 %s", first, again, other)
	}
	folder := t.TempDir()
	expect.OK(t, os.Chmod(folder, 0o777))
	if err := openTestDevice(t, "h100").KeepPrograms(folder); err == nil {
		t.Error("a folder that others may write was taken")
	}
}

// TestProgramsOfGPUsTravel: the key of a run's programs has no path in it, and the flags that a run sets are those for which
// programs are compiled elsewhere.
func TestProgramsOfGPUsTravel(t *testing.T) {
	t.Setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
	all := func(string) bool { return true }
	var texts []string
	for _, place := range []string{"a", "b"} {
		plugin := filepath.Join(t.TempDir(), place, "jax_plugins", "xla_cuda12", "xla_cuda_plugin.so")
		expect.OK(t, os.MkdirAll(filepath.Join(plugin, "../../../nvidia/cuda_nvcc"), 0o700))
		flags := pluginEnvironment(plugin, slowFlags, all)["XLA_FLAGS"]
		texts = append(texts, string(compilerEnvironment(flags)))
	}
	if texts[0] != texts[1] || !strings.Contains(texts[0], "--xla_dump_to=/tmp/x --xla_gpu_exp") {
		t.Errorf("%q, then %q", texts[0], texts[1])
	}
}

// TestDeviceLoop: the body of a loop counts as often as it runs, of an array that is cut into slices only these are read,
// and what is updated in place is donated.
func TestDeviceLoop(t *testing.T) {
	const n, d = 5, 256
	whole := shapes.Make(dtypes.Float32, n, d, d)
	c := compileOn(t, openTestDevice(t, "h100"), "loop", func(g *graph.Graph) []*graph.Node {
		state := []*graph.Node{graph.Const(g, int32(0)), graph.Parameter(g, "x", shapes.Make(dtypes.Float32, d, d)),
			graph.Parameter(g, "weights", whole), graph.Parameter(g, "out", whole)}
		parameters := func(g *graph.Graph) (all []*graph.Node) {
			for _, s := range state {
				all = append(all, graph.Parameter(g, "p"+s.String(), s.Shape()))
			}
			return all
		}
		condition := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			return []*graph.Node{graph.LessThan(parameters(g)[0], graph.Const(g, int32(n)))}
		})
		body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			s := parameters(g)
			zero := graph.Const(g, int32(0))
			at := []*graph.Node{s[0], zero, zero}
			w := graph.Reshape(graph.DynamicSlice(s[2], at, []int{1, d, d}), d, d)
			x := graph.Dot(s[1], w).Product()
			return []*graph.Node{graph.AddScalar(s[0], 1), x, s[2],
				graph.DynamicUpdateSlice(s[3], graph.Reshape(x, 1, d, d), at)}
		})
		out := graph.While(condition, body, state...)
		return []*graph.Node{out[1], out[3]}
	}, UpdateLast(1))
	if want := float64(n * 2 * d * d * d); c.Flops != want {
		t.Errorf("%g operations, want %g", c.Flops, want)
	}
	if c.Aliased != 4*n*d*d {
		t.Errorf("%d bytes of results lie in arguments, want %d", c.Aliased, 4*n*d*d)
	}
	if most := float64(n * 10 * 4 * d * d); c.Traffic > most {
		t.Errorf("%g bytes are read and written, want %g or less", c.Traffic, most)
	}
}

// TestDeviceMesh: each device has its share of what is cut, and a sum over them moves it.
func TestDeviceMesh(t *testing.T) {
	e := openTestDevice(t, "h100:2x4")
	const rows, d = 64, 128
	spec := &distributed.ShardingSpec{Mesh: e.Mesh, Axes: []distributed.AxisSpec{{DataAxis}, nil}}
	c := compileOn(t, e, "mesh", func(g *graph.Graph) []*graph.Node {
		x := graph.ShardedParameter(g, "x", shapes.Make(dtypes.Float32, rows, d), spec)
		y := graph.ShardedParameter(g, "y", shapes.Make(dtypes.Float32, rows, d), spec)
		return []*graph.Node{graph.DotGeneral(x, []int{0}, nil, y, []int{0}, nil)}
	})
	if c.Arguments != 2*4*rows*d/8 || c.Flops != 2*rows*d*d/8 {
		t.Errorf("%+v", c)
	}
	if want := 2 * 7. / 8 * 4 * d * d; math.Abs(c.Moved-want) > 1 {
		t.Errorf("a device sends %g bytes, want %g: twice 7 of 8 parts of the sum", c.Moved, want)
	}
}

// TestDeviceRuns: a program for a device that is not there gives arrays of its shapes, whose values are zero, and counts its
// runs. It is no engine to train on.
func TestDeviceRuns(t *testing.T) {
	e := openTestDevice(t, "a100")
	p, err := e.Compile("sum", func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 3))
		return []*graph.Node{graph.Add(x, x)}
	})
	expect.OK(t, err)
	x := expect.Must(e.Float32([]float32{1, 2, 3}, 3))(t)
	for range 2 {
		out := expect.Must(p.Run([]compute.Buffer{x}, nil))(t)
		got, err := Floats(out[0])
		if err != nil || len(got) != 3 || got[1] != 0 {
			t.Errorf("%v, %v", got, err)
		}
	}
	if all := e.Compiled(); len(all) != 1 || all[0].Runs != 2 || all[0].Name != "sum" {
		t.Errorf("%+v", all)
	}
}
