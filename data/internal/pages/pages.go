// Package pages makes any parquet file safe for the library that reads its rows. The library trusts the sizes and
// counts that a file claims, and some codecs of it grow without end on damage. A view is the same file without
// compression: its pages are unpacked here, one per column at a time, to the size that the page's header gives, and
// every count in them is compared with the header's before the library sees it.
//
//  1. Open reads the footer and the headers of all pages and compares what they claim with the bound.
//  2. ReadAt unpacks a page when the library asks for it (unpack.go) and checks its content (check.go).
package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// The bounds of one row in one column. A value of a list takes about 500 bytes.
const (
	MaxRowBytes  = 64 << 20
	MaxRowValues = 1 << 18
)

// RowBytes bounds the text of a row in a file that may take most bytes of memory: there are a few copies of a row.
func RowBytes(most int64) int { return int(min(MaxRowBytes, most/4)) }

const magic = "PAR1"

// view is a parquet file without compression, as long as all its pages unpacked.
type view struct {
	source io.ReaderAt
	size   int64 // of the source
	most   int64 // bytes of memory that the open pages of all columns may take, and the parts of the footer
	leaves []leaf
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
	header  format.PageHeader
	at      int64 // offset of its content in the source
	of      *chunk
	counted bool // its rows have been counted
}

// chunk is a column of a row group.
type chunk struct {
	leaf
	codec   format.CompressionCodec
	open    *page  // the page whose content is kept
	content []byte // unpacked
	lengths []int  // of the texts of the dictionary, if rows can have several
	values  int    // of the row that the pages so far ended with
	text    int    // bytes that this row has from the dictionary
}

// Open opens a parquet file. most bounds the memory for its pages and its footer in bytes.
func Open(source io.ReaderAt, size, most int64) (*parquet.File, error) {
	v, err := unpack(source, size, most)
	if err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(v, v.length, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, err
	}
	return file, v.compare(file.Schema())
}

// compare wants the library to see the columns that the checks of the pages are for.
func (v *view) compare(schema *parquet.Schema) error {
	paths := schema.Columns()
	for i, l := range v.leaves {
		column, ok := parquet.LeafColumn{}, i < len(paths) && len(paths) == len(v.leaves)
		if ok {
			column, ok = schema.Lookup(paths[i]...)
		}
		if !ok || column.MaxRepetitionLevel != l.repetitions || column.MaxDefinitionLevel != l.definitions {
			return fmt.Errorf("column %q has a place in the schema that cannot be understood", l.name)
		}
	}
	return nil
}

// unpack reads the footer and all page headers of a parquet file.
func unpack(source io.ReaderAt, size, most int64) (*view, error) {
	v := &view{source: source, size: size, most: most}
	meta, err := v.footer()
	if err != nil {
		return nil, err
	}
	if v.leaves, err = leavesOf(meta.Schema); err != nil {
		return nil, err
	}
	v.add(piece{head: []byte(magic)}, 0)
	if err := v.addGroups(meta, v.leaves); err != nil {
		return nil, err
	}
	return v, v.addFooter(meta)
}

func (v *view) add(p piece, content int64) {
	p.at = v.length
	v.pieces = append(v.pieces, p)
	v.length += int64(len(p.head)) + content
}

// footer decodes the metadata at the end of the file.
func (v *view) footer() (*format.FileMetaData, error) {
	var end [8]byte // length of the footer, magic
	if v.size < 12 {
		return nil, fmt.Errorf("%d bytes", v.size)
	}
	if _, err := v.source.ReadAt(end[:], v.size-8); err != nil {
		return nil, err
	}
	if string(end[4:]) != magic {
		return nil, errors.New("no PAR1 at its end: it is truncated, or something else")
	}
	length := int64(binary.LittleEndian.Uint32(end[:]))
	if length > v.size-12 {
		return nil, fmt.Errorf("its footer claims %d of %d bytes", length, v.size)
	}
	text := make([]byte, length)
	if _, err := v.source.ReadAt(text, v.size-8-length); err != nil {
		return nil, err
	}
	return decodeFooter(text, v.most)
}

func decodeFooter(text []byte, most int64) (*format.FileMetaData, error) {
	if _, err := checkThrift(text, most/structBytes); err != nil {
		return nil, fmt.Errorf("its footer: %w", err)
	}
	meta := new(format.FileMetaData)
	if err := thrift.NewDecoder(new(thrift.CompactProtocol).NewReaderFromBytes(text)).Decode(meta); err != nil {
		return nil, fmt.Errorf("its footer: %w", err)
	}
	return meta, nil
}

