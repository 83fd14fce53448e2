package data

import (
	"bufio"
	"io"
	"io/fs"
)

// PythonRows is JSONRows for files that Python's json has written, which writes NaN for a number that is missing: it is
// read as null.
func PythonRows(fsys fs.FS, name string, columns ...string) RowSeq {
	return streamRows(fsys, name, func(f format, in source) RowSeq {
		if ext, _ := FormOf(name); ext == ".json" || ext == ".jsonl" {
			in.content = &withoutNaN{in: bufio.NewReader(in.content), as: "null"}
		}
		return f.raw(in, columns)
	})
}

// notFinite is JSON for the NaN and Infinity of Python: no float64 holds it.
const notFinite = "1e99999"

// asNumbers gives Python's JSON in which NaN and Infinity are numbers that are not finite.
func asNumbers(in io.Reader) io.Reader { return &withoutNaN{in: bufio.NewReader(in), as: notFinite} }

// withoutNaN has something else for each NaN, or Infinity, that is not in a string.
type withoutNaN struct {
	in              *bufio.Reader
	as              string // null, or notFinite
	quoted, escaped bool
	rest            string // of it
}

func (r *withoutNaN) Read(p []byte) (n int, err error) {
	for ; n < len(p); n++ {
		if r.rest != "" {
			p[n], r.rest = r.rest[0], r.rest[1:]
			continue
		}
		b, err := r.in.ReadByte()
		if err != nil && n > 0 && err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		p[n] = r.next(b)
	}
	return n, nil
}

// next is what stands for a byte; more may be in rest.
func (r *withoutNaN) next(b byte) byte {
	switch {
	case r.escaped:
		r.escaped = false
	case r.quoted && b == '\\':
		r.escaped = true
	case b == '"':
		r.quoted = !r.quoted
	case b == 'N' && !r.quoted:
		return r.replace(b, "aN")
	case b == 'I' && !r.quoted && r.as == notFinite:
		return r.replace(b, "nfinity")
	}
	return b
}

// replace takes a word that begins with b.
func (r *withoutNaN) replace(b byte, rest string) byte {
	if ahead, _ := r.in.Peek(len(rest)); string(ahead) != rest {
		return b
	}
	r.in.Discard(len(rest))
	r.rest = r.as[1:]
	return r.as[0]
}
