package model

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/backend"
)

// realAnswers is answers.json of scripts/models/answers.py.
type realAnswers struct {
	Texts []struct {
		IDs    []int32 `json:"ids"`
		Logits string  `json:"logits"`
	} `json:"texts"`
}

// TestRealLogits holds the logits of a real model on real texts to transformers'. The go engine has the shortest two.
func TestRealLogits(t *testing.T) {
	folder, from := os.Getenv("POSTTRAIN_REAL_MODEL"), os.Getenv("POSTTRAIN_REAL_ANSWERS")
	if folder == "" || from == "" {
		t.Skip("set POSTTRAIN_REAL_MODEL and POSTTRAIN_REAL_ANSWERS: scripts/models/answers.py says how")
	}
	raw, err := os.ReadFile(filepath.Join(from, "answers.json"))
	var answers realAnswers
	if err == nil {
		err = json.Unmarshal(raw, &answers)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, folder)
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		texts, most, tokens := answers.Texts, 0.0, 0
		if e.Name == "go" {
			texts = texts[:2]
		}
		for _, text := range texts {
			want := readNumbers(t, filepath.Join(from, text.Logits), len(text.IDs)*m.Config.VocabSize)
			p := pack([]group{{text.IDs[:1], [][]int32{append(text.IDs[1:], 0)}}}, false, 0)
			for i, got := range logitsOf(t, e, m, p) {
				most = max(most, worst(got, want[i*m.Config.VocabSize:][:m.Config.VocabSize]))
			}
			tokens += len(text.IDs)
		}
		t.Logf("%d texts, %d tokens: logits within %.1e of transformers'", len(texts), tokens, most)
		near(t, "logits", most, 1e-3)
	})
}

func readNumbers(t *testing.T, path string, n int) []float32 {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil || len(raw) != 4*n {
		t.Fatalf("%s: %d bytes, want %d (%v)", path, len(raw), 4*n, err)
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}
