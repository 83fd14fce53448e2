package data

import (
	"bufio"
	"io"
	"io/fs"
)

// PythonRows is JSONRows for files that Python's json has written, which writes NaN for a number that is missing: it is
// read as null.
func PythonRows(fsys fs.FS, name string, columns ...string) RowSeq {
	return stream(fsys, name, func(f format, in source) RowSeq {
		if ext, _ := FormOf(name); ext != ".parquet" {
			in.content = &withoutNaN{in: bufio.NewReader(in.content)}
		}
		return f.raw(in, columns)
	})
}

// withoutNaN has null for each NaN that is not in a string.
type withoutNaN struct {
	in              *bufio.Reader
	quoted, escaped bool
	rest            string // of a null
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
		if ahead, _ := r.in.Peek(2); string(ahead) == "aN" {
			r.in.Discard(2)
			r.rest = "ull"
			return 'n'
		}
	}
	return b
}
