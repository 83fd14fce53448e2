package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// TestShards: files of at most a limit, with transformers' names and index, are read back; so is a single file again.
func TestShards(t *testing.T) {
	m, dir := tiny(t, "llama"), t.TempDir()
	if err := m.Save(dir, "float32"); err != nil { // what is replaced
		t.Fatal(err)
	}
	const most = 5000 // the embedding is larger
	sums := map[string][]byte{}
	w := Writer{MaxBytes: most, Wrote: func(path string, size int64, sum []byte) {
		sums[path] = sum
		if info, err := os.Stat(path); err != nil || info.Size() != size {
			t.Errorf("%s: %v, %d bytes instead of those of %v", path, err, size, info)
		}
	}}
	if err := w.Save(m, dir, "bfloat16"); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "model-*-of-*.safetensors"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v: want several shards", files, err)
	}
	for i, file := range files {
		b, err := os.ReadFile(file)
		if sum := sha256.Sum256(b); err != nil || !bytes.Equal(sum[:], sums[file]) {
			t.Errorf("%s, %v: another SHA-256 than was computed while writing", file, err)
		}
		tensors, _, err := ReadTensors(file)
		if err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		for _, x := range tensors {
			size += x.bytes("BF16")
		}
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(files))
		if size > most && len(tensors) > 1 || filepath.Base(file) != name {
			t.Errorf("%s has %d bytes in %d tensors", file, size, len(tensors))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, weightsFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the single file is still there, %v: readers prefer it", err)
	}
	var index struct {
		Metadata map[string]int64
		Files    map[string]string `json:"weight_map"`
	}
	b, err := os.ReadFile(filepath.Join(dir, "model.safetensors.index.json"))
	if err == nil {
		err = json.Unmarshal(b, &index)
	}
	if err != nil || len(index.Files) != len(m.Params) || index.Metadata["total_size"] != 2*count(m) {
		t.Errorf("index %s, %v", b, err)
	}
	for _, name := range slices.Sorted(maps.Keys(index.Files)) {
		if !slices.Contains(files, filepath.Join(dir, index.Files[name])) {
			t.Errorf("tensor %s is in %s", name, index.Files[name])
		}
	}
	sharded, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	single := t.TempDir()
	if err := sharded.Save(single, "bfloat16"); err != nil {
		t.Fatal(err)
	}
	whole, err := Load(single)
	if err != nil || !reflect.DeepEqual(whole.Params, sharded.Params) {
		t.Errorf("%v: the weights differ from those of one file", err)
	}
}

func count(m *Model) (n int64) {
	for _, p := range m.Params {
		n += int64(len(p.Data))
	}
	return n
}

// TestTensorShards: what is no model, such as moments, has shards too.
func TestTensorShards(t *testing.T) {
	path := filepath.Join(t.TempDir(), "moments.safetensors")
	var want []Tensor
	for _, name := range []string{"a", "b", "c"} {
		want = append(want, Tensor{Name: name, Shape: []int{2}, Floats: []float32{1, float32(len(want))}})
	}
	if err := (Writer{MaxBytes: 16}).WriteTensors(path, want, map[string]string{"step": "7"}); err != nil {
		t.Fatal(err)
	}
	got, meta, err := ReadTensors(path)
	if err != nil || !reflect.DeepEqual(got, want) || meta["step"] != "7" {
		t.Fatalf("%v, %v, %v", got, meta, err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(path), "moments-00002-of-00002.safetensors")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadTensors(path); err == nil {
		t.Error("a shard is missing: no error")
	}
}
