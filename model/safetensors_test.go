package model

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func tiny(t testing.TB, modelType string, pairs ...any) *Model {
	t.Helper()
	c := expect.Must(ParseConfig(text(t, with(base(modelType), append([]any{"head_dim", 4, "sliding_window", nil},
		pairs...)...)), nil))(t)
	return Init(c, 1)
}

func TestSaveAndLoadAreBitIdentical(t *testing.T) {
	for _, kind := range Types {
		for _, dtype := range []string{"float32", "bfloat16", "float16"} {
			t.Run(kind+" "+dtype, func(t *testing.T) {
				m := tiny(t, kind, "tie_word_embeddings", kind == "qwen3")
				first, second := filepath.Join(t.TempDir(), "a"), t.TempDir()
				expect.OK(t, m.Save(first, dtype))
				again := expect.Must(Load(first))(t)
				if again.Config.DType != dtype || again.Config.TieEmbeddings != (kind == "qwen3") {
					t.Errorf("dtype %q tied %v", again.Config.DType, again.Config.TieEmbeddings)
				}
				if dtype == "float32" && !reflect.DeepEqual(m.Params, again.Params) {
					t.Error("weights changed")
				}
				expect.OK(t, again.Save(second, ""))
				sameFiles(t, first, second, "model.safetensors", "config.json", "generation_config.json")
			})
		}
	}
}

func sameFiles(t *testing.T, a, b string, names ...string) {
	t.Helper()
	for _, name := range names {
		x := expect.Bytes(t, filepath.Join(a, name))
		y := expect.Bytes(t, filepath.Join(b, name))
		if !bytes.Equal(x, y) {
			t.Errorf("%s differs after it is read and written again", name)
		}
	}
}

func TestSaveRefuses(t *testing.T) {
	m := tiny(t, "llama")
	if err := m.Save(t.TempDir(), "int8"); err == nil || !strings.Contains(err.Error(), `"int8"`) {
		t.Errorf("dtype int8: %v", err)
	}
	m.Params[1].Data[3] = 70000
	if err := m.Save(t.TempDir(), "float16"); err == nil || !strings.Contains(err.Error(),
		"model.layers.0.input_layernorm.weight") {
		t.Errorf("70000 in float16: %v", err)
	}
	file := expect.File(t, "file", "")
	if err := m.Save(filepath.Join(file, "dir"), "float32"); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("folder under a file: %v", err)
	}
}

// A failed write keeps the old file.
func TestWriteTensorsIsAtomic(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	good := []Tensor{{Name: "a", Shape: []int{2}, Floats: []float32{1, 2}}, {Name: "n", Ints: []int64{-5}}}
	expect.OK(t, WriteTensors(path, good, map[string]string{"step": "7"}))
	if err := WriteTensors(path, []Tensor{{Name: "a", Shape: []int{3}, Floats: []float32{1, 2}}}, nil); err == nil {
		t.Error("a shape that does not fit: got no error")
	}
	got, meta, err := ReadTensors(path)
	expect.OK(t, err)
	want := []Tensor{good[0], {Name: "n", Shape: []int{}, Ints: []int64{-5}}}
	if !reflect.DeepEqual(got, want) || meta["step"] != "7" {
		t.Errorf("%+v %v", got, meta)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("files left behind: %v", left)
	}
}

