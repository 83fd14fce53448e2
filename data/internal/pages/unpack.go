package pages

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// unpack reads a page and decompresses it to the size that its header gives.
func (v *view) unpack(p *page) []byte {
	packed := v.read(p.at, int64(p.CompressedPageSize))
	if sum := p.CRC; sum != 0 {
		want(uint32(sum) == crc32.ChecksumIEEE(packed), "the checksum of the page at byte %d is wrong", p.at)
	}
	plain := 0 // bytes at the beginning that are not compressed
	if h := p.DataPageHeaderV2; p.Type == format.DataPageV2 {
		plain = int(h.V.RepetitionLevelsByteLength + h.V.DefinitionLevelsByteLength)
		if c := h.V.IsCompressed; c.Valid && !c.V {
			plain = len(packed)
		}
	}
	content := make([]byte, p.UncompressedPageSize)
	size, err := len(packed), error(nil)
	if p.of.codec == format.Uncompressed || plain == len(packed) {
		copy(content, packed)
	} else {
		copy(content, packed[:plain])
		size, err = v.decompress(p.of.codec, content[plain:], packed[plain:])
		size += plain
	}
	if err != nil {
		panic(fmt.Errorf("page at byte %d: %v: %w", p.at, p.of.codec, err))
	}
	want(size == len(content), "page at byte %d: it does not unpack to the %d bytes that its header claims", p.at,
		len(content))
	return content
}

// decompress fills dst from src, and returns how many bytes there are; another number where there are more.
func (v *view) decompress(codec format.CompressionCodec, dst, src []byte) (n int, err error) {
	switch codec {
	case format.Snappy:
		if n, err = snappy.DecodedLen(src); err == nil && n == len(dst) {
			_, err = snappy.Decode(dst, src)
		}
		return n, err
	case format.Lz4Raw:
		if n, err = lz4.UncompressBlock(src, dst); err != nil {
			return -1, nil // it does not fit
		}
		return n, nil
	case format.Gzip:
		z, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return 0, err
		}
		return fill(dst, z)
	case format.Brotli:
		return fill(dst, brotli.NewReader(bytes.NewReader(src)))
	case format.Zstd:
		if v.zstd == nil {
			v.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
				zstd.WithDecoderLowmem(true))
		}
		if err == nil {
			err = v.zstd.Reset(bytes.NewReader(src))
		}
		if err != nil {
			return 0, err
		}
		return fill(dst, v.zstd)
	}
	return 0, fmt.Errorf("this compression is unknown: want none, snappy, gzip, brotli, zstd or LZ4_RAW")
}

// maxWindow bounds how far zstd looks back, in bytes: level 19 looks back 8 MiB, and level 22 128 MiB if a page has
// them.
const maxWindow = 128 << 20

// fill reads dst and wants the end behind it.
func fill(dst []byte, r io.Reader) (int, error) {
	n, err := io.ReadFull(r, dst)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return n, nil
	}
	if err == nil {
		var one [1]byte
		if more, end := io.ReadFull(r, one[:]); more > 0 || end != io.EOF {
			return -1, nil
		}
	}
	return n, err
}
