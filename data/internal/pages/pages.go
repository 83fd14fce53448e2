// Package pages makes any parquet file safe for the library that reads its rows. The library trusts the sizes and
// counts that a file claims, and some codecs of it grow without end on damage. A view is the same file without
// compression: its pages are unpacked here, one per column at a time, to the size that the page's header gives, and
// every count in them is compared with the header's before the library sees it.
//
//  1. Open reads the footer and the headers of all pages and compares what they claim with the bound.
//  2. ReadAt unpacks a page when the library asks for it (unpack.go) and checks its content (check.go).
//
// Inside, what is wrong with a file is a panic, as it is in the library; [Catch] makes an error of both.
package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"sort"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/posttrain/posttrain/internal/float"
)

const magic = "PAR1"

// view is a parquet file without compression, as long as all its pages unpacked.
type view struct {
	source io.ReaderAt
	size   int64 // of the source
	most   int64 // bytes of memory that the open pages of all columns may take, and the parts of the footer
	pieces []piece
	length int64
	zstd   *zstd.Decoder
}

// piece is a stretch of the view: a few bytes, and for a page its content behind them.
type piece struct {
	at   int64 // offset in the view
	head []byte
	page *page
}

// page is a page of the source.
type page struct {
	format.PageHeader
	at int64 // offset of its content in the source
	of *chunk
}

// chunk is a column of a row group.
type chunk struct {
	codec                    format.CompressionCodec
	repetitions, definitions int // the greatest levels
	texts                    bool
	open                     *page  // the page whose content is kept
	content                  []byte // unpacked
	values                   int64  // of all pages
}

// Catch makes an error of a panic.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case error:
		*err = r
	default:
		*err = fmt.Errorf("%v", r)
	}
}

// want ends the reading of a file for which something does not hold.
func want(holds bool, why string, values ...any) {
	if !holds {
		panic(fmt.Errorf(why, values...))
	}
}

// must ends the reading of a file with an error.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Open opens a parquet file. most bounds the memory for its pages, its footer and a row of it in bytes.
func Open(source io.ReaderAt, size, most int64) (file *parquet.File, err error) {
	defer Catch(&err)
	v := &view{source: source, size: size, most: most}
	meta := v.footer()
	meta.RowGroups = slices.DeleteFunc(meta.RowGroups, func(g format.RowGroup) bool { return g.NumRows == 0 })
	markHalves(meta.Schema)
	v.add(piece{head: []byte(magic)}, 0)
	chunks := v.addGroups(meta)
	v.addFooter(meta)
	if file, err = parquet.OpenFile(v, v.length, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true)); err == nil {
		v.setLevels(file.Root(), chunks)
	}
	return file, err
}

// halfScale is the scale of the decimals as which the library, which knows no half floats, reads their bits. A
// file's own decimals have at most 76 digits behind the point.
const halfScale = 77

// markHalves makes decimals of half floats.
func markHalves(schema []format.SchemaElement) {
	for i := range schema {
		e := &schema[i]
		if _, half := e.LogicalType.Value.(*format.Float16Type); half && e.TypeLength.Valid && e.TypeLength.V == 2 {
			e.LogicalType.Value = &format.DecimalType{Scale: halfScale, Precision: 5}
		}
	}
}

// Number is the value of a decimal, or of a half float, as the library gives them.
func Number(x *big.Float) float64 {
	f, _ := x.Float64()
	if f == 0 || math.Abs(f) > 1e-70 {
		return f
	}
	scale := new(big.Float).SetPrec(256).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(halfScale), nil))
	whole, _ := scale.Mul(x, scale).Float64()
	b := uint16(int16(math.Round(whole)))
	return float64(float.FromFloat16(bits.ReverseBytes16(b))) // the decimal's bytes are in the other order
}

// valueBytes is what the library takes for a value of a row.
const valueBytes = 24

