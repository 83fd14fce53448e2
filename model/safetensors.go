package model

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/posttrain/posttrain/internal/files"
)

// Bounds of the JSON header of a safetensors file, the first as in the reference implementation. A hundred bytes of
// header are a tensor; models have some thousand in a file.
const (
	maxHeader  = 100 << 20
	maxTensors = 1 << 17
	maxEntry   = 1 << 10 // bytes of a tensor's entry
	maxMeta    = 8 << 20 // bytes of the metadata
)

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

// namesByOffset lists the tensors' names by their offset in the file.
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
		return nil, fmt.Errorf("header length: %w", files.Cause(err))
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
		return nil, fmt.Errorf("header: %w", files.Cause(err))
	}
	h, err := parseHeader(text)
	if err != nil {
		return nil, err
	}
	h.Start = 8 + int64(n)
	return h, h.checkLayout(fileSize - h.Start)
}

// parseHeader reads the entries one after the other: a map of them all would take many times the text.
func parseHeader(text []byte) (*tensorHeader, error) {
	h, seen := &tensorHeader{Tensors: map[string]tensorInfo{}}, map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(text))
	begin, err := dec.Token()
	if err == nil && begin != json.Delim('{') {
		return nil, fmt.Errorf("header: not a JSON object: it begins with %v", begin)
	}
	for err == nil && dec.More() {
		var key json.Token
		var entry json.RawMessage
		if key, err = dec.Token(); err == nil {
			err = dec.Decode(&entry)
		}
		if err != nil {
			break
		}
		name := key.(string) // More and Token give nothing else
		if seen[name] {
			return nil, fmt.Errorf("header: found %s twice, want each name once", name)
		}
		if seen[name] = true; len(seen) > maxTensors {
			return nil, fmt.Errorf("header: found more than %d tensors", maxTensors)
		}
		if err := h.add(name, entry); err != nil {
			return nil, err
		}
	}
	if err == nil {
		_, err = dec.Token() // the last brace
	}
	if err == nil {
		if _, err = dec.Token(); err == io.EOF {
			return h, nil
		}
		err = cmp.Or(err, errors.New("more text follows it"))
	}
	return nil, fmt.Errorf("header: not a JSON object: %v", err)
}

// add takes an entry of the header.
func (h *tensorHeader) add(name string, entry []byte) (err error) {
	if name != "__metadata__" {
		if h.Tensors[name], err = parseEntry(entry); err != nil {
			return fmt.Errorf("tensor %s: %w", name, err)
		}
		return nil
	}
	if len(entry) > maxMeta {
		return fmt.Errorf("header: __metadata__: found %d bytes, want at most %d", len(entry), maxMeta)
	}
	if err := json.Unmarshal(entry, &h.Meta); err != nil {
		return fmt.Errorf("header: __metadata__: want an object of strings: %v", err)
	}
	return nil
}

func parseEntry(entry []byte) (tensorInfo, error) {
	var t tensorInfo
	if len(entry) > maxEntry {
		return t, fmt.Errorf("header entry: found %d bytes, want at most %d", len(entry), maxEntry)
	}
	if err := json.Unmarshal(entry, &t); err != nil {
		return t, fmt.Errorf("header entry: %v", err)
	}
	if bytes.Count(entry, []byte{'"'}) != 8 { // of three keys and a value: other readers take another one of two
		return t, fmt.Errorf("header entry: found %s, want dtype, shape and data_offsets, each once", entry)
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
	file   fs.File
	opened fs.FileInfo // at opening
}

// openTensorFile opens a file of fsys, which errors call label.
func openTensorFile(fsys fs.FS, path, label string) (*tensorFile, error) {
	f, err := files.Open(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, files.Cause(err))
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
		return nil, files.Cause(err)
	}
	size := info.Size()
	r, ok := f.(io.ReaderAt) // as files of os.DirFS and embed.FS are; others are read whole
	if !ok {
		b, err := io.ReadAll(f)
		if err != nil {
			return nil, files.Cause(err)
		}
		r, size = bytes.NewReader(b), int64(len(b))
	}
	h, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	return &tensorFile{tensorHeader: h, label: label, data: r, file: f, opened: info}, nil
}

func (t *tensorFile) Close() error { return t.file.Close() }

// decoder turns a tensor's bytes into float32.
func (t *tensorFile) decoder(name string) (func(b []byte, out []float32), error) {
	dtype := t.Tensors[name].DType
	decode, ok := floatDecoders[dtype]
	if !ok {
		return nil, fmt.Errorf("%s: tensor %s: dtype %s, supported are F64, F32, F16 and BF16", t.label, name, dtype)
	}
	return decode, nil
}

// floats calls use for each piece of a tensor of F64, F32, F16 or BF16, with the index of its first element.
func (t *tensorFile) floats(name string, use func(x []float32, at int) error) error {
	decode, err := t.decoder(name)
	if err != nil {
		return err
	}
	p := stretches.Get().(*stretch)
	defer stretches.Put(p)
	return t.read(name, p.bytes[:], func(b []byte, at int) error {
		x := p.floats[:len(b)/dtypeSizes[t.Tensors[name].DType]]
		decode(b, x)
		return use(x, at)
	})
}

// weights is floats of a tensor that must be finite.
func (t *tensorFile) weights(name string, use func(x []float32, at int)) error {
	return t.floats(name, func(x []float32, at int) error {
		for i, v := range x {
			if v-v != 0 {
				return fmt.Errorf("%s: tensor %s: found %v at element %d, want finite weights", t.label, name, v, at+i)
			}
		}
		use(x, at)
		return nil
	})
}

// read calls use for each piece of a tensor's bytes, with the index of the piece's first element. It reads into memory,
// which has room for stretchSize elements.
func (t *tensorFile) read(name string, memory []byte, use func(b []byte, at int) error) error {
	info := t.Tensors[name]
	width := dtypeSizes[info.DType]
	size := int64(stretchSize * width)
	for off := info.Offsets[0]; off < info.Offsets[1]; off += size {
		b := memory[:min(size, info.Offsets[1]-off)]
		n, err := t.data.ReadAt(b, t.Start+off)
		if changed := t.unchanged(); changed != nil {
			err, n = changed, 0
		}
		if n < len(b) {
			return fmt.Errorf("%s: tensor %s: %w", t.label, name, files.Cause(err))
		}
		if err := use(b, int(off-info.Offsets[0])/width); err != nil {
			return err
		}
	}
	return nil
}

// unchanged refuses a file that is not as it was when its header was read: its tensors may lie elsewhere now, or be of
// another training step. A file that was replaced by another of its name is still open, and unchanged.
func (t *tensorFile) unchanged() error {
	now, err := t.file.Stat()
	if err != nil {
		return err
	}
	if now.Size() != t.opened.Size() || !now.ModTime().Equal(t.opened.ModTime()) {
		return fmt.Errorf("the file has changed since it was opened (%d bytes then, %d now): want one that nobody "+
			"writes while it is read", t.opened.Size(), now.Size())
	}
	return nil
}

// stretchSize is the number of elements that are read at once.
const stretchSize = 1 << 16

// stretch is memory for a piece of a tensor, as it is stored and in float32.
type stretch struct {
	bytes  [8 * stretchSize]byte
	floats [stretchSize]float32
}

var stretches = sync.Pool{New: func() any { return new(stretch) }}