// addGroups adds the pages of all row groups and lets their metadata describe the view.
func (v *view) addGroups(meta *format.FileMetaData, leaves []leaf) error {
	if len(leaves) == 0 {
		return errors.New("it has no columns")
	}
	room := v.size/8 + 1000 // pages: chunks that overlap would have more than fit the file
	largest := make([]int64, len(leaves))
	for g := range meta.RowGroups {
		group := &meta.RowGroups[g]
		if len(group.Columns) != len(leaves) {
			return fmt.Errorf("row group %d has %d columns, the schema %d", g+1, len(group.Columns), len(leaves))
		}
		for i := range group.Columns {
			cost, err := v.addChunk(&group.Columns[i], leaves[i], &room)
			if err != nil {
				return fmt.Errorf("row group %d: column %q: %w", g+1, leaves[i].name, err)
			}
			largest[i] = max(largest[i], cost)
		}
	}
	sum := int64(0)
	for _, cost := range largest {
		if sum += cost; sum > v.most {
			return fmt.Errorf("its pages claim to need %s of memory: want at most %s for a file of its size",
				Bytes(sum), Bytes(v.most))
		}
	}
	return nil
}

// addChunk adds the pages of a column of a row group; cost is the memory that its dictionary and largest page take.
func (v *view) addChunk(c *format.ColumnChunk, l leaf, room *int64) (cost int64, err error) {
	if c.CryptoMetadata.Value != nil || len(c.EncryptedColumnMetadata) > 0 {
		return 0, errors.New("it is encrypted: want a file without encryption")
	}
	m := &c.MetaData
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	end := at + m.TotalCompressedSize
	if at < 0 || m.TotalCompressedSize < 0 || end > v.size || end < at {
		return 0, fmt.Errorf("bytes %d to %d of a file of %d", at, end, v.size)
	}
	start, of := v.length, &chunk{leaf: l, codec: m.Codec}
	m.DictionaryPageOffset, m.DataPageOffset = 0, 0
	dictionary, largest := int64(0), int64(0)
	for at < end {
		if *room--; *room < 0 {
			return 0, fmt.Errorf("more pages than %d bytes can hold", v.size)
		}
		p, next, err := v.pageAt(at, end, of)
		if err != nil {
			return 0, fmt.Errorf("page at byte %d: %w", at, err)
		}
		at = next
		switch p.header.Type {
		case format.IndexPage:
			continue
		case format.DictionaryPage:
			m.DictionaryPageOffset, dictionary = v.length, max(dictionary, p.cost())
		default:
			largest = max(largest, p.cost())
			if m.DataPageOffset == 0 {
				m.DataPageOffset = v.length
			}
		}
		if err := v.addPage(p); err != nil {
			return 0, err
		}
	}
	if m.DictionaryPageOffset != 0 && m.DictionaryPageOffset != start {
		return 0, errors.New("its dictionary is not its first page")
	}
	*c = format.ColumnChunk{FileOffset: c.FileOffset, MetaData: format.ColumnMetaData{
		Type: m.Type, Encoding: m.Encoding, PathInSchema: m.PathInSchema, NumValues: m.NumValues,
		TotalUncompressedSize: v.length - start, TotalCompressedSize: v.length - start,
		DataPageOffset: max(m.DataPageOffset, int64(len(magic))), DictionaryPageOffset: m.DictionaryPageOffset,
	}}
	return dictionary + largest, nil
}

// maxHeader bounds the header of a page: the least and the greatest value of the page are in it.
const maxHeader = 16 << 20

// pageAt decodes the header of a page at an offset of the source; next is the offset behind the page.
func (v *view) pageAt(at, end int64, of *chunk) (p *page, next int64, err error) {
	p = &page{of: of}
	n := 0
	for window := min(int64(512), end-at); ; window = min(window*32, end-at) {
		text := make([]byte, window)
		if _, err := v.source.ReadAt(text, at); err != nil && err != io.EOF {
			return nil, 0, err
		}
		n, err = checkThrift(text, 1000)
		if err == nil {
			err = thrift.NewDecoder(new(thrift.CompactProtocol).NewReaderFromBytes(text[:n])).Decode(&p.header)
			break
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) || window == end-at || window >= maxHeader {
			break
		}
	}
	if err != nil {
		return nil, 0, err
	}
	p.at = at + int64(n)
	next = p.at + int64(p.header.CompressedPageSize)
	if err := p.check(end - p.at); err != nil {
		return nil, 0, err
	}
	return p, next, nil
}