// setLevels gives the chunks [groups][columns] what the checks of their pages must know. A row may have all values of a
// repeated column's chunk.
func (v *view) setLevels(c *parquet.Column, chunks [][]*chunk) (most int64) {
	for _, inner := range c.Columns() {
		most += v.setLevels(inner, chunks)
	}
	if c.Leaf() {
		for _, group := range chunks {
			of := group[c.Index()]
			of.repetitions, of.definitions = c.MaxRepetitionLevel(), c.MaxDefinitionLevel()
			if of.texts = c.Type().Kind() == parquet.ByteArray; of.repetitions > 0 {
				most = max(most, of.values*valueBytes)
			}
		}
	}
	want(most <= v.most, "its lists claim to need %s of memory: want at most %s for a file of its size", Bytes(most),
		Bytes(v.most))
	return most
}

func (v *view) add(p piece, content int64) {
	p.at = v.length
	v.pieces = append(v.pieces, p)
	v.length += int64(len(p.head)) + content
}

// read reads n bytes of the source from an offset.
func (v *view) read(at, n int64) []byte {
	want(at >= 0 && n >= 0 && at <= v.size-n, "bytes %d to %d of a file of %d", at, at+n, v.size)
	text := make([]byte, n)
	if _, err := v.source.ReadAt(text, at); err != io.EOF {
		must(err)
	}
	return text
}

// footer decodes the metadata at the end of the file.
func (v *view) footer() *format.FileMetaData {
	want(v.size >= 12, "%d bytes", v.size)
	end := v.read(v.size-8, 8) // length of the footer, magic
	want(string(end[4:]) == magic, "no PAR1 at its end: it is truncated, or something else")
	length := int64(binary.LittleEndian.Uint32(end))
	want(length <= v.size-12, "its footer claims %d of %d bytes", length, v.size)
	text, meta := v.read(v.size-8-length, length), new(format.FileMetaData)
	_, err := checkThrift(text, v.most/structBytes)
	if err == nil {
		err = thrift.NewDecoder(new(thrift.CompactProtocol).NewReaderFromBytes(text)).Decode(meta)
	}
	if err != nil {
		panic(fmt.Errorf("its footer: %w", err))
	}
	checkSchema(meta.Schema)
	return meta
}

// addGroups adds the pages of all row groups and lets their metadata describe the view.
func (v *view) addGroups(meta *format.FileMetaData) (chunks [][]*chunk) {
	room := v.size/8 + 1000 // pages: chunks that overlap would have more than fit the file
	largest := map[int]int64{}
	sum := int64(0)
	for g := range meta.RowGroups {
		var group []*chunk
		for i := range meta.RowGroups[g].Columns {
			of, cost := v.addChunk(&meta.RowGroups[g].Columns[i], &room)
			group = append(group, of)
			sum += max(0, cost-largest[i])
			largest[i] = max(largest[i], cost)
		}
		chunks = append(chunks, group)
	}
	want(sum <= v.most, "its pages claim to need %s of memory: want at most %s for a file of its size", Bytes(sum),
		Bytes(v.most))
	return chunks
}

// addChunk adds the pages of a column of a row group; cost is the memory that its dictionary and largest page take.
func (v *view) addChunk(c *format.ColumnChunk, room *int64) (of *chunk, cost int64) {
	want(c.CryptoMetadata.Value == nil && len(c.EncryptedColumnMetadata) == 0,
		"it is encrypted: want a file without encryption")
	m := &c.MetaData
	at, start := m.DataPageOffset, v.length
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	end := at + m.TotalCompressedSize
	want(at >= 0 && m.TotalCompressedSize >= 0 && end <= v.size && end >= at, "bytes %d to %d of a file of %d", at, end,
		v.size)
	of, m.DictionaryPageOffset, m.DataPageOffset = &chunk{codec: m.Codec}, 0, 0
	dictionary, largest := int64(0), int64(0)
	for at < end {
		*room--
		want(*room >= 0, "more pages than %d bytes can hold", v.size)
		p := v.pageAt(at, end, of)
		at = p.at + int64(p.CompressedPageSize)
		switch p.Type {
		case format.IndexPage:
			continue
		case format.DictionaryPage:
			want(v.length == start, "the dictionary of a column is not its first page")
			m.DictionaryPageOffset, dictionary = v.length, p.cost()
		default:
			largest, of.values = max(largest, p.cost()), of.values+int64(p.values())
			if m.DataPageOffset == 0 {
				m.DataPageOffset = v.length
			}
		}
		v.addPage(p)
	}
	*c = format.ColumnChunk{FileOffset: c.FileOffset, MetaData: format.ColumnMetaData{
		Type: m.Type, Encoding: m.Encoding, PathInSchema: m.PathInSchema, NumValues: m.NumValues,
		TotalUncompressedSize: v.length - start, TotalCompressedSize: v.length - start,
		DataPageOffset: max(m.DataPageOffset, int64(len(magic))), DictionaryPageOffset: m.DictionaryPageOffset,
	}}
	return of, dictionary + largest
}

