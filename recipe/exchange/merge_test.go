package exchange

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestMergeInterrupted: a merge that is interrupted leaves nothing, not even in its parent.
func TestMergeInterrupted(t *testing.T) {
	parent := t.TempDir()
	o := MergeOptions{Model: "../../model/testdata/llama-newer", Adapter: "../../train/testdata/lora-llama-ipo",
		Out: filepath.Join(parent, "merged"), DType: "auto"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Merge(ctx, o)
	expect.Error(t, err, "interrupted", "nothing was written")
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	if said, err := Merge(t.Context(), o); err != nil {
		t.Error(said, err)
	}
}
