//go:build fixtures

package model

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestWriteForPeft leaves an adapter and its logits for `scripts/oracle/lora.py check`.
func TestWriteForPeft(t *testing.T) {
	dir := os.Getenv("POSTTRAIN_LORA_OUT")
	if dir == "" {
		t.Fatal("want POSTTRAIN_LORA_OUT to name a folder")
	}
	m := adapted(t, load(t, "testdata/qwen3-newer"))
	expect.OK(t, (Writer{}).SaveAdapter(m, filepath.Join(dir, "adapter"), ""))
	o := peftOracle{Model: "qwen3-newer"}
	for _, row := range readOracle(t, "testdata/qwen3-newer").Rows {
		row.Logits = rowLogits(t, backendtest.Go(t), m, row.IDs)
		o.Rows = append(o.Rows, struct {
			IDs    []int32     `json:"ids"`
			Logits [][]float32 `json:"logits"`
		}{row.IDs, row.Logits})
	}
	text, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "logits.json"), text, 0o666)
	}
	expect.OK(t, err)
}
