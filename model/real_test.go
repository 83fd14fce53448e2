package model

import (
	"math"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// realAnswers are what transformers computes with a real model, from scripts/models/answers.py.
type realAnswers struct {
	Sample []int32 // token ids whose logits are kept
	Texts  []realText
}

type realText struct {
	IDs   []int32
	Logps []float32 // of each token after the first
	At    []struct {
		Position  int
		Logits    []float32 // of Sample
		Top       []int32   // the ids with the largest logits
		TopLogits []float32 `json:"top_logits"`
		Means     []float32 // of the logits, over equal parts of the vocabulary
	}
}

// TestRealLogits holds a real model's log-probs of real texts to transformers', every token's, and its logits at some
// positions. The longest text has a row for itself, the others share one. The go engine has the shortest text.
func TestRealLogits(t *testing.T) {
	m, answers := load(t, need.Path(t, "model")), readRealAnswers(t)
	last := len(answers.Texts) - 1
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		rows := [][]realText{answers.Texts[:last], answers.Texts[last:]}
		if e.Name == "go" {
			rows = [][]realText{answers.Texts[:1]}
		}
		logits := logitsOf(t, e, m, packTexts(rows))
		for _, text := range slices.Concat(rows...) {
			n := len(text.IDs)
			answers.compare(t, text, logits[:n])
			logits = logits[n:]
		}
	})
}

func readRealAnswers(t *testing.T) (a realAnswers) {
	t.Helper()
	expect.Decode(t, "testdata/smollm2/answers.json", &a)
	return a
}

// packTexts lays out texts with a slot for each token; the target of the last token's slot is not used.
func packTexts(rows [][]realText) packed {
	groups := make([][]group, len(rows))
	for r, row := range rows {
		for _, text := range row {
			groups[r] = append(groups[r], group{text.IDs[:1], [][]int32{append(slices.Clone(text.IDs[1:]), 0)}})
		}
	}
	return packRows(groups, 0)
}

// compare holds the logits [tokens][vocabulary] of a text to transformers'.
func (a realAnswers) compare(t *testing.T, text realText, logits [][]float32) {
	t.Helper()
	logps := make([]float32, len(text.Logps))
	for i, id := range text.IDs[1:] {
		logps[i] = float32(float64(logits[i][id]) - logSumExp(logits[i]))
	}
	d := [3]float64{worst(logps, text.Logps)}
	for _, at := range text.At {
		row := logits[at.Position]
		d[1] = max(d[1], worst(valuesAt(row, a.Sample), at.Logits), worst(valuesAt(row, at.Top), at.TopLogits))
		d[2] = max(d[2], worst(partMeans(row, len(at.Means)), at.Means))
	}
	t.Logf("%d tokens: log-probs within %.1e of transformers', logits at %d positions within %.1e, means within %.1e",
		len(text.IDs), d[0], len(text.At), d[1], d[2])
	near(t, "log-probs", d[0], 5e-4)
	near(t, "logits", d[1], 5e-4)
	near(t, "means of logits", d[2], 5e-4)
}

func logSumExp(logits []float32) float64 {
	most, sum := float64(slices.Max(logits)), 0.0
	for _, x := range logits {
		sum += float.Exp(float64(x) - most)
	}
	return most + math.Log(sum)
}

func valuesAt(row []float32, ids []int32) (out []float32) {
	for _, id := range ids {
		out = append(out, row[id])
	}
	return out
}

// partMeans are the means over n equal parts of a row.
func partMeans(row []float32, n int) (means []float32) {
	for part := range slices.Chunk(row, len(row)/n) {
		sum := 0.0
		for _, x := range part {
			sum += float64(x)
		}
		means = append(means, float32(sum/float64(len(part))))
	}
	return means
}
