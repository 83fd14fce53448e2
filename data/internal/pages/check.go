package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/format"
)

// The memory in bytes of a struct of the footer, and of a value of a page: levels, offset or index.
const (
	structBytes = 512
	valueBytes  = 10
)

// check compares the claims of a page's header with each other and with the bytes that are left of its column.
func (p *page) check(left int64) error {
	h := &p.header
	if h.CompressedPageSize < 0 || h.UncompressedPageSize < 0 || int64(h.CompressedPageSize) > left {
		return fmt.Errorf("%d bytes, %d unpacked: its column has %d left", h.CompressedPageSize, h.UncompressedPageSize,
			left)
	}
	switch d, v2 := &h.DictionaryPageHeader, &h.DataPageHeaderV2; {
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
	case h.Type == format.DictionaryPage && d.Valid:
		if d.V.NumValues > h.UncompressedPageSize {
			return fmt.Errorf("a dictionary of %d values in %d bytes", d.V.NumValues, h.UncompressedPageSize)
		}
	case h.Type == format.DataPageV2 && v2.Valid:
		r, d := v2.V.RepetitionLevelsByteLength, v2.V.DefinitionLevelsByteLength
		most := int64(min(h.CompressedPageSize, h.UncompressedPageSize))
		if r < 0 || d < 0 || int64(r)+int64(d) > most {
			return fmt.Errorf("levels of %d and %d bytes in a page of %d", r, d, most)
		}
		if v2.V.NumNulls < 0 || v2.V.NumNulls > v2.V.NumValues || v2.V.NumRows < 0 {
			return fmt.Errorf("%d rows and %d nulls of %d values", v2.V.NumRows, v2.V.NumNulls, v2.V.NumValues)
		}
	case h.Type != format.IndexPage:
		return fmt.Errorf("a page of type %v without its header", h.Type)
	}
	if p.values() < 0 {
		return fmt.Errorf("%d values", p.values())
	}
	return nil
}

func (p *page) values() int {
	h := &p.header
	switch h.Type {
	case format.DataPage:
		return int(h.DataPageHeader.V.NumValues)
	case format.DataPageV2:
		return int(h.DataPageHeaderV2.V.NumValues)
	}
	return int(h.DictionaryPageHeader.V.NumValues)
}

// cost is the memory that the page takes in bytes: here and in the library.
func (p *page) cost() int64 {
	return 2*int64(p.header.UncompressedPageSize) + valueBytes*int64(p.values())
}

// checkContent compares the counts inside an unpacked page with its header's.
func (p *page) checkContent(content []byte, most int64) error {
	encoding, n := format.Plain, p.values()
	repetitions, definitions := []byte(nil), []byte(nil)
	var err error
	switch h := &p.header; h.Type {
	case format.DictionaryPage:
		p.of.keepLengths(content)
		return p.countTexts(content, nil, n)
	case format.DataPage:
		encoding = h.DataPageHeader.V.Encoding
		if p.of.repetitions > 0 {
			if repetitions, content, err = prefixed(content); err != nil {
				return err
			}
		}
		if p.of.definitions > 0 {
			if definitions, content, err = prefixed(content); err != nil {
				return err
			}
		}
	case format.DataPageV2:
		encoding = h.DataPageHeaderV2.V.Encoding
		r, d := h.DataPageHeaderV2.V.RepetitionLevelsByteLength, h.DataPageHeaderV2.V.DefinitionLevelsByteLength
		repetitions, definitions, content = content[:r], content[r:r+d], content[r+d:]
	}
	if err := checkRuns(definitions, bits.Len(uint(p.of.definitions)), n); err != nil {
		return fmt.Errorf("definition levels: %w", err)
	}
	if err := checkValues(encoding, content, n, most); err != nil {
		return err
	}
	if encoding == format.Plain {
		if err := p.countTexts(content, definitions, n); err != nil {
			return err
		}
	}
	if p.of.repetitions == 0 || p.counted {
		return nil
	}
	p.counted = true
	return p.countRows(repetitions, definitions, textsOf(encoding, content), n, RowBytes(most))
}