// shardedFolder saves m as two shards with an index, in memory.
func shardedFolder(t *testing.T, m *Model, dtype string) fstest.MapFS {
	t.Helper()
	config := expect.Must(m.Config.JSON(dtype))(t)
	fsys := fstest.MapFS{"config.json": {Data: config}}
	weights := map[string]string{}
	half := len(m.Params) / 2
	for i, params := range [][]*Param{m.Params[:half], m.Params[half:]} {
		name := fmt.Sprintf("model-%05d-of-00002.safetensors", i+1)
		var tensors []Tensor
		for _, p := range params {
			tensors = append(tensors, Tensor{Name: p.Name, Shape: p.Shape, Floats: p.Data})
			weights[p.Name] = name
		}
		var b bytes.Buffer
		expect.OK(t, encodeTensors(&b, tensors, fileDTypes[dtype], map[string]string{"format": "pt"}))
		fsys[name] = &fstest.MapFile{Data: b.Bytes()}
	}
	index := expect.Must(json.Marshal(map[string]any{"metadata": map[string]any{}, "weight_map": weights}))(t)
	fsys["model.safetensors.index.json"] = &fstest.MapFile{Data: index}
	return fsys
}

func TestLoadSharded(t *testing.T) {
	m := tiny(t, "qwen2")
	got := expect.Must(LoadFS(shardedFolder(t, m, "float32"), "dir"))(t)
	if !reflect.DeepEqual(got.Params, m.Params) {
		t.Error("weights changed")
	}
}

// noReaderAt hides that its files are io.ReaderAt.
type noReaderAt struct{ fs.FS }

type plainFile struct{ fs.File }

func (n noReaderAt) Open(name string) (fs.File, error) {
	f, err := n.FS.Open(name)
	return plainFile{f}, err
}

func TestLoadFromStreams(t *testing.T) {
	m := tiny(t, "llama")
	got := expect.Must(LoadFS(noReaderAt{shardedFolder(t, m, "float32")}, "dir"))(t)
	if !reflect.DeepEqual(got.Params, m.Params) {
		t.Error("weights changed")
	}
}

// rewrite builds the folder of m with tensors changed by change.
func rewrite(t *testing.T, m *Model, change func(ts []Tensor) []Tensor) fstest.MapFS {
	t.Helper()
	config := expect.Must(m.Config.JSON("float32"))(t)
	var ts []Tensor
	for _, p := range m.Params {
		ts = append(ts, Tensor{Name: p.Name, Shape: p.Shape, Floats: append([]float32(nil), p.Data...)})
	}
	var b bytes.Buffer
	expect.OK(t, encodeTensors(&b, change(ts), "F32", nil))
	return fstest.MapFS{"config.json": {Data: config}, "model.safetensors": {Data: b.Bytes()}}
}

func TestLoadRefuses(t *testing.T) {
	m := tiny(t, "llama")
	same := func(ts []Tensor) []Tensor { return ts }
	cases := map[string]struct {
		fsys fs.FS
		want string
	}{
		"no folder": {fstest.MapFS{}, "dir: cannot read config.json"},
		"no weights": {fstest.MapFS{"config.json": rewrite(t, m, same)["config.json"]},
			"dir: no weights: want model.safetensors"},
		"missing tensor": {rewrite(t, m, func(ts []Tensor) []Tensor { return append(ts[:2], ts[3:]...) }),
			"dir/model.safetensors: tensor model.layers.0.self_attn.q_proj.weight is missing"},
		"unknown tensor": {rewrite(t, m, func(ts []Tensor) []Tensor {
			return append(ts,
				Tensor{Name: "extra", Shape: []int{0}})
		}),
			"tensor extra: a llama model with this config has no such tensor"},
		"wrong shape": {rewrite(t, m, func(ts []Tensor) []Tensor { ts[2].Shape = []int{4, 64}; return ts }),
			"tensor model.layers.0.self_attn.q_proj.weight: found shape [4 64], want [16 16] by config.json"},
		"NaN": {rewrite(t, m, func(ts []Tensor) []Tensor { ts[4].Floats[5] = float32(math.NaN()); return ts }),
			"tensor model.layers.0.self_attn.v_proj.weight: found NaN at element 5"},
		"infinite": {rewrite(t, m, func(ts []Tensor) []Tensor { ts[0].Floats[0] = float32(math.Inf(1)); return ts }),
			"tensor model.embed_tokens.weight: found +Inf at element 0"},
		"whole numbers": {rewrite(t, m, func(ts []Tensor) []Tensor {
			ts[1] = Tensor{Name: ts[1].Name, Shape: ts[1].Shape, Ints: make([]int64, 16)}
			return ts
		}), "tensor model.layers.0.input_layernorm.weight: dtype I64, supported are F64, F32, F16 and BF16"},
	}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) { wantError(t, k.fsys, k.want) })
	}
	whole := rewrite(t, m, same)["model.safetensors"].Data
	for _, cut := range []int{0, 7, 8, 100, len(whole) / 2, len(whole) - 1} {
		fsys := rewrite(t, m, same)
		fsys["model.safetensors"].Data = whole[:cut]
		wantError(t, fsys, "dir/model.safetensors: ")
	}
	fsys := rewrite(t, m, same)
	fsys["model.safetensors"].Data = append(bytes.Clone(whole), 0)
	wantError(t, fsys, "dir/model.safetensors: found 1 bytes after the last tensor")
}

