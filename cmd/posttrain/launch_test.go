//go:build unix

package main

import (
	"strings"
	"testing"
)

// TestTrainingIsOneProcess: training among several processes says that it trains alone.
func TestTrainingIsOneProcess(t *testing.T) {
	work(t, "qwen2-newer")
	t.Setenv("RANK", "1")
	t.Setenv("WORLD_SIZE", "4")
	o := must(t, tinyMappo(1)...)
	if !strings.Contains(o.err, "rank 1 of 4 (torchrun: RANK=1, WORLD_SIZE=4): processes do not train together") {
		t.Error(o.err)
	}
}
