// Package verify repeats parts of a training run, from one checkpoint to the next, and compares the weights and the
// optimiser's state bit for bit. A receipt says that files are as they were; this says that the training made them.
package verify

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/track"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/recipe/rewardmodel"
	"github.com/posttrain/posttrain/recipe/sft"
)

// Interval are the steps after a checkpoint, to the next one. From 0 is the start of the run.
type Interval struct{ From, To int }

func (i Interval) String() string { return fmt.Sprintf("steps %d to %d", i.From+1, i.To) }

// Intervals are those between the checkpoints that a run folder has kept.
func Intervals(dir string) (all []Interval, err error) {
	checkpoints, err := run.Checkpoints(dir)
	if err != nil {
		return nil, err
	}
	from := 0
	for _, c := range checkpoints {
		if c.Step > from {
			all = append(all, Interval{from, c.Step})
		}
		from = c.Step
	}
	if all == nil {
		return nil, fmt.Errorf("%s: it has kept no checkpoint, so no step can be repeated", dir)
	}
	return all, nil
}

// repeat runs the config of a path in another place.
type repeat func(ctx context.Context, path string, place recipe.Place, r run.Reporter) error

var recipes = map[string]repeat{
	"mappo": by(preference.Spec, preference.Run, func(o *preference.Options, p recipe.Place) {
		o.Place, o.Tracking = p, track.Options{}
	}),
	"sft": by(sft.Spec, sft.Run, func(o *sft.Options, p recipe.Place) { o.Place, o.Tracking = p, track.Options{} }),
	"ci-rl": by(cirl.Spec, cirl.Run, func(o *cirl.Options, p recipe.Place) {
		o.Place, o.Tracking = p, track.Options{}
	}),
	"reward-model": by(rewardmodel.Spec, rewardmodel.Run, func(o *rewardmodel.Options, p recipe.Place) {
		o.Place, o.Tracking = p, track.Options{}
	}),
}

// by makes a repeat of a recipe. The copy tells no tracker.
func by[O, R any](spec *config.Spec[O], do func(context.Context, O, run.Reporter) (R, error),
	in func(*O, recipe.Place)) repeat {
	return func(ctx context.Context, path string, place recipe.Place, r run.Reporter) error {
		o, err := spec.Load(config.Input{Path: path})
		if err != nil {
			return err
		}
		in(o, place)
		_, err = do(ctx, *o, r)
		return err
	}
}

// Replay repeats an interval in a temporary folder, and returns a line for each file of its last checkpoint that comes
// out otherwise. The run folder is only read. Paths of data and models are those of the config.
func Replay(ctx context.Context, dir string, i Interval, r run.Reporter) (differences []string, err error) {
	path := filepath.Join(dir, "config.yaml")
	text, err := config.Open(path)
	if err != nil {
		return nil, err
	}
	again := recipes[config.CommandOf(text)]
	if again == nil {
		return nil, fmt.Errorf("%s: a run of posttrain %s cannot be repeated: want one of mappo, sft, ci-rl or "+
			"reward-model", dir, config.CommandOf(text))
	}
	values, err := config.ValuesOf(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if engine := strings.Join(values["rollout.engine"], ""); engine != "" {
		return nil, fmt.Errorf("%s: rollout.engine %s: servers drew its completions, and would be given the weights of "+
			"the repeat: such a run cannot be repeated", dir, engine)
	}
	work, err := os.MkdirTemp("", "posttrain-verify-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	place := recipe.Place{Out: filepath.Join(work, "run"), Until: i.To}
	if i.From > 0 {
		if err := copyUntil(dir, place.Out, i.From); err != nil {
			return nil, err
		}
		place.Out, place.Resume = "", place.Out
	}
	err = again(ctx, path, place, r)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%v were not repeated to the end: %w", i, recipe.ErrInterrupted)
	case err != nil && !errors.Is(err, recipe.ErrInterrupted):
		return nil, err
	}
	return compare(checkpoint(dir, i.To), checkpoint(filepath.Join(work, "run"), i.To))
}

func checkpoint(dir string, step int) string { return (&run.Folder{Dir: dir}).CheckpointDir(step) }

// ended are entries of a run folder that a run writes at its end, or that are not its own.
var ended = []string{"lock", "model", "adapter", "receipt.json", "receipt.sig", "summary.txt", "summary.json", "curves.png",
	"tensorboard", "mlflow.json"}

// copyUntil copies a run as it was after a checkpoint: without later ones, and without what ends a run.
func copyUntil(dir, to string, step int) error {
	checkpoints, err := run.Checkpoints(dir)
	if err != nil {
		return err
	}
	skip := map[string]bool{}
	for _, name := range ended {
		skip[name] = true
	}
	for _, c := range checkpoints {
		if name, err := filepath.Rel(dir, c.Dir); err == nil && c.Step > step {
			skip[name] = true
		}
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, bad := filepath.Rel(dir, path)
		switch {
		case errors.Join(err, bad) != nil:
			return errors.Join(err, bad)
		case skip[name] && d.IsDir():
			return fs.SkipDir
		case skip[name]:
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o777)
		}
		return copyFile(path, filepath.Join(to, name))
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// compare wants the tensors of two checkpoints to be equal.
func compare(was, now string) (differences []string, err error) {
	err = filepath.WalkDir(was, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".safetensors") {
			return err
		}
		name, err := filepath.Rel(was, path)
		if err != nil {
			return err
		}
		at, err := firstDifference(path, filepath.Join(now, name))
		if at >= 0 {
			differences = append(differences, fmt.Sprintf("%s is not what the steps give: byte %d differs", path, at))
		}
		return err
	})
	if len(differences) > 0 {
		if a, b := engineOf(was), engineOf(now); a != b {
			return nil, fmt.Errorf("%s: the run was made on engine %s, here it is %s, which rounds otherwise: nothing "+
				"can be compared", was, a, b)
		}
	}
	return differences, err
}

// firstDifference is the place of the first byte that differs, -1 where none does.
func firstDifference(a, b string) (int64, error) {
	x, err := os.Open(a)
	if err != nil {
		return -1, err
	}
	defer x.Close()
	y, err := os.Open(b)
	if err != nil {
		return -1, err
	}
	defer y.Close()
	left, right := bufio.NewReaderSize(x, 1<<20), bufio.NewReaderSize(y, 1<<20)
	for at := int64(0); ; at++ {
		p, first := left.ReadByte()
		q, second := right.ReadByte()
		switch {
		case first == io.EOF && second == io.EOF:
			return -1, nil
		case first == io.EOF || second == io.EOF:
			return at, nil
		case first != nil || second != nil:
			return -1, errors.Join(first, second)
		case p != q:
			return at, nil
		}
	}
}

// engineOf is the engine that wrote a checkpoint, "" where it does not say.
func engineOf(dir string) string {
	var s struct{ Engine string }
	text, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil || json.Unmarshal(text, &s) != nil {
		return ""
	}
	return s.Engine
}
