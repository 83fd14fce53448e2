package model

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/posttrain/posttrain/internal/files"
)

// maxHeader limits the JSON header of a safetensors file, as the reference implementation does.
const maxHeader = 100 << 20

// dtypeSizes are the sizes of the format's element types in bytes. Tensors of a few types only can be read.
var dtypeSizes = map[string]int{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
	"I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8, "C64": 8,
}

// tensorInfo is a tensor's entry in the header.
type tensorInfo struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"` // bytes from the end of the header
}

// tensorHeader is a file's table of contents.
type tensorHeader struct {
	Tensors map[string]tensorInfo
	Meta    map[string]string
	Start   int64 // file offset of the first tensor byte
}

// namesByOffset lists the tensors' names by their place in the file.
func (h *tensorHeader) namesByOffset() []string {
	return slices.SortedFunc(maps.Keys(h.Tensors), func(a, b string) int {
		x, y := h.Tensors[a].Offsets, h.Tensors[b].Offsets
		return cmp.Or(slices.Compare(x[:], y[:]), cmp.Compare(a, b))
	})
}

// readHeader reads and checks the header of a safetensors file of the given size: 8 bytes with the header's length, the
// header as JSON, then the data without gaps or overlaps up to the file's end.
func readHeader(r io.ReaderAt, fileSize int64) (*tensorHeader, error) {
	var length [8]byte
	if fileSize < 8 {
		return nil, fmt.Errorf("found %d bytes, want a safetensors file (8 bytes of header length first)", fileSize)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, fmt.Errorf("header length: %w", cause(err))
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, fmt.Errorf("header length: found %d bytes, want at most %d: not a safetensors file", n, maxHeader)
	}
	if int64(n) > fileSize-8 {
		return nil, fmt.Errorf("truncated: the header says %d bytes, the file has %d after it", n, fileSize-8)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil && err != io.EOF {
		return nil, fmt.Errorf("header: %w", cause(err))
	}
	h, err := parseHeader(text)
	if err != nil {
		return nil, err
	}
	h.Start = 8 + int64(n)
	return h, h.checkLayout(fileSize - h.Start)
}

func parseHeader(text []byte) (*tensorHeader, error) {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, fmt.Errorf("header: not a JSON object: %v", err)
	}
	h := &tensorHeader{Tensors: map[string]tensorInfo{}}
	for name, entry := range entries {
		if name == "__metadata__" {
			if err := json.Unmarshal(entry, &h.Meta); err != nil {
				return nil, fmt.Errorf("header: __metadata__: want an object of strings: %v", err)
			}
			continue
		}
		info, err := parseEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		h.Tensors[name] = info
	}
	return h, nil
}

func parseEntry(entry json.RawMessage) (tensorInfo, error) {
	var t tensorInfo
	if err := json.Unmarshal(entry, &t); err != nil {
		return t, fmt.Errorf("header entry: %v", err)
	}
	width, ok := dtypeSizes[t.DType]
	if !ok {
		return t, fmt.Errorf("dtype: found %q, want a safetensors type such as F32, F16 or BF16", t.DType)
	}
	want := int64(width)
	for _, d := range t.Shape {
		if d < 0 || d > 1<<40 || (d > 0 && want > (1<<50)/int64(d)) {
			return t, fmt.Errorf("shape: found %v, want 0 or more elements, at most 2^50 bytes", t.Shape)
		}
		want *= int64(d)
	}
	if t.Offsets[0] < 0 || t.Offsets[1] < t.Offsets[0] || t.Offsets[1]-t.Offsets[0] != want {
		return t, fmt.Errorf("data_offsets: found %v, want %d bytes for %s %v", t.Offsets, want, t.DType, t.Shape)
	}
	return t, nil
}

// checkLayout checks that the tensors fill the file's data without gaps or overlaps.
func (h *tensorHeader) checkLayout(dataBytes int64) error {
	end := int64(0)
	for _, name := range h.namesByOffset() {
		o := h.Tensors[name].Offsets
		if o[1] > dataBytes {
			return fmt.Errorf("truncated: tensor %s ends at byte %d of the data, the file has %d", name, o[1],
				dataBytes)
		}
		if o[0] < end {
			return fmt.Errorf("tensor %s: its bytes overlap another tensor's", name)
		}
		if o[0] > end {
			return fmt.Errorf("tensor %s: %d unused bytes before it", name, o[0]-end)
		}
		end = o[1]
	}
	if end != dataBytes {
		return fmt.Errorf("found %d bytes after the last tensor, want none", dataBytes-end)
	}
	return nil
}

// tensorFile is an open safetensors file.
type tensorFile struct {
	*tensorHeader
	label  string // the file's name in errors
	data   io.ReaderAt
	closer io.Closer
}

// openTensors opens a file of fsys, which errors call label.
func openTensors(fsys fs.FS, path, label string) (*tensorFile, error) {
	f, err := files.Open(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, cause(err))
	}
	t, err := newTensorFile(f, label)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	return t, nil
}

func newTensorFile(f fs.File, label string) (*tensorFile, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, cause(err)
	}
	size := info.Size()
	r, ok := f.(io.ReaderAt) // as files of os.DirFS and embed.FS are; others are read whole
	if !ok {
		b, err := io.ReadAll(f)
		if err != nil {
			return nil, cause(err)
		}
		r, size = bytes.NewReader(b), int64(len(b))
	}
	h, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	return &tensorFile{tensorHeader: h, label: label, data: r, closer: f}, nil
}

func (t *tensorFile) Close() error { return t.closer.Close() }

// floats reads a tensor of F32, F16 or BF16 into out, which has its length.
func (t *tensorFile) floats(name string, out []float32) error {
	info := t.Tensors[name]
	decode, ok := floatDecoders[info.DType]
	if !ok {
		return fmt.Errorf("%s: tensor %s: dtype %s, supported are F32, F16 and BF16", t.label, name, info.DType)
	}
	return t.read(name, func(b []byte, at int) { decode(b, out[at:]) })
}

// read calls use for each piece of a tensor's bytes, with the index of the piece's first element.
func (t *tensorFile) read(name string, use func(b []byte, at int)) error {
	info := t.Tensors[name]
	width := dtypeSizes[info.DType]
	buf := make([]byte, min(1<<20, info.Offsets[1]-info.Offsets[0]))
	for off := info.Offsets[0]; off < info.Offsets[1]; off += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), info.Offsets[1]-off)]
		if n, err := t.data.ReadAt(b, t.Start+off); n < len(b) {
			return fmt.Errorf("%s: tensor %s: %w", t.label, name, cause(err))
		}
		use(b, int(off-info.Offsets[0])/width)
	}
	return nil
}