func wantError(t *testing.T, fsys fs.FS, want string) {
	t.Helper()
	_, err := LoadFS(fsys, "dir")
	expect.Error(t, err, want)
}

func TestIndexRefuses(t *testing.T) {
	m := tiny(t, "llama")
	for index, want := range map[string]string{
		`{`:                                     "not an index",
		`{"weight_map": {}}`:                    "weight_map: found nothing",
		`{"weight_map": {"a": "../etc/hosts"}}`: `found "../etc/hosts"`,
		`{"weight_map": {"a": "gone"}}`:         "dir/gone: file does not exist",
	} {
		fsys := shardedFolder(t, m, "float32")
		fsys["model.safetensors.index.json"].Data = []byte(index)
		wantError(t, fsys, want)
	}
}

// file prefixes a header with its length and appends data bytes.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestHeaderRefuses(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{`[]`, "header: not a JSON object"},
		{`{"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}}`,
			`tensor a: dtype: found "F31"`},
		{`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}`,
			"tensor a: data_offsets: found [0 8], want 4 bytes"},
		{`{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}`,
			"tensor a: shape: found [-1]"},
		{`{"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}}`,
			"tensor a: shape: found [4611686018427387904 4]"},
		{`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
			"b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}`,
			"tensor b: its bytes overlap"},
		{`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}`,
			"tensor a: 4 unused bytes before it"},
		{`{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}`,
			"truncated: tensor a ends at byte 16 of the data, the file has 8"},
		{`{"__metadata__": {"a": 1}}`, "__metadata__"},
		{`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}`, "header: not a JSON object"},
		{`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}} {}`, "header: not a JSON object"},
		{`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
			"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}`, "header: found a twice"},
		{`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], "dtype": "I32"}}`, "each once"},
		{`{"a": {"dtype": "F32", "DType": "I32", "shape": [2], "data_offsets": [0, 8]}}`, "each once"},
		{`{"a": {"dtype": "F32", "data_offsets": [0, 8], "shape": [` + strings.Repeat("1,", 1000) + `2]}}`,
			"tensor a: header entry: found 2054 bytes, want at most 1024"},
		{`{"__metadata__": {"a": "` + strings.Repeat("x", maxMeta) + `"}}`, "__metadata__: found 8388617 bytes"},
	} {
		b := file(c.header, 8)
		_, err := readHeader(bytes.NewReader(b), int64(len(b)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.200s: got %v, want %q", c.header, err, c.want)
		}
	}
}

// TestHeaderOfManyTensors: a header of a hundred MB, of entries of a few bytes, is counted while it is read.
func TestHeaderOfManyTensors(t *testing.T) {
	var b strings.Builder
	b.WriteString("{")
	for i := range maxTensors + 1 {
		fmt.Fprintf(&b, `"%d": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},`, i)
	}
	header := file(b.String(), 0)
	_, err := readHeader(bytes.NewReader(header), int64(len(header)))
	expect.Error(t, err, "header: found more than 131072 tensors")
}

