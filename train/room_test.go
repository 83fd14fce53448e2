package train

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// TestCheckpointsWithLittleMemory: without room for a copy, steps wait while the state is written, one notice says so,
// and the run ends in the same bits.
func TestCheckpointsWithLittleMemory(t *testing.T) {
	dirs := t.TempDir()
	whole := filepath.Join(dirs, "whole")
	mustFollow(t, whole, func(*Loop) {})
	weights := uint64(4 * testkit.Config(t, "llama").ParamCount())
	for name, free := range map[string]uint64{"none": 0, "for the best weights": CopyShare * weights,
		"enough": 3 * CopyShare * weights} {
		dir, notices := filepath.Join(dirs, name), 0
		mustFollow(t, dir, func(l *Loop) {
			l.Options.CheckpointEvery, l.Memory = 1, func() uint64 { return free }
			l.OnStep = func(int, int, map[string]float64) {
				if l.writer.done != nil && free == 0 {
					t.Error("a checkpoint is written while a step runs")
				}
			}
			l.OnNotice = func(line string) {
				if strings.HasPrefix(line, "checkpoints: steps wait") {
					notices++
				}
			}
		})
		sameRuns(t, whole, dir)
		if said := notices == 1; notices > 1 || said != (name != "enough") {
			t.Errorf("%s: %d notices", name, notices)
		}
	}
}

// measured makes tensors, and measures how much memory is in use when one is asked for.
type measured struct {
	model *model.Model
	most  uint64
}

func (m *measured) tensor(_ storedPart, i int) ([]float32, error) {
	m.most = max(m.most, heap())
	return make([]float32, m.model.Params[i].Size()), nil
}

// heap is the memory in use, in bytes.
func heap() uint64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return now.HeapAlloc
}

// TestACheckpointNeedsOneTensor: a checkpoint is written with one tensor on the host at a time.
func TestACheckpointNeedsOneTensor(t *testing.T) {
	c := testkit.Config(t, "llama")
	c.VocabSize, c.HiddenSize, c.IntermediateSize = 512, 1024, 1024
	m := model.Init(c, 1)
	s, most, all := &measured{model: m}, 0, 0
	for _, p := range m.Params {
		most, all = max(most, 4*p.Size()), all+4*p.Size()
	}
	before := heap()
	expect.OK(t, (Exporter{Model: m}).writeCheckpoint(t.TempDir(), s, nil))
	const buffers = 2 << 20
	if extra := int(s.most - min(s.most, before)); extra > most+buffers || 3*all < 4*(most+buffers) {
		t.Errorf("%d bytes beside the model, want at most one tensor's %d and %d of buffers; all have %d", extra, most,
			buffers, 3*all)
	}
}

// TestAnAdaptersCheckpointIsSmall: a copy takes the room of what is trained, not of the model below it.
func TestAnAdaptersCheckpointIsSmall(t *testing.T) {
	m := withLoRA(testkit.Model(t, "llama"))
	l := tinyLoop(learner(t, backendtest.Go(t), m), m)
	free := uint64(CopyShare * 3 * 4 * l.Learner.Size())
	l.Memory = func() uint64 { return free }
	if !l.hasRoom(true) {
		t.Errorf("no room for an adapter of %d weights in %d bytes", l.Learner.Size(), free)
	}
	free--
	if l.hasRoom(true) {
		t.Error("there is room for less than a copy")
	}
}
