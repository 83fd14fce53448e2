package recipe

import (
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// Scenarios choose synthetic contextual-integrity scenarios.
type Scenarios struct {
	N       int    `yaml:"n" want:">=1"`
	Seed    uint64 `yaml:"seed"`
	HeldOut bool   `yaml:"held_out"` // scenarios whose names and values training scenarios never have
}

// Items makes the scenarios.
func (s Scenarios) Items() []ci.Item {
	if s.HeldOut {
		return ci.SynthesizeHeldOut(s.N, s.Seed)
	}
	return ci.Synthesize(s.N, s.Seed)
}

// CheckOut refuses a data file of an unknown kind, or in a folder that does not exist.
func CheckOut(out string) (faults fault.Faults) {
	if out == "" {
		return nil
	}
	dir := filepath.Dir(out)
	if err := data.CheckWritable(out); err != nil {
		faults.Add("out", out, "want a name that ends in .jsonl, .json or .parquet, each also with .gz")
	} else if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		faults.Add("out", out, "there is no folder %s to write it in", dir)
	}
	return faults
}