func FuzzReadHeader(f *testing.F) {
	f.Add(file(`{"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, "a": {}, "b": []}`, 8))
	f.Add(file(`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {"format": "pt"}}`, 8))
	f.Add(file(`{"a": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}`, 8))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := fstest.MapFS{"x": {Data: b}}
		tf, err := openTensorFile(fsys, "x", "x")
		if err != nil {
			return
		}
		defer tf.Close()
		for _, name := range tf.namesByOffset() { // tensors of an accepted header can be read
			if _, err := tf.tensor(name); err != nil && !strings.Contains(err.Error(), "dtype") {
				t.Error(err)
			}
		}
	})
}

func TestInit(t *testing.T) {
	m, again, other := tiny(t, "qwen2"), tiny(t, "qwen2"), Init(tiny(t, "qwen2").Config, 2)
	if !reflect.DeepEqual(m.Params, again.Params) || reflect.DeepEqual(m.Params[0], other.Params[0]) {
		t.Error("want equal weights for equal seeds only")
	}
	sum := 0.0
	for _, v := range m.Params[0].Data {
		sum += float64(v) * float64(v)
	}
	if dev := math.Sqrt(sum / float64(len(m.Params[0].Data))); math.Abs(dev-0.02) > 0.002 {
		t.Errorf("deviation of the embedding %.4f, want 0.02", dev)
	}
	for _, p := range m.Params {
		if strings.HasSuffix(p.Name, "norm.weight") && (p.Data[0] != 1 || !p.NoDecay) ||
			strings.HasSuffix(p.Name, "bias") && (p.Data[0] != 0 || !p.NoDecay) {
			t.Errorf("%s: %v, no decay %v", p.Name, p.Data[0], p.NoDecay)
		}
	}
}

// full is a disk with room for this many bytes.
type full int

