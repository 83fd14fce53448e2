package gguf

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// fixture is what scripts/oracle/gguf_blocks.py wrote with gguf-py.
const fixture = "testdata/blocks.gguf"

func open(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func numbers(t testing.TB, f *File, name string) []float32 {
	t.Helper()
	tensor := f.Find(name)
	if tensor == nil {
		t.Fatalf("no tensor %s", name)
	}
	x := make([]float32, tensor.Size())
	if err := f.Read(tensor, x); err != nil {
		t.Fatal(err)
	}
	return x
}

// named is gguf-py's name.
func named(t Type) string { return strings.ToUpper(t.String()) }

// TestBlocksAreThoseOfGGUFPy: the same bits, of every type.
func TestBlocksAreThoseOfGGUFPy(t *testing.T) {
	f := open(t, fixture)
	for _, of := range Readable {
		if tensor := f.Find(named(of)); tensor == nil || tensor.Type != of || tensor.Shape[0] != 4 {
			t.Errorf("%s: %+v", of, tensor)
			continue
		}
		got, want := numbers(t, f, named(of)), numbers(t, f, named(of)+".f32")
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) && got[i]+want[i] != 0 { // -0 is 0
				t.Errorf("%s: number %d is %g, want %g", of, i, got[i], want[i])
				break
			}
		}
	}
}

// TestWritesAsGGUFPy: the bytes of each tensor, too.
func TestWritesAsGGUFPy(t *testing.T) {
	f := open(t, fixture)
	whole := expect.Bytes(t, fixture)
	x := numbers(t, f, "source.f32")
	for _, of := range Writable {
		source, tensor, out := Source{Shape: []int{4, 512}, Type: of}, f.Find(named(of)), bytes.Buffer{}
		if err := source.write(&out, x); err != nil {
			t.Errorf("%s: %v", of, err)
		}
		if want := whole[tensor.at : tensor.at+tensor.bytes()]; !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s: other bytes than gguf-py's", of)
		}
	}
}

func TestFields(t *testing.T) {
	x := &Fields{File: open(t, fixture)}
	if got := x.Texts("blocks.texts"); !slices.Equal(got, []string{"", "ä b", "end"}) {
		t.Errorf("texts %q", got)
	}
	if got := x.Wholes("blocks.wholes"); !slices.Equal(got, []int{3, -1, 2}) {
		t.Errorf("wholes %v", got)
	}
	if got := x.Float("blocks.float", 0); got != 1e-5 {
		t.Errorf("float %v", got)
	}
	if !x.Flag("blocks.flag", false) || x.Whole("none", 7) != 7 || x.Err != nil {
		t.Error(x.Err)
	}
	if x.Whole("blocks.flag", 0); x.Err == nil ||
		x.Err.Error() != fixture+": blocks.flag: found true, want a whole number" {
		t.Error(x.Err)
	}
}

