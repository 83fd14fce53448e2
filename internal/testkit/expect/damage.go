package expect

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Edit is a copy of a file with a few bytes changed. Four bytes of edits are one change: where (two bytes, from the
// end if the second is odd), how, and a byte.
func Edit(file, edits []byte) []byte {
	file = append([]byte(nil), file...)
	for ; len(edits) >= 4; edits = edits[4:] {
		at := int(binary.LittleEndian.Uint16(edits)) >> 1 % len(file)
		if edits[1]&1 == 1 {
			at = len(file) - 1 - at
		}
		switch edits[2] % 4 {
		case 0:
			file[at] = edits[3]
		case 1:
			file[at] ^= 1 << (edits[3] % 8)
		case 2: // a number of some bytes as thrift and parquet's runs write it; an even one is a run of equal values
			number := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}[4-edits[3]%5:]
			number[0] -= edits[3] >> 7
			copy(file[at:], number)
		case 3: // the same bytes twice
			copy(file[at:], file[max(0, at-int(edits[3])):at])
		}
	}
	return file
}

// Within panics after 15 seconds unless stop is called: a fuzz target without it waits for ever.
func Within(input string) (stop func() bool) {
	return time.AfterFunc(15*time.Second, func() { panic(fmt.Sprintf("no end within 15 seconds: %q", input)) }).Stop
}
