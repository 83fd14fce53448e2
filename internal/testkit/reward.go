package testkit

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// RewardRow is a text with transformers' score.
type RewardRow struct {
	Prompt, Response data.Text
	IDs              []int32
	Score            float64
}

// RewardModel makes the folder of a reward model from the fixtures of package model, which are in a folder, with
// transformers' scores of some texts (scripts/oracle/rewards.py).
func RewardModel(t testing.TB, fixtures, kind string) (dir string, rows []RewardRow) {
	t.Helper()
	var f struct {
		Model   string              `json:"model"`
		Config  json.RawMessage     `json:"config"`
		Score   []float32           `json:"score"` // of a head of one row
		Tensors map[string]struct { // of others
			Shape []int
			Data  []float32
		}
		Rows []struct {
			Prompt, Response json.RawMessage
			IDs              []int32
			Score            float64
		}
	}
	expect.Decode(t, filepath.Join(fixtures, "reward", kind+".json"), &f)
	const weights = "model.safetensors"
	tensors, _, err := model.ReadTensors(filepath.Join(fixtures, f.Model, weights))
	expect.OK(t, err)
	tensors = slices.DeleteFunc(tensors, func(x model.Tensor) bool { return x.Name == "lm_head.weight" })
	if f.Score != nil {
		tensors = append(tensors, model.Tensor{Name: "score.weight", Shape: []int{1, len(f.Score)}, Floats: f.Score})
	}
	for _, name := range slices.Sorted(maps.Keys(f.Tensors)) {
		x := f.Tensors[name]
		tensors = append(tensors, model.Tensor{Name: name, Shape: x.Shape, Floats: x.Data})
	}
	dir = t.TempDir()
	expect.OK(t, os.CopyFS(dir, os.DirFS(filepath.Join(fixtures, f.Model))), os.Remove(filepath.Join(dir, weights)),
		model.WriteTensors(filepath.Join(dir, weights), tensors, nil))
	expect.Write(t, filepath.Join(dir, "config.json"), f.Config)
	for _, r := range f.Rows {
		rows = append(rows, RewardRow{textOf(r.Prompt), textOf(r.Response), r.IDs, r.Score})
	}
	return dir, rows
}

// textOf reads a text, or a list of messages.
func textOf(b json.RawMessage) (t data.Text) {
	if json.Unmarshal(b, &t.Plain) != nil {
		_ = json.Unmarshal(b, &t.Messages)
	}
	return t
}