// countTexts compares the texts of a page, each after its length in four bytes, with the values that are no nulls. The
// library prints a line of its own where they differ.
func (p *page) countTexts(content, definitions []byte, n int) error {
	if p.of.kind != format.ByteArray {
		return nil
	}
	if definitions != nil && p.of.definitions > 0 {
		levels, err := decodeLevels(definitions, p.of.definitions, n)
		if err != nil {
			return fmt.Errorf("definition levels: %w", err)
		}
		n = bytes.Count(levels, []byte{byte(p.of.definitions)})
	}
	found := 0
	for ; len(content) >= 4; found++ {
		_, rest, err := prefixed(content)
		if err != nil {
			return errors.New("a text is longer than the page")
		}
		content = rest
	}
	if found != n {
		return fmt.Errorf("found %d texts, and its header claims %d", found, n)
	}
	return nil
}

// prefixed splits off a part that begins with its length in four bytes.
func prefixed(content []byte) (part, rest []byte, err error) {
	if len(content) < 4 || uint64(binary.LittleEndian.Uint32(content)) > uint64(len(content)-4) {
		return nil, nil, errors.New("its levels are longer than the page")
	}
	end := 4 + binary.LittleEndian.Uint32(content)
	return content[4:end], content[end:], nil
}

// keepLengths notes how long the texts of a dictionary are.
func (c *chunk) keepLengths(dictionary []byte) {
	c.lengths = nil
	if c.repetitions == 0 || c.kind != format.ByteArray {
		return
	}
	for len(dictionary) >= 4 {
		n := binary.LittleEndian.Uint32(dictionary)
		if uint64(n) > uint64(len(dictionary)-4) {
			return // which the library reports
		}
		c.lengths, dictionary = append(c.lengths, int(n)), dictionary[4+n:]
	}
}

// textsOf is the part of a page that says which texts of the dictionary its values are, nil for other encodings.
func textsOf(encoding format.Encoding, values []byte) []byte {
	if encoding == format.PlainDictionary || encoding == format.RLEDictionary {
		return values
	}
	return nil
}

// countRows bounds the values of a row, and the text that it has from a dictionary: level 0 begins a new row. The
// library reads pages in their order.
func (p *page) countRows(repetitions, definitions, texts []byte, n int, most int) error {
	of := p.of
	levels, err := decodeLevels(repetitions, of.repetitions, n)
	if err != nil {
		return fmt.Errorf("repetition levels: %w", err)
	}
	defined, err := decodeLevels(definitions, of.definitions, n)
	if err != nil {
		return fmt.Errorf("definition levels: %w", err)
	}
	var indexes []int32
	if len(texts) > 1 && len(of.lengths) > 0 {
		if indexes, err = (&rle.Encoding{BitWidth: int(texts[0])}).DecodeInt32(nil, texts[1:]); err != nil {
			return err
		}
	}
	for i, level := range levels {
		if of.values++; level == 0 {
			of.values, of.text = 1, 0
		}
		if int(defined[i]) == of.definitions && len(indexes) > 0 {
			if k := int(indexes[0]); k >= 0 && k < len(of.lengths) {
				of.text += of.lengths[k]
			}
			indexes = indexes[1:]
		}
		if of.values > MaxRowValues || of.text > most {
			return fmt.Errorf("a row has more than %d values, or than %s of text", MaxRowValues,
				Bytes(int64(most)))
		}
	}
	return nil
}

// decodeLevels decodes the n levels of a page.
func decodeLevels(text []byte, most, n int) ([]byte, error) {
	width := bits.Len(uint(most))
	if err := checkRuns(text, width, n); err != nil {
		return nil, err
	}
	levels, err := (&rle.Encoding{BitWidth: width}).DecodeLevels(nil, text)
	if err == nil && len(levels) < n {
		err = fmt.Errorf("%d of %d values", len(levels), n)
	}
	return levels[:min(n, len(levels))], err
}