// addPage adds a page with a header of its own that has the unpacked size and no statistics.
func (v *view) addPage(p *page) error {
	h := format.PageHeader{Type: p.header.Type, UncompressedPageSize: p.header.UncompressedPageSize,
		CompressedPageSize: p.header.UncompressedPageSize, DataPageHeader: p.header.DataPageHeader,
		DictionaryPageHeader: p.header.DictionaryPageHeader, DataPageHeaderV2: p.header.DataPageHeaderV2}
	h.DataPageHeader.V.Statistics = format.Statistics{}
	h.DataPageHeaderV2.V.Statistics = format.Statistics{}
	h.DataPageHeaderV2.V.IsCompressed = thrift.Null[bool]{V: false, Valid: true}
	head, err := thrift.Marshal(new(thrift.CompactProtocol), h)
	if err == nil {
		v.add(piece{head: head, page: p}, int64(h.UncompressedPageSize))
	}
	return err
}

func (v *view) addFooter(meta *format.FileMetaData) error {
	meta.KeyValueMetadata = nil
	text, err := thrift.Marshal(new(thrift.CompactProtocol), meta)
	if err != nil {
		return err
	}
	text = binary.LittleEndian.AppendUint32(text, uint32(len(text)))
	v.add(piece{head: append(text, magic...)}, 0)
	return nil
}

// ReadAt reads bytes of the view.
func (v *view) ReadAt(p []byte, off int64) (n int, err error) {
	i := sort.Search(len(v.pieces), func(i int) bool { return v.pieces[i].at > off }) - 1
	for ; n < len(p) && off < v.length && i >= 0; i++ {
		at := &v.pieces[i]
		k := 0
		if in := off - at.at; in < int64(len(at.head)) {
			k = copy(p[n:], at.head[in:])
		}
		if in := off + int64(k) - at.at - int64(len(at.head)); at.page != nil && n+k < len(p) {
			more, err := v.readPage(p[n+k:], at.page, in)
			if err != nil {
				return n, err
			}
			k += more
		}
		n, off = n+k, off+int64(k)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readPage reads the content of a page from an offset. Content is kept until its end has been read.
func (v *view) readPage(p []byte, from *page, in int64) (int, error) {
	of := from.of
	if of.open != from {
		of.open, of.content = nil, nil
		content, err := v.contentOf(from)
		if err == nil {
			err = from.checkContent(content, v.most)
		}
		if err != nil {
			return 0, fmt.Errorf("column %q, page at byte %d: %w", of.name, from.at, err)
		}
		of.open, of.content = from, content
	}
	n := copy(p, of.content[min(in, int64(len(of.content))):])
	if in+int64(n) >= int64(len(of.content)) {
		of.open, of.content = nil, nil
	}
	return n, nil
}

// Bytes prints a size.
func Bytes(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// leaf is a column of values.
type leaf struct {
	name                     string
	repetitions, definitions int // the greatest levels
	kind                     format.Type
	width                    int // of a value with a fixed length, bytes
}

// maxDepth bounds how deep columns nest.
const maxDepth = 32

// leavesOf lists the columns of a schema, which holds a tree in depth-first order.
func leavesOf(schema []format.SchemaElement) (leaves []leaf, err error) {
	i := 0
	var visit func(path []string, above leaf) error
	visit = func(path []string, above leaf) error {
		if i >= len(schema) || len(path) > maxDepth {
			return fmt.Errorf("a schema of %d parts that nests more than %d deep, or has fewer parts than it claims",
				len(schema), maxDepth)
		}
		e := schema[i]
		i++
		if len(path) > 0 || i > 1 {
			path = append(path[:len(path):len(path)], e.Name)
			above.name = strings.Join(path, ".")
			switch e.RepetitionType.V {
			case format.Required:
			case format.Repeated:
				above.repetitions++
				above.definitions++
			case format.Optional:
				above.definitions++
			default:
				return fmt.Errorf("column %q is of the repetition type %v", above.name, e.RepetitionType.V)
			}
		}
		if e.Type.Valid {
			above.kind = e.Type.V
			leaves = append(leaves, above)
			return nil
		}
		for range e.NumChildren.V {
			if err := visit(path, above); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(nil, leaf{}); err != nil {
		return nil, err
	}
	if i != len(schema) {
		return nil, fmt.Errorf("a schema of %d parts, of which %d have a place", len(schema), i)
	}
	return leaves, nil
}