// small is a file of two tensors and every kind of value.
func small(t testing.TB, path string) (meta []Entry, x []float32) {
	t.Helper()
	meta = []Entry{
		{"a.text", "one\ntwo"}, {"a.u8", uint8(1)}, {"a.i8", int8(-1)}, {"a.u16", uint16(2)}, {"a.i16", int16(-2)},
		{"a.u32", uint32(3)}, {"a.i32", int32(-3)}, {"a.u64", uint64(4)}, {"a.i64", int64(-4)}, {"a.f32", float32(.5)},
		{"a.f64", .25}, {"a.flag", true}, {"a.texts", []string{"x", ""}}, {"a.f32s", []float32{1, 2}},
		{"a.flags", []bool{true, false}}, {"a.none", []int32{}},
	}
	for i := range 64 {
		x = append(x, float32(i-30))
	}
	read := func() ([]float32, error) { return x, nil }
	err := Write(path, meta, []Source{{"vector", []int{64}, F32, read}, {"matrix", []int{2, 32}, Q80, read}},
		func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return meta, x
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small.gguf")
	meta, x := small(t, path)
	f := open(t, path)
	for i, e := range f.Meta {
		if want := meta[i]; e.Key != want.Key || !equal(e.Value, want.Value) {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	if got := numbers(t, f, "vector"); !slices.Equal(got, x) {
		t.Errorf("vector %v", got)
	}
	for i, v := range numbers(t, f, "matrix") { // 33/127 between two numbers of a block at most
		if math.Abs(float64(v-x[i])) > 33./254+1e-2 {
			t.Errorf("number %d is %g, want %g", i, v, x[i])
		}
	}
}

func equal(a, b any) bool {
	x, ok := a.([]string)
	if ok {
		return slices.Equal(x, b.([]string))
	}
	if f, ok := a.([]float32); ok {
		return slices.Equal(f, b.([]float32))
	}
	if f, ok := a.([]bool); ok {
		return slices.Equal(f, b.([]bool))
	}
	if f, ok := a.([]int32); ok {
		return slices.Equal(f, b.([]int32))
	}
	return a == b
}

// TestBrokenScalesShow: the numbers of a quantised block are all finite exactly where its float16 numbers are: who refuses
// NaN and infinity refuses such a block. Types whose scales are no float16 numbers are not here.
func TestBrokenScalesShow(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for of, places := range map[Type][]int{Q80: {0}, 2: {0}, 3: {0, 2}, 6: {0}, 7: {0, 2}, 10: {80, 82}, 11: {108},
		12: {0, 2}, 13: {0, 2}, 14: {208}, 16: {0}, 17: {0}, 18: {0}, 19: {0}, 20: {0}, 21: {0}, 22: {0}, 23: {0},
		34: {52}, 35: {64}} {
		c := codecs[of]
		b, x := make([]byte, c.bytes), make([]float32, c.block)
		for try := range 400 {
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			want := true
			for _, at := range places {
				if try%2 == 0 { // else what is drawn, of which a share of 1/32 is NaN or infinite
					b[at+1] |= 0x7c
				}
				want = want && !math.IsInf(float64(half(b[at:])), 0) && half(b[at:]) == half(b[at:])
			}
			c.decode(b, x)
			finite := !slices.ContainsFunc(x, func(v float32) bool { return v-v != 0 })
			if finite != want {
				t.Fatalf("%v: block % x: finite %v, want %v", of, b, finite, want)
			}
		}
	}
}

// TestNothingIsHalfWritten: a fault leaves the old file, and no other.
func TestNothingIsHalfWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.gguf")
	expect.Write(t, path, "old")
	all := func(x ...float32) func() ([]float32, error) { return func() ([]float32, error) { return x, nil } }
	stop := errors.New("stopped")
	for _, c := range []struct {
		source Source
		wrote  error
		want   string
	}{
		{Source{"w", []int{2}, F32, all(1)}, nil, "tensor w: found 1 numbers, want 2 for shape [2]"},
		{Source{"w", []int{2}, Q80, all(1, 2)}, nil,
			"tensor w: found rows of 2 numbers, want a multiple of 32 for q8_0"},
		{Source{"w", []int{2}, Type(12), all(1, 2)}, nil, "q4_K, which is not written: want f32, f16, bf16, q8_0"},
		{Source{"w", nil, F32, all()}, nil, "found shape [], want 1 to 4 dimensions"},
		{Source{"w", []int{2}, F16, all(1, 65520)}, nil, "tensor w: found 65520 as number 1, which is not"},
		{Source{"w", []int{1}, F32, all(float32(math.NaN()))}, nil, "found NaN as number 0"},
		{Source{"w", []int{1}, F32, all(1)}, stop, "stopped"},
	} {
		err := Write(path, nil, []Source{c.source}, func(int) error { return c.wrote })
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Error(entries, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
}

// change is the bytes of a file with other ones at a place.
func change(b []byte, at int, to ...byte) []byte {
	return slices.Concat(b[:at], to, b[at+len(to):])
}

func TestBadFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small.gguf")
	small(t, path)
	b := expect.Bytes(t, path)
	after := func(text string) int { return bytes.Index(b, []byte(text)) + len(text) }
	vector, huge := after("vector"), bytes.Repeat([]byte{0x7f}, 8)
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "header: truncated: it wants 4 bytes, and the file ends 0 bytes later"},
		{"magic", change(b, 0, 'g'), `found "gGUF" at the beginning, want "GGUF": not a GGUF file`},
		{"big-endian", change(b, 0, 'F', 'U', 'G', 'G'), "found a big-endian file, want a little-endian one"},
		{"version", change(b, 4, 1), "found version 1 of the format, want 2 or 3"},
		{"tensors", change(b, 8, huge...), "tensors, want at most 2^50"},
		{"more tensors", change(b, 8, 0xff, 0xff, 0xff), "found 16777215 tensors and 16 keys, want at most 131072 and"},
		{"keys", change(b, 16, 0xff), " of 255: "},
		{"key's length", change(b, 24, huge...), "key 1 of 16: found 9187201950435737471 bytes of text"},
		{"text's length", change(b, 24, 0xff, 0xff, 0xff, 0xff),
			"found a text of 4294967295 bytes, want at most 67108864"},
		{"kind", change(b, after("a.u8"), 13), "key a.u8: found kind 13 of a value, want 0 to 12"},
		{"array of arrays", change(b, after("a.f32s")+4, 9), "key a.f32s: found an array of arrays"},
		{"array's length", change(b, after("a.f32s")+8, 0xff, 0xff, 0xff), "key a.f32s: truncated: it has 16777215 " +
			"values of float32, and the file ends"},
		{"same key", bytes.Replace(b, []byte("a.f64"), []byte("a.f32"), 1), "key a.f32: found it twice"},
		{"same tensor", bytes.Replace(b, []byte("matrix"), []byte("vector"), 1), "tensor vector: found it twice"},
		{"dimensions", change(b, vector, 5), "tensor vector: found 5 dimensions, want 1 to 4"},
		{"no numbers", change(b, vector+4, 0), "tensor vector: found 0 as a dimension"},
		{"size", change(b, vector+4, huge...), "tensor vector: found 9187201950435737471 numbers, want at most 2^50"},
		{"type", change(b, vector+12, 9), "tensor vector: found q8_1, which is not read: want f32, f16, q4_0, q4_1, q5_0, " +
			"q5_1, q8_0, q2_K, q3_K, q4_K, q5_K, q6_K, iq2_xxs, "},
		{"unknown type", change(b, vector+12, 99), "tensor vector: found type 99, which is not read: want f32"},
		{"blocks", change(b, after("matrix")+4, 33), "tensor matrix: found rows of 33 numbers, want a multiple of 32"},
		{"place", change(b, vector+16, 1), "tensor vector: found it at byte 1, want a multiple of 32"},
		{"overlap", change(b, after("matrix")+24, 0, 0), "tensors "},
		{"truncated", b[:len(b)-64], "truncated: tensor matrix ends at byte"},
		{"metadata alone", b[:60], "truncated: it wants"},
	} {
		_, err := Read(bytes.NewReader(c.file), int64(len(c.file)))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for _, c := range []struct{ path, want string }{
		{"testdata/none.gguf", "testdata/none.gguf: no such file or directory"},
		{"testdata", "testdata: found a folder, want a regular file"},
	} {
		if _, err := Open(c.path); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestParts: a model in several files is read from the first of them.
func TestParts(t *testing.T) {
	write := func(name string, meta []Entry, tensor string, x float32) string {
		path := filepath.Join(t.TempDir(), name)
		source := Source{tensor, []int{1}, F32, func() ([]float32, error) { return []float32{x}, nil }}
		if err := Write(path, meta, []Source{source}, func(int) error { return nil }); err != nil {
			t.Fatal(err)
		}
		return path
	}
	split := func(number, count, tensors int) []Entry {
		return []Entry{{"split.no", uint16(number)}, {"split.count", uint16(count)},
			{"split.tensors.count", int32(tensors)}}
	}
	beside := func(first string, meta []Entry, tensor string) {
		second := write("x", meta, tensor, 2)
		if err := os.Rename(second, strings.Replace(first, "00001", "00002", 1)); err != nil {
			t.Fatal(err)
		}
	}
	first := write("m-00001-of-00002.gguf", split(0, 2, 2), "a", 1)
	beside(first, split(1, 2, 2), "b")
	f := open(t, first)
	if a, b := numbers(t, f, "a"), numbers(t, f, "b"); a[0] != 1 || b[0] != 2 {
		t.Errorf("found %v and %v", a, b)
	}
	second := strings.Replace(first, "00001", "00002", 1)
	for _, c := range []struct {
		path   string
		change func()
		want   string
	}{
		{second, func() {}, "split.no: found 1, want 0: name the first of the 2 files"},
		{write("other.gguf", split(0, 2, 2), "a", 1), func() {}, "want a file whose name ends with -00001-of-00002.gguf"},
		{first, func() { beside(first, split(1, 2, 2), "a") }, "tensor a: found it in two files"},
		{first, func() { beside(first, split(2, 3, 2), "b") }, "split.no: found 2, want 1"},
		{first, func() { os.Remove(second) }, "m-00002-of-00002.gguf: no such file"},
		{write("m-00001-of-00001.gguf", split(0, 0, 2), "a", 1), func() {}, "split.count: found 0, want 1 to 99999"},
	} {
		c.change()
		if _, err := Open(c.path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestHugeCountsTakeNoMemory: what a file says of its sizes is believed as far as the file has bytes for them.
func TestHugeCountsTakeNoMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small.gguf")
	small(t, path)
	b := expect.Bytes(t, path)
	for at := range len(b) - 8 {
		file := change(b, at, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0) // 2^40
		var before, behind runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Read(bytes.NewReader(file), int64(len(file)))
		runtime.ReadMemStats(&behind)
		if took := behind.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Fatalf("2^40 at byte %d: %d bytes allocated", at, took)
		}
	}
}

func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), "small.gguf")
	small(f, path)
	b := expect.Bytes(f, path)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, tensor := range file.Tensors {
			if tensor.bytes() > int64(len(b)) {
				t.Fatalf("tensor %s of %d bytes in a file of %d", tensor.Name, tensor.bytes(), len(b))
			}
			if err := file.Read(&tensor, make([]float32, tensor.Size())); err != nil {
				t.Fatal(err)
			}
		}
	})
}
