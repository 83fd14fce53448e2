package mujoco_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/mujoco"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// cart is a mass of 2 kg on a rail with a motor, and a ball that falls. Steps are Euler's with the new velocity.
const cart = `<mujoco>
  <option timestep="0.01" gravity="0 0 -10"/>
  <worldbody>
    <body><joint type="slide" axis="1 0 0" name="rail"/><geom size="1" mass="2"/></body>
    <body pos="9 0 0"><joint type="slide" axis="0 0 1"/><geom size="1" mass="3"/></body>
  </worldbody>
  <actuator><motor joint="rail" gear="4"/></actuator>
</mujoco>`

// place makes a folder with the library and models, and names it in the environment.
func place(t *testing.T, models map[string]string) string {
	t.Helper()
	library, err := mujoco.Find()
	if err != nil {
		need.Lack(t, "mujoco", err.Error())
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "libmujoco.so."+mujoco.Version)
	if err := os.Symlink(library, path); err != nil {
		t.Fatal(err)
	}
	for name, text := range models {
		expect.Write(t, filepath.Join(dir, name), []byte(text))
	}
	t.Setenv("MUJOCO_LIBRARY_PATH", path)
	return dir
}

// TestSteps: after n steps of h seconds under the force F the mass has the velocity n·h·F/m more, and has moved by
// n·h·v + h²·F/m·n(n+1)/2.
func TestSteps(t *testing.T) {
	place(t, map[string]string{"cart.xml": cart})
	s, err := mujoco.Load("cart.xml")
	if err != nil {
		t.Fatal(err)
	}
	if s.Positions != 2 || s.Velocities != 2 || s.Controls != 1 {
		t.Fatalf("%d positions, %d velocities, %d controls: want 2, 2, 1", s.Positions, s.Velocities, s.Controls)
	}
	state := make([]float64, 4)
	for range 2 { // Begin forgets what was before
		s.Begin([]float64{0.5, 0, 0.25, -1})
		s.Step([]float64{3}, 5)
		s.Step([]float64{3}, 5)
		s.State(state)
		near(t, state, []float64{0.5 + 0.1*0.25 + 1e-4*6*55, -0.1 - 1e-4*10*55, 0.25 + 0.1*6, -1 - 0.1*10})
	}
	s.Begin(nil)
	s.State(state)
	near(t, state, make([]float64, 4))
}

// TestFields: the bodies are the world, a cart of 2 kg and a ball of 3 kg 9 m away. After a step the fields belong to
// where it began; inertias and centres are a solid sphere's, 2/5·m·r² with r = 1 m.
func TestFields(t *testing.T) {
	place(t, map[string]string{"cart.xml": cart})
	s, err := mujoco.Load("cart.xml")
	if err != nil {
		t.Fatal(err)
	}
	s.Begin([]float64{0.5, 0.25, 1, 2})
	s.Step([]float64{3}, 1)
	s.Forces()
	for _, c := range []struct {
		field mujoco.Field
		want  []float64
	}{
		{mujoco.Inertias, slices.Concat(make([]float64, 10), sphere(2), sphere(3))},
		{mujoco.Velocities, slices.Concat(make([]float64, 6), []float64{0, 0, 0, 1, 0, 0}, []float64{0, 0, 0, 0, 0, 2})},
		{mujoco.ActuatorForces, []float64{12, 0}},
		{mujoco.ContactForces, make([]float64, 18)},
		{mujoco.Centres, []float64{5.6, 0, 0.15, 0.5, 0, 0, 9, 0, 0.25}},
	} {
		got := make([]float64, len(c.want)+1)
		if n := s.Read(c.field, got); n != len(c.want) || s.Size(c.field) != n {
			t.Errorf("%d of %d numbers: want %d", n, s.Size(c.field), len(c.want))
		}
		near(t, got, append(c.want, 0))
	}
}

// sphere is a row of Inertias: the diagonal, three products, the mass times the place, which is the tree's centre, and
// the mass.
func sphere(mass float64) []float64 {
	own := 0.4 * mass
	return []float64{own, own, own, 0, 0, 0, 0, 0, 0, mass}
}

