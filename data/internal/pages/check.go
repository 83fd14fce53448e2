package pages

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/bits"

	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/format"
)

// The memory in bytes of a struct of the footer, and of a value of a page: levels, offset or index.
const (
	structBytes = 512
	levelBytes  = 10
)

// check compares the claims of a page's header with each other and with the bytes that are left of its column.
func (p *page) check(left int64) {
	packed, unpacked := p.CompressedPageSize, p.UncompressedPageSize
	want(packed >= 0 && unpacked >= 0 && int64(packed) <= left, "%d bytes, %d unpacked: its column has %d left", packed,
		unpacked, left)
	v2 := &p.DataPageHeaderV2
	switch {
	case p.Type == format.DictionaryPage && p.DictionaryPageHeader.Valid:
		want(p.values() <= int(unpacked), "a dictionary of %d values in %d bytes", p.values(), unpacked)
	case p.Type == format.DataPageV2 && v2.Valid:
		r, d, most := v2.V.RepetitionLevelsByteLength, v2.V.DefinitionLevelsByteLength, int64(min(packed, unpacked))
		want(r >= 0 && d >= 0 && int64(r)+int64(d) <= most, "levels of %d and %d bytes in a page of %d", r, d, most)
		want(v2.V.NumNulls >= 0 && v2.V.NumNulls <= v2.V.NumValues && v2.V.NumRows >= 0, "%d rows and %d nulls of %d values",
			v2.V.NumRows, v2.V.NumNulls, v2.V.NumValues)
	default:
		want(p.Type == format.IndexPage || p.Type == format.DataPage && p.DataPageHeader.Valid,
			"a page of type %v without its header", p.Type)
	}
	want(p.values() >= 0, "%d values", p.values())
}

func (p *page) values() int {
	switch p.Type {
	case format.DataPage:
		return int(p.DataPageHeader.V.NumValues)
	case format.DataPageV2:
		return int(p.DataPageHeaderV2.V.NumValues)
	}
	return int(p.DictionaryPageHeader.V.NumValues)
}

// cost is the memory that the page takes in bytes: here and in the library.
func (p *page) cost() int64 { return 2*int64(p.UncompressedPageSize) + levelBytes*int64(p.values()) }

// checkContent compares the counts inside an unpacked page with its header's.
func (p *page) checkContent(content []byte, most int64) {
	encoding, n := format.Plain, p.values()
	var repetitions, definitions []byte
	switch p.Type {
	case format.DataPage:
		encoding = p.DataPageHeader.V.Encoding
		if p.of.repetitions > 0 {
			repetitions, content = prefixed(content)
		}
		if p.of.definitions > 0 {
			definitions, content = prefixed(content)
		}
	case format.DataPageV2:
		h := &p.DataPageHeaderV2.V
		encoding = h.Encoding
		repetitions, content = content[:h.RepetitionLevelsByteLength], content[h.RepetitionLevelsByteLength:]
		definitions, content = content[:h.DefinitionLevelsByteLength], content[h.DefinitionLevelsByteLength:]
	}
	texts := n
	if p.Type != format.DictionaryPage {
		levels(repetitions, p.of.repetitions, n)
		if p.of.definitions > 0 {
			texts = bytes.Count(levels(definitions, p.of.definitions, n), []byte{byte(p.of.definitions)})
		}
	}
	if encoding == format.Plain && p.of.texts {
		countTexts(content, texts)
	}
	checkValues(encoding, content, n, most)
}

// countTexts compares the texts of a page, each after its length in four bytes, with their number. The library prints a
// line of its own where they differ.
func countTexts(content []byte, n int) {
	found := 0
	for ; len(content) >= 4; found++ {
		_, content = prefixed(content)
	}
	want(found == n, "found %d texts, and its header claims %d", found, n)
}

// prefixed splits off a part that begins with its length in four bytes.
func prefixed(content []byte) (part, rest []byte) {
	want(len(content) >= 4 && uint64(binary.LittleEndian.Uint32(content)) <= uint64(len(content)-4),
		"a text, or its levels, are longer than the page")
	end := 4 + binary.LittleEndian.Uint32(content)
	return content[4:end], content[end:]
}

// levels decodes the n levels of a page, of which most is the greatest; nil where there is one level.
func levels(text []byte, most, n int) (all []byte) {
	if most == 0 {
		return nil
	}
	width := bits.Len(uint(most))
	runs(text, width, n, func(count uint64, packed bool, values []byte) {
		for i := range count {
			at := uint64(0)
			if packed {
				at = i * uint64(width)
			}
			level := uint16(values[at/8])
			if at/8+1 < uint64(len(values)) {
				level |= uint16(values[at/8+1]) << 8
			}
			all = append(all, byte(level>>(at%8))&(1<<width-1))
		}
	})
	want(len(all) >= n, "%d of %d levels", len(all), n)
	return all[:n]
}

// runs visits the runs of equal values and of packed bits, which may hold a group of eight more than n values.
func runs(text []byte, width, n int, visit func(count uint64, packed bool, values []byte)) {
	for room := uint64(n) + 7; len(text) > 0; {
		header, k := binary.Uvarint(text)
		want(k > 0, "a run without its length")
		count, size, packed := header>>1, uint64(width+7)/8, header&1 == 1
		want(count <= room, "more than the %d values of the page's header", n)
		if packed {
			size, count = count*uint64(width), count*8
		}
		want(count <= room, "more than the %d values of the page's header", n)
		want(size <= uint64(len(text)-k), "a run longer than its page")
		if visit != nil {
			visit(count, packed, text[k:uint64(k)+size])
		}
		room, text = room-count, text[uint64(k)+size:]
	}
}

