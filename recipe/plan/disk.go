package plan

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/recipe"
)

// Disk is what a run leaves in its folder at most, in bytes.
type Disk struct {
	Items []Item `json:"items"`
	Most  int    `json:"most"` // of the items, and of a checkpoint under way
	Free  int    `json:"free"` // where the run folder goes; -1: unknown
}

func (d *Disk) add(name string, bytes int) {
	if bytes > 0 {
		d.Items, d.Most = append(d.Items, Item{name, bytes}), d.Most+bytes
	}
}

// disk adds up what is written. A checkpoint has weights and both moments in float32; the newest is written before the
// oldest is removed.
func (p *Plan) disk(d *recipe.DryRun) (x Disk) {
	one, o := 12*p.Trained, d.Train
	kept := min(o.CheckpointKeep, p.checkpoints(d))
	x.add(fmt.Sprintf("%s of %s", recipe.Count(kept, "checkpoint"), size(one)), kept*one)
	if kept < p.checkpoints(d) {
		x.add("a checkpoint under way", one)
	}
	if d.Evaluates {
		x.add("the best weights, and those before", 2*4*p.Trained)
	}
	x.add("the result, "+d.Kind(), resultBytes(d))
	x.Free = -1
	if free, ok := files.Free(existing(d.Dir.Out)); ok {
		x.Free = int(min(free, math.MaxInt64))
	}
	return x
}

// checkpoints is how many the run writes: by steps, by minutes, and at the end.
func (p *Plan) checkpoints(d *recipe.DryRun) int {
	n := 1
	if every := d.Train.CheckpointEvery; every > 0 {
		n += (p.Steps - 1) / every
	}
	if m := d.Train.CheckpointMinutes; m > 0 {
		n += int(p.Time.Likely / 60 / m)
	}
	return min(n, max(1, p.Steps))
}

// resultBytes is the size of the model, or the adapter, that a finished run leaves.
func resultBytes(d *recipe.DryRun) int {
	bytes := 4
	if dtype := d.SaveDType(); dtype == "bfloat16" || dtype == "float16" {
		bytes = 2
	}
	if d.Adapting.On() {
		return bytes * d.Learner.Size()
	}
	return bytes * d.Model.Config.ParamCount()
}

// existing is a folder or the nearest one above it that is there.
func existing(dir string) string {
	for dir = filepath.Clean(dir); ; dir = filepath.Dir(dir) {
		if _, ok := files.Free(dir); ok || dir == filepath.Dir(dir) {
			return dir
		}
	}
}