func near(t *testing.T, got, want []float64) {
	t.Helper()
	for i := range want {
		if !(math.Abs(got[i]-want[i]) < 1e-12) {
			t.Errorf("state %v: want %v", got, want)
			return
		}
	}
}

// TestDivergence: numbers that are not finite begin the model again, and leave no file.
func TestDivergence(t *testing.T) {
	place(t, map[string]string{"cart.xml": cart})
	t.Chdir(t.TempDir())
	s, err := mujoco.Load("cart.xml")
	if err != nil {
		t.Fatal(err)
	}
	state := make([]float64, 4)
	s.Begin([]float64{1, 1, math.Inf(1), 1})
	s.Step([]float64{math.NaN()}, 1)
	s.State(state)
	near(t, state[:1], []float64{0})
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("files %v, %v: want none", left, err)
	}
}

// TestFaults: each is one line, which says what to do.
func TestFaults(t *testing.T) {
	empty := t.TempDir()
	dir := place(t, map[string]string{"broken.xml": "<mujoco><worldbody></mujoco>", "empty.xml": "",
		"unknown.xml": "<mujoco><option speed='1'/></mujoco>"})
	installed := filepath.Join(dir, "libmujoco.so."+mujoco.Version)
	expect.Write(t, filepath.Join(dir, "text.so"), []byte("no library"))
	for _, c := range []struct {
		name, library, model string
		want                 []string
	}{
		{"not installed", "", "cart.xml", []string{"no file " + empty, "scripts/install-mujoco.sh"}},
		{"no library", filepath.Join(dir, "no.so"), "cart.xml", []string{"MUJOCO_LIBRARY_PATH: no file", "no.so"}},
		{"folder", dir, "cart.xml", []string{"MUJOCO_LIBRARY_PATH: " + dir + " is a directory"}},
		{"text", filepath.Join(dir, "text.so"), "cart.xml", []string{"cannot open " + dir, "install-mujoco.sh"}},
		{"other version", otherVersion(t, installed), "cart.xml", []string{"is version 3.3.4: want 4.0.0",
			"install-mujoco.sh"}},
		{"other library", otherName(t, installed), "cart.xml", []string{"has no function mj_version"}},
		{"no model", installed, "cart.xml", []string{"no file " + filepath.Join(dir, "cart.xml"), "beside"}},
		{"broken model", installed, "broken.xml", []string{"broken.xml: XML"}},
		{"empty model", installed, "empty.xml", []string{"empty.xml: "}},
		{"unknown word", installed, "unknown.xml", []string{"unknown.xml: ", "speed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("MUJOCO_LIBRARY_PATH", c.library)
			t.Setenv("XDG_DATA_HOME", empty)
			_, err := mujoco.Load(c.model)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q: want %q on one line", err, w)
				}
			}
		})
	}
}

// otherVersion copies the library and makes its mj_version return 334, as version 3.3.4 does.
func otherVersion(t *testing.T, library string) string {
	if runtime.GOARCH != "amd64" {
		need.Lack(t, "amd64", "the patch is of its machine code")
	}
	return patch(t, library, 1, "\xb8\x00\x09\x3d\x00\xc3", "\xb8\x4e\x01\x00\x00\xc3") // mov eax, 4000000; ret
}

// otherName copies the library and names its mj_version otherwise, in the linker's table and in the debuggers'.
func otherName(t *testing.T, library string) string {
	return patch(t, library, 2, "\x00mj_version\x00", "\x00mj_ver5ion\x00")
}

func patch(t *testing.T, library string, times int, from, to string) string {
	t.Helper()
	data := expect.Bytes(t, library)
	if n := bytes.Count(data, []byte(from)); n != times {
		t.Fatalf("%q occurs %d times in %s: want %d", from, n, library, times)
	}
	return expect.File(t, "patched.so", bytes.ReplaceAll(data, []byte(from), []byte(to)))
}
