package track

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file writes TensorBoard's event files: TFRecords of tensorflow.Event messages. The numbers of fields are those
// of event.proto, summary.proto and tensor.proto in tensorboard/compat/proto.

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

// histogram is a Summary.Value of some numbers: a HistogramProto with buckets of one width, as many as TensorBoard's own
// summaries have by default. A bucket has its right end. What is not finite is left out; nil where nothing is left.
func histogram(tag string, values []float64) []byte {
	values = slices.DeleteFunc(slices.Clone(values), func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	if len(values) == 0 {
		return nil
	}
	least, most := slices.Min(values), slices.Max(values)
	sum, squares := 0.0, 0.0
	for _, x := range values {
		sum, squares = sum+x, squares+x*x
	}
	limits, counts := buckets(values, least, most)
	h := []byte(nil)
	for i, x := range []float64{least, most, float64(len(values)), sum, squares} {
		if x != 0 { // proto3 leaves zeros out
			h = appendDouble(h, protowire.Number(i+1), x)
		}
	}
	h = appendDoubles(appendDoubles(h, 6, limits), 7, counts)
	return appendMessage(appendText(nil, 1, tag), 5, h)
}

const mostBuckets = 30

// buckets are the right ends of buckets between two values, and how many values each has; one bucket of equal values.
func buckets(values []float64, least, most float64) (limits, counts []float64) {
	n, width := mostBuckets, (most-least)/mostBuckets
	if width == 0 || math.IsInf(width, 0) {
		n = 1
	}
	limits, counts = make([]float64, n), make([]float64, n)
	for i := range limits {
		limits[i] = least + float64(i+1)*width
	}
	limits[n-1] = most
	for _, x := range values {
		at, _ := slices.BinarySearch(limits, x) // the first bucket whose end is x or more
		counts[at]++
	}
	return limits, counts
}

// appendDoubles writes a packed repeated field.
func appendDoubles(to []byte, field protowire.Number, all []float64) []byte {
	var packed []byte
	for _, x := range all {
		packed = protowire.AppendFixed64(packed, math.Float64bits(x))
	}
	return appendMessage(to, field, packed)
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
