package hlo

import (
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	return expect.Bytes(t, filepath.Join("testdata", name))
}

// TestKernels: kernels of three programs for an H100, which `go test ./internal/backend -run Device -update` writes, with
// numbers by hand. product is exp(x·y) of bfloat16 [1024, 2048] and [2048, 512]; loop multiplies [256, 256] by five slices
// of an array, one after the other, and keeps each result; mesh sums products of [8, 128] and [8, 128] over eight devices.
func TestKernels(t *testing.T) {
	const d = 4 * 256 * 256 // bytes of a matrix of the loop
	for _, tc := range []struct {
		name    string
		devices int
		want    []Kernel
	}{
		{"product", 1, []Kernel{
			{Kind: "__cublas$lt$matmul", Times: 1, Flops: 2 * 1024 * 2048 * 512, Bytes: 2 * (1024*2048 + 2048*512 + 1024*512), Short: true},
			{Kind: "fusion", Times: 1, Bytes: 2 * 2 * 1024 * 512},
		}},
		{"loop", 1, []Kernel{
			{Kind: "copy", Times: 1, Bytes: 8},
			{Kind: "copy", Times: 1, Bytes: 2 * d},
			{Kind: "fusion", Times: 5, Bytes: 2*d + 4}, // takes a slice
			{Kind: "__cublas$lt$matmul", Times: 5, Flops: 2 * 256 * 256 * 256, Bytes: 3 * d},
			{Kind: "fusion", Times: 5, Bytes: 2*d + 4}, // puts a slice
			{Kind: "fusion", Times: 5, Bytes: 8},
			{Kind: "copy", Times: 5, Bytes: 2 * d},
		}},
		{"mesh", 8, []Kernel{
			{Kind: "__cublas$lt$matmul", Times: 1, Flops: 2 * 8 * 128 * 128, Bytes: 4 * (2*8*128 + 128*128)},
			{Kind: "all-reduce", Times: 1, Bytes: 2 * 4 * 128 * 128, Moved: 2 * 7. / 8 * 4 * 128 * 128},
		}},
	} {
		m, err := Read(readFile(t, tc.name+".pb"))
		if err != nil {
			t.Fatal(tc.name, err)
		}
		got := m.Kernels(tc.devices)
		if len(got) != len(tc.want) {
			t.Errorf("%s: %+v", tc.name, got)
			continue
		}
		for i, k := range got {
			if k.Name = ""; k != tc.want[i] {
				t.Errorf("%s: kernel %d: %+v, want %+v", tc.name, i, k, tc.want[i])
			}
		}
	}
}

// FuzzRead: no text makes it panic, and what it reads can be counted.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"product.pb", "loop.pb", "mesh.pb"} {
		f.Add(readFile(f, name))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := Read(text); err == nil {
			m.Kernels(2)
		}
	})
}
