package track

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file writes TensorBoard's event files: TFRecords of tensorflow.Event messages. The numbers of fields are from
// event.proto, summary.proto and tensor.proto in tensorboard/compat/proto.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC is TFRecord's checksum: a CRC-32C, rotated and shifted, so that the checksum of data that holds checksums
// is sound too.
func maskedCRC(data []byte) uint32 {
	crc := crc32.Checksum(data, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// appendRecord frames a message: its length and that length's checksum, the message and its checksum, little-endian.
func appendRecord(to, message []byte) []byte {
	start := len(to)
	to = binary.LittleEndian.AppendUint64(to, uint64(len(message)))
	to = binary.LittleEndian.AppendUint32(to, maskedCRC(to[start:]))
	to = append(to, message...)
	return binary.LittleEndian.AppendUint32(to, maskedCRC(message))
}

// event is a message tensorflow.Event: wall_time, step, and one field that what appends.
func event(at time.Time, step int, what []byte) []byte {
	e := appendDouble(nil, 1, float64(at.UnixNano())/1e9)
	if step != 0 { // proto3 leaves zeros out
		e = appendInt(e, 2, step)
	}
	return append(e, what...)
}

// version is the field file_version, with which every file begins.
func version() []byte { return appendText(nil, 3, "brain.Event:2") }

// restart is the field session_log with status START: readers forget this step of earlier files, and what follows it.
func restart() []byte { return appendMessage(nil, 7, appendInt(nil, 1, 1)) }

// summary is the field summary with these values.
func summary(values ...[]byte) []byte {
	var all []byte
	for _, v := range values {
		all = appendMessage(all, 1, v)
	}
	return appendMessage(nil, 5, all)
}

// scalar is a Summary.Value of a number.
func scalar(tag string, x float64) []byte {
	v := protowire.AppendTag(appendText(nil, 1, tag), 2, protowire.Fixed32Type)
	return protowire.AppendFixed32(v, math.Float32bits(float32(x)))
}

// text is a Summary.Value of a text in Markdown: a tensor of strings with the plugin text.
func text(tag, markdown string) []byte {
	const dtString = 7
	shape := appendMessage(nil, 2, appendInt(nil, 1, 1)) // one dimension, of size 1
	tensor := appendMessage(appendInt(nil, 1, dtString), 2, shape)
	tensor = appendText(tensor, 8, markdown)
	v := appendMessage(appendText(nil, 1, tag), 8, tensor)
	return appendMessage(v, 9, appendMessage(nil, 1, appendText(nil, 1, "text")))
}

func appendDouble(to []byte, field protowire.Number, x float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(to, field, protowire.Fixed64Type), math.Float64bits(x))
}

func appendInt(to []byte, field protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, field, protowire.VarintType), uint64(n))
}

func appendText(to []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(to, field, protowire.BytesType), s)
}

func appendMessage(to []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), m)
}