// checkRuns walks the runs of equal values and of packed bits, which may hold a group of eight more than n values.
func checkRuns(text []byte, width, n int) error {
	room := uint64(n) + 7
	for len(text) > 0 {
		header, k := binary.Uvarint(text)
		if k <= 0 {
			return errors.New("a run without its length")
		}
		text = text[k:]
		count, size := header>>1, uint64(width+7)/8
		if header&1 == 1 {
			if count > room {
				return fmt.Errorf("more than the %d values of the page's header", n)
			}
			size, count = count*uint64(width), count*8
		}
		if count > room {
			return fmt.Errorf("more than the %d values of the page's header", n)
		}
		if size > uint64(len(text)) {
			return errors.New("a run longer than its page")
		}
		room, text = room-count, text[size:]
	}
	return nil
}

// checkValues compares the counts inside the values of a page with n, and what they unpack to with most bytes.
func checkValues(encoding format.Encoding, text []byte, n int, most int64) error {
	switch encoding {
	case format.Plain, format.ByteStreamSplit:
		return nil
	case format.PlainDictionary, format.RLEDictionary:
		if len(text) == 0 {
			return nil
		}
		if text[0] > 32 {
			return fmt.Errorf("dictionary indexes of %d bits", text[0])
		}
		return checkRuns(text[1:], int(text[0]), n)
	case format.RLE:
		runs, _, err := prefixed(text)
		if err != nil {
			return err
		}
		return checkRuns(runs, 1, n)
	case format.DeltaBinaryPacked:
		_, _, err := deltas(text, n)
		return err
	case format.DeltaLengthByteArray:
		sum, rest, err := deltas(text, n)
		if err == nil && sum > int64(len(rest)) {
			err = fmt.Errorf("texts of %d bytes in %d", sum, len(rest))
		}
		return err
	case format.DeltaByteArray:
		prefixes, rest, err := deltas(text, n)
		if err != nil {
			return err
		}
		suffixes, rest, err := deltas(rest, n)
		if err == nil && (suffixes > int64(len(rest)) || prefixes > most) {
			err = fmt.Errorf("texts of %s in %d bytes: want at most %s",
				Bytes(prefixes+suffixes), len(rest), Bytes(most))
		}
		return err
	}
	return fmt.Errorf("the encoding %v is unknown", encoding)
}

// deltas walks numbers that are packed as differences. sum adds up those that are lengths; a negative one is an error
// of the library.
func deltas(text []byte, n int) (sum int64, rest []byte, err error) {
	short := errors.New("packed differences that end early")
	var head [3]uint64 // values of a block, parts of a block, values
	for i := range head {
		k := 0
		if head[i], k = binary.Uvarint(text); k <= 0 {
			return 0, nil, short
		}
		text = text[k:]
	}
	value, k := binary.Varint(text)
	block, parts, left := head[0], head[1], head[2]
	switch {
	case k <= 0:
		return 0, nil, short
	case left > uint64(n):
		return 0, nil, fmt.Errorf("%d numbers, its header claims %d", left, n)
	case block > 1<<16 || parts == 0 || parts > block || block%parts != 0 || block/parts%8 != 0:
		return 0, nil, fmt.Errorf("packed differences in blocks of %d with %d parts", block, parts)
	}
	text = text[k:]
	if left == 0 {
		return 0, text, nil
	}
	sum = max(value, 0)
	for left--; left > 0; {
		least, k := binary.Varint(text)
		if k <= 0 || uint64(len(text)-k) < parts {
			return 0, nil, short
		}
		widths := text[k : k+int(parts)]
		text = text[k+int(parts):]
		for _, width := range widths {
			if left == 0 {
				break
			}
			per := block / parts
			size := per * uint64(width) / 8
			if width > 64 {
				return 0, nil, fmt.Errorf("packed differences of %d bits", width)
			}
			part := text[:min(size, uint64(len(text)))]
			text = text[len(part):]
			for i := range min(per, left) {
				value += least + int64(bitsAt(part, i*uint64(width), uint(width)))
				value = int64(int32(value)) // lengths have 32 bits, and other numbers are not added up
				sum += max(value, 0)
			}
			left -= min(per, left)
		}
	}
	return sum, text, nil
}