func (f *full) Write(b []byte) (int, error) {
	if *f -= full(len(b)); *f < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

func TestWriteFailureIsAnError(t *testing.T) {
	ts := []Tensor{{Name: "a", Shape: []int{100}, Floats: make([]float32, 100)},
		{Name: "n", Shape: []int{50}, Ints: make([]int64, 50)}}
	for _, room := range []full{4, 100, 500, 800} {
		if err := encodeTensors(&room, ts, "F32", nil); err == nil {
			t.Error("a full disk: got no error")
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte(`{"metadata": {"total_size": 8}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "x"}}`))
	f.Add([]byte(`{"weight_map": {"a": "../x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		shardOf, err := parseIndex(b)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %q", err)
		}
		for _, name := range shardOf {
			if strings.ContainsAny(name, "/") || !fs.ValidPath(name) {
				t.Errorf("file %q is outside of the folder", name)
			}
		}
	})
}

// A head that is missing, or stored although tied, as transformers 5 reads it: without a word in the config a missing one
// is the embedding's table; one that is stored counts, and is saved as what it is, unless it has the embedding's bits.
func TestTiedHead(t *testing.T) {
	untied, tied := tiny(t, "llama"), tiny(t, "llama", "tie_word_embeddings", true)
	withHead := func(of *Model) func(ts []Tensor) []Tensor {
		return func(ts []Tensor) []Tensor {
			table := of.Params[of.HeadTable()]
			return append(ts, Tensor{Name: headName, Shape: table.Shape, Floats: table.Data})
		}
	}
	for name, c := range map[string]struct {
		fsys fs.FS
		tied bool
	}{
		"no head":    {rewrite(t, tied, func(ts []Tensor) []Tensor { return ts }), true},
		"head twice": {rewrite(t, tied, withHead(tied)), true},
		"own head":   {rewrite(t, tied, withHead(untied)), false},
	} {
		m, err := LoadFS(c.fsys, "dir")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m.Config.TieEmbeddings != c.tied || (m.HeadTable() == m.EmbedTable()) != c.tied || len(m.Unread) > 0 {
			t.Errorf("%s: tied %v, head's table %d", name, m.Config.TieEmbeddings, m.HeadTable())
		}
		dir := t.TempDir()
		err = m.Save(dir, "")
		again, err2 := Load(dir)
		if err != nil || err2 != nil || again.Config.TieEmbeddings != c.tied ||
			!slices.Equal(again.Params[again.HeadTable()].Data, m.Params[m.HeadTable()].Data) {
			t.Errorf("%s: saved %+v, %v, %v", name, again, err, err2)
		}
	}
	_, err := LoadFS(rewrite(t, untied, func(ts []Tensor) []Tensor { return ts[:len(ts)-1] }), "dir")
	expect.Error(t, err, "dir/model.safetensors: tensor lm_head.weight is missing, though tie_word_embeddings is false")
	m, err := LoadFS(rewrite(t, tied, func(ts []Tensor) []Tensor {
		return append(ts, Tensor{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", Shape: []int{1}, Floats: []float32{1}})
	}), "dir")
	if err != nil || len(m.Unread) != 1 {
		t.Errorf("%v, want the name of a tensor that no one reads", err)
	}
	if untied.HeadTable() != len(untied.Params)-1 {
		t.Errorf("the head's table is %d of %d, want the last", untied.HeadTable(), len(untied.Params))
	}
}

// TestIndexDecides: of a tensor in two shards, as overlays leave them, the one that the index names counts.
func TestIndexDecides(t *testing.T) {
	m := tiny(t, "qwen2")
	half := len(m.Params) / 2
	var old []Tensor
	for i, p := range m.Params {
		floats := p.Data
		if i >= half {
			floats = make([]float32, len(p.Data))
		}
		old = append(old, Tensor{Name: p.Name, Shape: p.Shape, Floats: floats})
	}
	var b bytes.Buffer
	expect.OK(t, encodeTensors(&b, old, "F32", nil))
	fsys := shardedFolder(t, m, "float32")
	fsys["model-00001-of-00002.safetensors"].Data = b.Bytes()
	got := expect.Must(LoadFS(fsys, "dir"))(t)
	if !reflect.DeepEqual(got.Params, m.Params) || len(got.Unread) != len(m.Params)-half ||
		!strings.Contains(got.Unread[0], " of model-00001-of-00002.safetensors (the index says model-00002") {
		t.Errorf("weights changed, or not read: %v", got.Unread)
	}
	index := fsys["model.safetensors.index.json"]
	index.Data = bytes.Replace(index.Data, []byte(embedName+`":"model-00001`), []byte(embedName+`":"model-00002`), 1)
	wantError(t, fsys, "is missing, which the index says is there")
	fsys["model.safetensors.index.json"].Data = []byte(`{"weight_map": {"a": "model-00001-of-00002.safetensors",
		"b": "model-00002-of-00002.safetensors"}}`)
	wantError(t, fsys, "is in dir/model-00001-of-00002.safetensors and in dir/model-00002-of-00002.safetensors, and the index")
}

// TestFloat64 reads tensors of F64, rounded.
func TestFloat64(t *testing.T) {
	data := file(`{"a": {"dtype": "F64", "shape": [70000], "data_offsets": [0, 560000]}}`, 560000)
	binary.LittleEndian.PutUint64(data[len(data)-8:], math.Float64bits(1.0/3))
	f := expect.Must(newTensorFile(must(fstest.MapFS{"f": {Data: data}}.Open("f")), "f"))(t)
	n, last := 0, float32(0)
	expect.OK(t, f.floats("a", func(x []float32, at int) error { n, last = at+len(x), x[len(x)-1]; return nil }))
	if n != 70000 || last != float32(1.0/3) {
		t.Errorf("%d elements, the last %v", n, last)
	}
}
