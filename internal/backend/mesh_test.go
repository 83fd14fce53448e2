//go:build cgo && linux

package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

func openTestMesh(t *testing.T, m Mesh) *Engine {
	t.Helper()
	need.Ask(t, "xla")
	e := expect.Must(OpenMesh("xla:cpu", m))(t)
	t.Cleanup(e.Close)
	return e
}

// spec cuts the axes of an array over axes of the mesh: "data", "", "data tensor".
func spec(t *testing.T, e *Engine, axes ...string) *distributed.ShardingSpec {
	t.Helper()
	s := &distributed.ShardingSpec{Mesh: e.Mesh}
	for _, a := range axes {
		s.Axes = append(s.Axes, strings.Fields(a))
	}
	expect.OK(t, s.Validate())
	return s
}

func count(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i)
	}
	return x
}

// TestArraysOnAMesh: what is cut comes back as it was, and each device has its part alone.
func TestArraysOnAMesh(t *testing.T) {
	e := openTestMesh(t, Mesh{Data: 4})
	for _, c := range []struct {
		axes []string
		part []float32 // of device 1
	}{
		{nil, count(32)},
		{[]string{"data"}, count(16)[8:]},
		{[]string{"", "data"}, []float32{2, 3, 10, 11, 18, 19, 26, 27}},
	} {
		b := expect.Must(e.On(spec(t, e, c.axes...)).Float32(count(32), 4, 8))(t)
		all, err := Floats(b)
		if err != nil || !slices.Equal(all, count(32)) {
			t.Errorf("%q: read %v, %v", c.axes, all, err)
		}
		if part, err := Floats(Part(b, 1)); err != nil || !slices.Equal(part, c.part) {
			t.Errorf("%q: device 1 has %v, %v: want %v", c.axes, part, err, c.part)
		}
		if on, err := Part(b, 3).DeviceNum(); err != nil || on != 3 {
			t.Errorf("%q: the part of device 3 is on %d: %v", c.axes, on, err)
		}
		FinalizeAll(b)
	}
	_, err := e.On(spec(t, e, "data")).Float32(count(3), 3)
	const want = "backend xla: copy a buffer (Float32)[3]: axis 0 of dimensions [3] is not a multiple of the 4 " +
		"devices that it is cut over"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestAnUploadTakesOnePart: cutting an array takes the memory of one device's part on the host.
func TestAnUploadTakesOnePart(t *testing.T) {
	e := openTestMesh(t, Mesh{Data: 4})
	place, x := e.On(spec(t, e, "data")), count(1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b, err := place.Float32(x, 1<<10, 1<<10)
	runtime.ReadMemStats(&after)
	expect.OK(t, err)
	defer FinalizeAll(b)
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20/4+1<<18 {
		t.Errorf("cutting 4 MiB over 4 devices took %d bytes: want those of a part, 1 MiB", took)
	}
}

// compileProduct compiles out[rows, out] = x[rows, 4] times w[out, 4] transposed, plus sum, which is donated.
func compileProduct(t *testing.T, e *Engine) *Program {
	t.Helper()
	p, err := e.Compile("product", func(g *graph.Graph) []*graph.Node {
		declare := func(name string, s *distributed.ShardingSpec, dims ...int) *graph.Node {
			return graph.ShardedParameter(g, name, shapes.Make(dtypes.Float32, dims...), s)
		}
		x, w := declare("x", spec(t, e, "data"), 4, 4), declare("w", nil, 6, 4)
		y := graph.Add(graph.Dot(x, w).General([]int{1}, nil, []int{1}, nil), declare("sum", spec(t, e, "data"), 4, 6))
		return []*graph.Node{graph.ReduceAllSum(y), y}
	}, DonateLast(1), CutLast(spec(t, e, "data")))
	expect.OK(t, err)
	t.Cleanup(p.Close)
	return p
}

func put(t *testing.T, e *Engine, s *distributed.ShardingSpec, x []float32, dims ...int) compute.Buffer {
	t.Helper()
	return expect.Must(e.On(s).Float32(x, dims...))(t)
}

// TestAProgramOnAMesh: the partitioned program gives the whole's numbers, and writes over what it was donated.
func TestAProgramOnAMesh(t *testing.T) { checkProduct(t, openTestMesh(t, Mesh{Data: 4})) }

// TestKeptProgramsOfMeshes: a program of a mesh is read from its file again, and each mesh has its own.
func TestKeptProgramsOfMeshes(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "programs")
	t.Setenv(diskCacheEnv, folder)
	four, two := Mesh{Data: 4}, Mesh{Data: 2}
	for i, m := range []Mesh{four, four, two, four} {
		e := openTestMesh(t, m)
		e.Listen(func(line string) { t.Error(line) })
		checkProduct(t, e)
		if have, want := len(programsIn(t, folder)), []int{1, 1, 2, 2}[i]; have != want {
			t.Errorf("%d files behind a program of %d devices, want %d", have, m.Data, want)
		}
	}
}

func checkProduct(t *testing.T, e *Engine) {
	t.Helper()
	p := compileProduct(t, e)
	x, w := put(t, e, spec(t, e, "data"), count(16), 4, 4), put(t, e, nil, count(24), 6, 4)
	sum := put(t, e, spec(t, e, "data"), count(24), 4, 6)
	before := address(t, Part(sum, 1))
	out := expect.Must(p.Run([]compute.Buffer{x, w, sum}, nil))(t)
	if address(t, Part(out[1], 1)) != before {
		t.Error("the output is in new memory: want that of the donated input")
	}
	var want []float32
	total := float32(0)
	for i := range 24 {
		y := float32(i)
		for k := range 4 {
			y += float32(i/6*4+k) * float32(i%6*4+k)
		}
		want, total = append(want, y), total+y
	}
	if y, err := Floats(out[1]); err != nil || !slices.Equal(y, want) {
		t.Errorf("%v, %v\nwant %v", y, err, want)
	}
	if s, err := Floats(out[0]); err != nil || s[0] != total {
		t.Errorf("sum %v, %v: want %v", s, err, total)
	}
	rows := 4 / e.Devices()
	if shape, err := Part(out[1], 0).Shape(); err != nil || !slices.Equal(shape.Dimensions, []int{rows, 6}) {
		t.Errorf("the part of an output has shape %s, %v: want [%d, 6]", shape, err, rows)
	}
	FinalizeAll(x, w, out[0], out[1])
}

// TestWholeInputsStayWhole: XLA does not cut an input that is to be whole, even if it would suit an output.
func TestWholeInputsStayWhole(t *testing.T) {
	e := openTestMesh(t, Mesh{Data: 4})
	p, err := e.Compile("update", func(g *graph.Graph) []*graph.Node {
		f32 := func(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }
		x := graph.ShardedParameter(g, "x", f32(4, 4), spec(t, e, "data"))
		return []*graph.Node{graph.Add(graph.Mul(x, x), graph.Parameter(g, "y", f32(4, 4)))}
	}, UpdateLast(1))
	expect.OK(t, err)
	defer p.Close()
	out := expect.Must(p.Run([]compute.Buffer{put(t, e, spec(t, e, "data"), count(16), 4, 4),
		put(t, e, nil, count(16), 4, 4)}, nil))(t)
	if y, err := Floats(Part(out[0], 3)); err != nil || len(y) != 16 || y[15] != 15*15+15 {
		t.Errorf("%v, %v", y, err)
	}
}

// TestInputsOnAMeshAreChecked: XLA's next program would never end after these.
func TestInputsOnAMeshAreChecked(t *testing.T) {
	e := openTestMesh(t, Mesh{Data: 4})
	p := compileProduct(t, e)
	rows, columns := spec(t, e, "data"), spec(t, e, "", "data")
	x, w, sum := put(t, e, rows, count(16), 4, 4), put(t, e, nil, count(24), 6, 4), put(t, e, rows, count(24), 4, 6)
	one := expect.Must(e.Backend.BufferFromFlatData(0, count(16), shapes.Make(dtypes.Float32, 4, 4)))(t)
	moved := *x.(*shards)
	moved.parts = slices.Clone(moved.parts)
	moved.parts[1] = moved.parts[2]
	short := *x.(*shards)
	short.parts = slices.Concat(short.parts[:3], []compute.Buffer{Part(w, 3)})
	for _, c := range []struct {
		x    compute.Buffer
		want string
	}{
		{put(t, e, columns, count(16), 4, 4), "axis 1 of it is cut over the devices, want axis 0 (-1: none)"},
		{put(t, e, nil, count(16), 4, 4), "axis -1 of it is cut over the devices, want axis 0 (-1: none)"},
		{put(t, e, rows, count(16), 8, 2), "found (Float32)[8, 2], want (Float32)[4, 4]"},
		{one, "found a buffer of one device, want one on the 4 of the mesh"},
		{&moved, "device 1: the part lies on device 2"},
		{&short, "device 3: found (Float32)[6, 4], want (Float32)[1, 4]"},
	} {
		_, err := p.Run([]compute.Buffer{c.x, w, sum}, nil)
		if want := "backend: run product on xla: input 0 (x): " + c.want; err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if _, err := p.Run([]compute.Buffer{x, w, sum}, nil); err != nil {
		t.Error(err)
	}
}

// TestMeshesThatDoNotOpen: each is one clear line.
func TestMeshesThatDoNotOpen(t *testing.T) {
	need.Ask(t, "xla")
	for spec, want := range map[string]string{
		"go":      `backend "go": engine.devices 128: only xla computes on several devices: want --backend xla or one device`,
		"xla:cpu": "backend xla: " + findPlugin("cpu") + ": engine.devices 128: the plugin sees 64: want fewer devices",
	} {
		if _, err := OpenMesh(spec, Mesh{Data: 128}); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

const failingChild = "POSTTRAIN_TEST_MESH_FAILS"

// TestAFailureOnAMeshEndsAllWork: behind a run that failed, XLA's next program would never end. So every later call
// gives the failure, and closing does nothing.
func TestAFailureOnAMeshEndsAllWork(t *testing.T) {
	if os.Getenv(failingChild) != "" {
		failOnMesh(t)
		return
	}
	openTestMesh(t, Mesh{Data: 2}) // or skip
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), failingChild+"=1")
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all work has ended") {
		t.Errorf("%v, %v\n%s", err, ctx.Err(), out)
	}
}

func failOnMesh(t *testing.T) {
	e := openTestMesh(t, Mesh{Data: 4})
	p := compileProduct(t, e)
	rows := spec(t, e, "data")
	x, w, sum := put(t, e, rows, count(16), 4, 4), put(t, e, nil, count(24), 6, 4), put(t, e, rows, count(24), 4, 6)
	short := *x.(*shards)
	short.parts = slices.Concat(short.parts[:3], []compute.Buffer{Part(w, 3)})
	_, first := p.runChecked([]compute.Buffer{&short, w, sum}, p.donate)
	if !errors.Is(first, ErrDevices) || strings.Contains(first.Error(), "\n") {
		t.Errorf("%v: want a line that ends in %v", first, ErrDevices)
	}
	_, run := p.Run([]compute.Buffer{x, w, sum}, nil)
	_, put := e.Float32(count(1), 1)
	_, read := Floats(x)
	_, compiled := e.Compile("more", func(*graph.Graph) []*graph.Node { return nil })
	for _, err := range []error{run, put, read, compiled} {
		if err == nil || !strings.HasSuffix(err.Error(), first.Error()) {
			t.Errorf("%v\nwant %v", err, first)
		}
	}
	FinalizeAll(x, w, sum)
	p.Close()
	e.Close()
	fmt.Println("all work has ended")
}