// bitsAt is the number in width bits from bit at; bits behind the end are 0.
func bitsAt(text []byte, at uint64, width uint) (x uint64) {
	for i := uint(0); i < width; {
		byteAt, bit := (at+uint64(i))/8, uint(at+uint64(i))%8
		if byteAt >= uint64(len(text)) {
			return x
		}
		k := min(8-bit, width-i)
		x |= uint64(text[byteAt]>>bit&(1<<k-1)) << i
		i += k
	}
	return x
}

// maxNesting bounds how deep the structs of a footer nest; the format needs seven.
const maxNesting = 32

// checkThrift walks a struct in thrift's compact form and returns its length. The library allocates as many elements
// as a list claims and calls itself for each level of nesting: structs bounds the elements that are structs or lists.
func checkThrift(text []byte, structs int64) (int, error) {
	w := &walker{text: text, room: structs}
	err := w.value(12, 0)
	return w.at, err
}

type walker struct {
	text []byte
	at   int
	room int64 // structs and lists that may follow
}

func (w *walker) skip(n uint64) error {
	if n > uint64(len(w.text)-w.at) {
		return io.ErrUnexpectedEOF
	}
	w.at += int(n)
	return nil
}

func (w *walker) byte() (byte, error) {
	err := w.skip(1)
	if err != nil {
		return 0, err
	}
	return w.text[w.at-1], nil
}

func (w *walker) varint() (uint64, error) {
	x, n := binary.Uvarint(w.text[w.at:])
	switch {
	case n == 0:
		return 0, io.ErrUnexpectedEOF
	case n < 0:
		return 0, errors.New("a number of more than 64 bits")
	}
	w.at += n
	return x, nil
}

// value skips a value of a type of the compact form.
func (w *walker) value(kind byte, depth int) error {
	switch {
	case depth > maxNesting:
		return fmt.Errorf("it nests more than %d deep", maxNesting)
	case kind >= 9 && kind <= 12:
		if w.room--; w.room < 0 {
			return errors.New("it has more parts than a file of its size")
		}
	}
	switch kind {
	case 1, 2: // true and false: the type is the value
		return nil
	case 3:
		return w.skip(1)
	case 4, 5, 6:
		_, err := w.varint()
		return err
	case 7:
		return w.skip(8)
	case 8:
		n, err := w.varint()
		if err != nil {
			return err
		}
		return w.skip(n)
	case 9, 10:
		return w.list(depth)
	case 12:
		return w.fields(depth)
	}
	return fmt.Errorf("a value of type %d", kind)
}

func (w *walker) list(depth int) error {
	b, err := w.byte()
	n, kind := uint64(b>>4), b&15
	if err == nil && n == 15 {
		n, err = w.varint()
	}
	if err == nil && n > uint64(len(w.text)-w.at) { // an element takes a byte at least
		err = io.ErrUnexpectedEOF
	}
	for i := uint64(0); i < n && err == nil; i++ {
		if kind == 1 || kind == 2 {
			err = w.skip(1)
		} else {
			err = w.value(kind, depth+1)
		}
	}
	return err
}

func (w *walker) fields(depth int) error {
	for {
		b, err := w.byte()
		if err == nil && b == 0 {
			return nil
		}
		if err == nil && b>>4 == 0 {
			_, err = w.varint() // the field's number
		}
		if err == nil {
			err = w.value(b&15, depth+1)
		}
		if err != nil {
			return err
		}
	}
}
