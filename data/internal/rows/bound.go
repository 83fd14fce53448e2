package rows

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"runtime/debug"

	"github.com/posttrain/posttrain/data/internal/pages"
)

// The bounds of one row. A larger one is a damaged file, not a training example.
const (
	MaxRowBytes  = pages.MaxRowBytes  // of text
	MaxRowValues = pages.MaxRowValues // of JSON, and of a list in parquet
)

// What a packed file (.gz, .parquet) may hold unpacked: slack and ten times its size. The rows of a file are kept
// in memory, and few bytes can unpack to more than there is.
const (
	slack    = 64 << 20
	unpacks  = 10
	rowBytes = 192 // what a row takes beside its text
)

// bound counts down what a packed file may still unpack to.
type bound struct{ most, left int64 }

// bind is the bound of a file with a size in bytes.
func bind(size int64) *bound {
	most := slack + unpacks*size
	return &bound{most, most}
}

// longest is the most bytes of a row; b is nil for a file that is not packed.
func (b *bound) longest() int {
	if b == nil {
		return MaxRowBytes
	}
	return pages.RowBytes(b.most)
}

// collectOften makes the garbage collector keep near to what the reading of a packed file may take; restore ends that.
func (b *bound) collectOften() (restore func()) {
	if b == nil {
		return func() {}
	}
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(before, int64(now.HeapAlloc)+2*b.most))
	return func() { debug.SetMemoryLimit(before) }
}

func (b *bound) take(n int) error {
	if b == nil {
		return nil
	}
	if b.left -= int64(n); b.left < 0 {
		return fmt.Errorf("the file unpacks to more than %s, which is much for its size: want it unpacked, as .jsonl",
			pages.Bytes(b.most))
	}
	return nil
}

// unzipped reads the members of a gzip file, which may be followed by zeros but by nothing else.
type unzipped struct {
	in    *bufio.Reader
	z     *gzip.Reader
	bound *bound
}

func unzip(r io.Reader, b *bound) (*unzipped, error) {
	u := &unzipped{in: bufio.NewReader(r), bound: b}
	var err error
	if u.z, err = gzip.NewReader(u.in); err != nil {
		return nil, err
	}
	u.z.Multistream(false)
	return u, nil
}

func (u *unzipped) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	if over := u.bound.take(n); over != nil {
		return 0, over
	}
	if err == io.EOF {
		err = u.next()
	}
	return n, err
}

// next begins the next member; io.EOF says that there is no other.
func (u *unzipped) next() error {
	for {
		b, err := u.in.ReadByte()
		if err != nil {
			return err
		}
		if b != 0 {
			break
		}
	}
	u.in.UnreadByte()
	if head, _ := u.in.Peek(2); !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return errors.New("other bytes follow the compressed data: want only gzip in the file")
	}
	if err := u.z.Reset(u.in); err != nil {
		return io.ErrUnexpectedEOF
	}
	u.z.Multistream(false)
	return nil
}

// keeper measures the rows of a parquet file and keeps one copy of a text that many rows have: a dictionary can name a
// long text in a byte.
type keeper struct {
	bound  *bound
	copies bound // of texts, which take time
	texts  map[string]string
	kept   int // bytes of texts
	size   int // of the row
}

// The shortest text that is worth a look-up, and the bytes of texts to look among.
const (
	shortestKept = 64
	mostKept     = 16 << 20
	mostCopies   = 16 // what all texts may take with their copies, in times of what they take without
)

func newKeeper(b *bound) *keeper {
	return &keeper{bound: b, copies: bound{b.most * mostCopies, b.most * mostCopies}, texts: map[string]string{}}
}

// row takes the size of a row from the bound.
func (k *keeper) row(fields map[string]any) error {
	k.size = rowBytes
	text := 0
	for name, value := range fields {
		fields[name] = k.value(value)
		text += textIn(reflect.ValueOf(value))
	}
	if most := k.bound.longest(); text > most {
		return fmt.Errorf("%d MiB of text: want at most %d MiB in a row", text>>20, most>>20)
	}
	return cmp.Or(k.bound.take(k.size), k.copies.take(text))
}

// value adds the size of a value, and returns it with the copies of its texts that are kept.
func (k *keeper) value(value any) any {
	k.size += 16
	switch v := value.(type) {
	case string:
		return k.text(v)
	case []any:
		for i := range v {
			v[i] = k.value(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = k.value(v[name])
		}
	default:
		k.size += textIn(reflect.ValueOf(value))
	}
	return value
}

func (k *keeper) text(s string) string {
	if len(s) >= shortestKept {
		if kept, ok := k.texts[s]; ok {
			return kept
		}
		if k.kept += len(s); k.kept > mostKept {
			k.texts, k.kept = map[string]string{}, len(s)
		}
		k.texts[s] = s
	}
	k.size += len(s)
	return s
}

// textIn counts the bytes of text in a value.
func textIn(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return textIn(v.Elem())
	case reflect.String:
		return v.Len()
	case reflect.Map:
		for _, value := range v.Seq2() {
			n += textIn(value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += textIn(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Len()
		}
		for i := range v.Len() {
			n += textIn(v.Index(i))
		}
	}
	return n
}
