package batch

import "slices"

// lengths are the row lengths that graphs are compiled for: few enough to be compiled once each, close enough that
// padding stays below a third.
var lengths = []int{32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768}

// bucket is the smallest compiled length that holds n; beyond the table it is n rounded up to whole 8,192s.
func bucket(n int) int {
	if i, _ := slices.BinarySearch(lengths, n); i < len(lengths) {
		return lengths[i]
	}
	return (n + 8191) / 8192 * 8192
}

// rowBucket rounds a number of rows up to quarters of the most that a batch of this size can need.
func rowBucket(rows, most int) int {
	quarter := max(1, (most+3)/4)
	return min(most, (rows+quarter-1)/quarter*quarter)
}