// maxHeader bounds the header of a page: the least and the greatest value of the page are in it.
const maxHeader = 16 << 20

// pageAt decodes the header of a page at an offset of the source.
func (v *view) pageAt(at, end int64, of *chunk) *page {
	for window := min(int64(512), end-at); ; window = min(window*32, end-at) {
		text := v.read(at, window)
		n, err := checkThrift(text, 1000)
		if errors.Is(err, io.ErrUnexpectedEOF) && window < end-at && window < maxHeader {
			continue
		}
		p := &page{of: of, at: at + int64(n)}
		if err == nil {
			err = thrift.NewDecoder(new(thrift.CompactProtocol).NewReaderFromBytes(text[:n])).Decode(&p.PageHeader)
		}
		if err != nil {
			panic(fmt.Errorf("page at byte %d: %w", at, err))
		}
		p.check(end - p.at)
		return p
	}
}

// addPage adds a page with a header of its own that has the unpacked size and no statistics.
func (v *view) addPage(p *page) {
	h := format.PageHeader{Type: p.Type, UncompressedPageSize: p.UncompressedPageSize,
		CompressedPageSize: p.UncompressedPageSize, DataPageHeader: p.DataPageHeader,
		DictionaryPageHeader: p.DictionaryPageHeader, DataPageHeaderV2: p.DataPageHeaderV2}
	h.DataPageHeader.V.Statistics = format.Statistics{}
	h.DataPageHeaderV2.V.Statistics = format.Statistics{}
	h.DataPageHeaderV2.V.IsCompressed = thrift.Null[bool]{V: false, Valid: true}
	head, err := thrift.Marshal(new(thrift.CompactProtocol), h)
	must(err)
	v.add(piece{head: head, page: p}, int64(h.UncompressedPageSize))
}

func (v *view) addFooter(meta *format.FileMetaData) {
	meta.KeyValueMetadata = nil
	text, err := thrift.Marshal(new(thrift.CompactProtocol), meta)
	must(err)
	text = binary.LittleEndian.AppendUint32(text, uint32(len(text)))
	v.add(piece{head: append(text, magic...)}, 0)
}

// ReadAt reads bytes of the view.
func (v *view) ReadAt(p []byte, off int64) (n int, err error) {
	defer Catch(&err)
	i := sort.Search(len(v.pieces), func(i int) bool { return v.pieces[i].at > off }) - 1
	for ; n < len(p) && off+int64(n) < v.length && i >= 0; i++ {
		at := &v.pieces[i]
		in := off + int64(n) - at.at
		if head := int64(len(at.head)); in < head {
			n += copy(p[n:], at.head[in:])
			in = head
		}
		if at.page != nil && n < len(p) {
			n += v.readPage(p[n:], at.page, in-int64(len(at.head)))
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readPage reads the content of a page from an offset. Content is kept until its end has been read.
func (v *view) readPage(p []byte, from *page, in int64) int {
	of := from.of
	if of.open != from {
		of.open, of.content = nil, nil
		content := v.unpack(from)
		from.checkContent(content, v.most)
		of.open, of.content = from, content
	}
	n := copy(p, of.content[min(in, int64(len(of.content))):])
	if in+int64(n) >= int64(len(of.content)) {
		of.open, of.content = nil, nil
	}
	return n
}

// Bytes prints a size.
func Bytes(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
