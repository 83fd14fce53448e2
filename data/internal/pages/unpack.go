package pages

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// contentOf reads a page and decompresses it to the size that its header gives.
func (v *view) contentOf(p *page) ([]byte, error) {
	packed := make([]byte, p.header.CompressedPageSize)
	if _, err := v.source.ReadAt(packed, p.at); err != nil && err != io.EOF {
		return nil, err
	}
	if sum := p.header.CRC; sum != 0 && uint32(sum) != crc32.ChecksumIEEE(packed) {
		return nil, errors.New("its checksum is wrong")
	}
	plain := 0 // bytes at the beginning that are not compressed
	if h := p.header.DataPageHeaderV2; p.header.Type == format.DataPageV2 {
		plain = int(h.V.RepetitionLevelsByteLength + h.V.DefinitionLevelsByteLength)
		if c := h.V.IsCompressed; c.Valid && !c.V {
			plain = len(packed)
		}
	}
	size := int(p.header.UncompressedPageSize)
	if p.of.codec == format.Uncompressed || plain == len(packed) {
		if len(packed) != size {
			return nil, fmt.Errorf("%d bytes, its header claims %d", len(packed), size)
		}
		return packed, nil
	}
	content := make([]byte, size)
	copy(content, packed[:plain])
	if err := v.decompress(p.of.codec, content[plain:], packed[plain:]); err != nil {
		return nil, fmt.Errorf("%v: %w", p.of.codec, err)
	}
	return content, nil
}

// errSize says that a page does not unpack to the size that its header claims.
func errSize(want int) error {
	return fmt.Errorf("it does not unpack to the %d bytes that its header claims", want)
}

// decompress fills dst from src, which must hold exactly as much.
func (v *view) decompress(codec format.CompressionCodec, dst, src []byte) error {
	switch codec {
	case format.Snappy:
		if n, err := snappy.DecodedLen(src); err != nil || n != len(dst) {
			return errSize(len(dst))
		}
		_, err := snappy.Decode(dst, src)
		return err
	case format.Lz4Raw:
		if n, err := lz4.UncompressBlock(src, dst); err != nil || n != len(dst) {
			return errSize(len(dst))
		}
		return nil
	case format.Gzip:
		z, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return err
		}
		return fill(dst, z)
	case format.Brotli:
		return fill(dst, brotli.NewReader(bytes.NewReader(src)))
	case format.Zstd:
		return v.unzstd(dst, src)
	}
	return errors.New("this compression is unknown: want none, snappy, gzip, brotli, zstd or LZ4_RAW")
}

func (v *view) unzstd(dst, src []byte) (err error) {
	if v.zstd == nil {
		v.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
			zstd.WithDecoderLowmem(true))
	}
	if err == nil {
		err = v.zstd.Reset(bytes.NewReader(src))
	}
	if err != nil {
		return err
	}
	return fill(dst, v.zstd)
}

// maxWindow bounds how far zstd looks back, in bytes: level 19 looks back 8 MiB, and level 22 128 MiB if a page has
// them.
const maxWindow = 128 << 20

// fill reads dst and wants the end behind it.
func fill(dst []byte, r io.Reader) error {
	_, err := io.ReadFull(r, dst)
	if err == nil {
		var one [1]byte
		if n, end := io.ReadFull(r, one[:]); n == 0 && end == io.EOF {
			return nil
		}
		return errSize(len(dst))
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errSize(len(dst))
	}
	return err
}
