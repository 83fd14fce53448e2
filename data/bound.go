package data

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/big"
	"reflect"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/data/internal/pages"
)

// The bounds of one row. A larger one is a damaged file, not a training example.
const (
	MaxRowBytes  = 64 << 20 // of text
	MaxRowValues = 1 << 18  // of JSON, and of a table
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
	return int(min(MaxRowBytes, b.most/4)) // there are a few copies of a row
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

func (u *unzipped) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil && len(p) > 0 { // any number of members may be empty
		n, err = u.z.Read(p)
		if over := u.bound.take(n); over != nil {
			return 0, over
		}
		if err == io.EOF {
			err = u.next()
		}
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
func (k *keeper) row(row parquet.Row) error {
	size, text := rowBytes, 0
	for _, v := range row {
		size += 16
		if kind := v.Kind(); kind != parquet.ByteArray && kind != parquet.FixedLenByteArray {
			continue
		}
		b := v.ByteArray()
		if text += len(b); k.keep(b) {
			size += len(b)
		}
	}
	switch most := k.bound.longest(); {
	case text > most:
		return fmt.Errorf("%d MiB of text: want at most %d MiB in a row", text>>20, most>>20)
	case len(row) > MaxRowValues:
		return fmt.Errorf("%d values: want at most %d in a row", len(row), MaxRowValues)
	}
	return cmp.Or(k.bound.take(size), k.copies.take(text))
}

// keep says that a text is not there yet, and keeps a long one.
func (k *keeper) keep(b []byte) bool {
	if len(b) < shortestKept {
		return true
	}
	if _, there := k.texts[string(b)]; there {
		return false
	}
	if k.kept += len(b); k.kept > mostKept {
		k.texts, k.kept = map[string]string{}, len(b)
	}
	s := string(b)
	k.texts[s] = s
	return true
}

// value is a value with the copies of its texts that are kept.
func (k *keeper) value(value any) any {
	switch v := value.(type) {
	case string:
		return cmp.Or(k.texts[v], v)
	case []any:
		for i := range v {
			v[i] = k.value(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = k.value(v[name])
		}
	case *big.Float:
		return pages.Number(v)
	default:
		if p := reflect.ValueOf(value); p.Kind() == reflect.Pointer { // as the values of maps are
			if plain, err := tidy("", p); err == nil {
				return k.value(plain)
			}
		}
	}
	return value
}