// checkValues compares the counts inside the values of a page with n, and what they unpack to with most bytes.
func checkValues(encoding format.Encoding, text []byte, n int, most int64) {
	switch encoding {
	case format.Plain, format.ByteStreamSplit:
	case format.PlainDictionary, format.RLEDictionary:
		if len(text) > 0 {
			want(text[0] <= 32, "dictionary indexes of %d bits", text[0])
			runs(text[1:], int(text[0]), n, nil)
		}
	case format.RLE:
		flags, _ := prefixed(text)
		runs(flags, 1, n, nil)
	case format.DeltaBinaryPacked:
		deltas(text, n)
	case format.DeltaLengthByteArray:
		lengths(text, n, most)
	case format.DeltaByteArray: // the lengths that texts share with the one before, and the lengths of their ends
		lengths(lengths(text, n, most), n, most)
	default:
		want(false, "the encoding %v is unknown", encoding)
	}
}

// lengths bounds the sum of packed lengths, for which the library makes room, and returns what follows them.
func lengths(text []byte, n int, most int64) []byte {
	rest, sum := deltas(text, n), int64(0)
	all, err := new(delta.BinaryPackedEncoding).DecodeInt32(nil, text)
	must(err)
	for _, length := range all {
		sum += max(0, int64(length))
	}
	want(sum <= most, "texts of %s: want at most %s", Bytes(sum), Bytes(most))
	return rest
}

// deltas walks numbers that are packed as differences, n at most, and returns what follows them.
func deltas(text []byte, n int) []byte {
	next := func() (x uint64) {
		x, k := binary.Uvarint(text)
		want(k > 0, "packed differences that end early")
		text = text[k:]
		return x
	}
	block, parts, left := next(), next(), next()
	next() // the first number
	want(left <= uint64(n), "%d numbers, its header claims %d", left, n)
	want(block <= 1<<16 && parts > 0 && parts <= block && block%parts == 0 && block/parts%8 == 0,
		"packed differences in blocks of %d with %d parts", block, parts)
	for left = max(left, 1) - 1; left > 0; {
		next() // the least difference
		want(uint64(len(text)) >= parts, "packed differences that end early")
		widths := text[:parts]
		text = text[parts:]
		for _, width := range widths {
			if left > 0 {
				want(width <= 64, "packed differences of %d bits", width)
				text = text[min(block/parts*uint64(width)/8, uint64(len(text))):]
				left -= min(block/parts, left)
			}
		}
	}
	return text
}

// maxNesting bounds how deep the structs of a footer nest, which needs seven, and the columns.
const maxNesting = 32

// checkSchema bounds how deep columns nest in a schema, which holds a tree in depth-first order.
func checkSchema(schema []format.SchemaElement) {
	type part struct {
		left  int32 // columns that it still has
		names map[string]bool
	}
	var open []part
	for _, e := range schema {
		want(len(open) <= maxNesting, "columns nest more than %d deep", maxNesting)
		if n := len(open); n > 0 {
			want(!open[n-1].names[e.Name], "the column %q is there twice: want each once", e.Name)
			open[n-1].names[e.Name] = true
		}
		if n := e.NumChildren; n.Valid && n.V > 0 {
			open = append(open, part{n.V, map[string]bool{}})
			continue
		}
		for len(open) > 0 {
			last := len(open) - 1
			if open[last].left--; open[last].left > 0 {
				break
			}
			open = open[:last]
		}
	}
}

// checkThrift walks a struct in thrift's compact form and returns its length. The library allocates as many elements
// as a list claims and calls itself for each level of nesting: structs bounds the elements that are structs or lists.
func checkThrift(text []byte, structs int64) (n int, err error) {
	defer Catch(&err)
	w := &walker{text: text, room: structs}
	w.value(12, 0)
	return w.at, nil
}

type walker struct {
	text []byte
	at   int
	room int64 // structs and lists that may follow
}

func (w *walker) skip(n uint64) {
	if n > uint64(len(w.text)-w.at) {
		panic(io.ErrUnexpectedEOF)
	}
	w.at += int(n)
}

func (w *walker) byte() byte {
	w.skip(1)
	return w.text[w.at-1]
}

func (w *walker) varint() uint64 {
	x, n := binary.Uvarint(w.text[w.at:])
	want(n >= 0, "a number of more than 64 bits")
	w.skip(uint64(max(n, 1))) // 0: the text ends in it
	return x
}

// value skips a value of a type of the compact form.
func (w *walker) value(kind byte, depth int) {
	want(depth <= maxNesting, "it nests more than %d deep", maxNesting)
	if kind >= 9 && kind <= 12 {
		w.room--
		want(w.room >= 0, "it has more parts than a file of its size")
	}
	switch kind {
	case 1, 2: // true and false: the type is the value
	case 3:
		w.skip(1)
	case 4, 5, 6:
		w.varint()
	case 7:
		w.skip(8)
	case 8:
		w.skip(w.varint())
	case 9, 10:
		w.list(depth)
	case 12:
		for b := w.byte(); b != 0; b = w.byte() {
			if b>>4 == 0 {
				w.varint() // the field's number
			}
			w.value(b&15, depth+1)
		}
	default:
		want(false, "a value of type %d", kind)
	}
}

func (w *walker) list(depth int) {
	b := w.byte()
	n, kind := uint64(b>>4), b&15
	if n == 15 {
		n = w.varint()
	}
	for range n {
		if kind == 1 || kind == 2 {
			w.skip(1)
		} else {
			w.value(kind, depth+1)
		}
	}
}
