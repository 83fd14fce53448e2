// Package sweep runs a training recipe once for each value of a key of its config, or for each point of a grid of
// several keys, one after the other, and compares what the runs come to.
//
// The folder of a sweep has config.yaml (which recipe and which values), for each point a config NAME.yaml and a run
// folder NAME, where NAME is key=value, and table.jsonl of the runs that are finished. The configs are written before
// the first run: a sweep continues with what it was started with, whatever has become of the config that the user named.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// Recipe is a training recipe with options O, as a sweep sees it. Register it before use.
type Recipe[O any] struct {
	Spec  *config.Spec[O]
	Dir   func(*O) *recipe.RunDir
	Run   func(context.Context, O, run.Reporter) error
	Check func(*O) error // refuses options that leave nothing to compare; may be nil

	Read func(dir string) (steps int, m []Measure, err error) // of a finished run, always the same measures

	stored *config.Spec[settings]
}

// Sweep is a new sweep, or one to continue.
type Sweep[O any] struct {
	// Fetch brings the models and data that a run's options name to this machine, and names them there; nil: they are.
	Fetch func(context.Context, *O, run.Reporter) error

	recipe  Recipe[O]
	axes    []Axis
	points  []Point
	options []*O   // of a new sweep's points
	out     string // the folder to make; "": runs/<command>-sweep-<time>
	resume  string // the folder to continue; "": a new sweep
}

// settings is config.yaml, whose command is that of the recipe with the flag.
type settings struct {
	Sweep []string `yaml:"sweep"` // axes
}

const configName = "config.yaml"

// Register makes config.yaml of a recipe's sweeps known to all commands. Call it while packages initialise.
func Register[O any](r Recipe[O]) Recipe[O] {
	r.stored = config.Register(&config.Spec[settings]{Command: r.Spec.Command + " " + Flag,
		Defaults: func(*config.Given) settings { return settings{} }})
	return r
}

// Is says that a folder has a sweep.
func Is(dir string) bool {
	text, err := config.Open(filepath.Join(dir, configName))
	return dir != "" && err == nil && strings.HasSuffix(config.CommandOf(text), " "+Flag)
}

// New plans a sweep. It reads all configs: those of all points must be right. texts are axes.
func (r Recipe[O]) New(in config.Input, texts []string, out string) (*Sweep[O], error) {
	axes, err := parseAxes(texts)
	if err != nil {
		return nil, err
	}
	s := &Sweep[O]{recipe: r, axes: axes, points: Grid(axes), out: out}
	for _, a := range axes {
		if err := r.checkKey(a, in.Overrides); err != nil {
			return nil, err
		}
	}
	for _, p := range s.points {
		o, err := r.load(config.Input{Path: in.Path, Overrides: slices.Concat(in.Overrides, p), Flags: in.Flags})
		if err != nil {
			return nil, err
		}
		s.options = append(s.options, o)
	}
	return s, nil
}

// checkKey refuses keys that are no numbers, and those that another flag sets. The config refuses unknown keys.
func (r Recipe[O]) checkKey(a Axis, sets []config.Override) error {
	kind := r.Spec.TypeOf(a.Key)
	if r.Spec.HasKey(a.Key) && !slices.Contains([]string{"int", "uint", "float"}, kind) {
		return wrong(a.String(), "%s is not a number (its type is %s): want a key such as reward.restricted_weight",
			a.Key, kind)
	}
	for _, set := range sets {
		if set.Key == a.Key {
			return wrong(a.String(), "%s sets %s, too: remove one of the two", set.Flag, a.Key)
		}
	}
	return nil
}

func (r Recipe[O]) load(in config.Input) (*O, error) {
	o, err := r.Spec.Load(in)
	if err == nil && r.Check != nil {
		err = r.Check(o)
	}
	return o, err
}

// Open reads a sweep to continue.
func (r Recipe[O]) Open(dir string) (*Sweep[O], error) {
	stored, err := r.stored.Load(config.Input{Path: filepath.Join(dir, configName)})
	if err != nil {
		return nil, err
	}
	if len(stored.Sweep) == 0 {
		return nil, fmt.Errorf("%s: sweep is missing: want its keys and values", filepath.Join(dir, configName))
	}
	axes, err := parseAxes(stored.Sweep)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, configName), err)
	}
	return &Sweep[O]{recipe: r, axes: axes, points: Grid(axes), resume: dir}, nil
}

// Run runs what is not finished, and compares. An interrupted sweep is a recipe.Stopped. A nil Reporter is silent.
func (s *Sweep[O]) Run(ctx context.Context, r run.Reporter) (*Result, error) {
	for _, o := range s.options {
		if err := s.fetch(ctx, o, r); err != nil {
			return nil, err
		}
	}
	folder, err := s.open()
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	result := &Result{Dir: folder.Dir, Axes: s.axes}
	for i, p := range s.points {
		if err := s.runPoint(ctx, folder, i, run.Listen(r)); err != nil {
			return nil, s.explain(err, folder, i, ctx.Err() != nil)
		}
		row, err := s.recipe.row(folder.Path(p.Name()), p)
		if err != nil {
			return nil, err
		}
		result.Rows = append(result.Rows, row)
		if err := result.write(folder); err != nil {
			return nil, err
		}
	}
	return result, folder.WriteSummary(result.String())
}

func (s *Sweep[O]) fetch(ctx context.Context, o *O, r run.Reporter) error {
	if s.Fetch == nil {
		return nil
	}
	return s.Fetch(ctx, o, r)
}

// open makes the folder with the configs of all points, or opens the one to continue.
func (s *Sweep[O]) open() (*run.Folder, error) {
	if s.resume != "" {
		folder, err := run.Open(s.resume)
		if err == nil {
			err = folder.Own(tableName)
		}
		return folder, err
	}
	folder, err := run.Create(s.out, s.recipe.Spec.Command+"-sweep")
	if err != nil {
		return nil, err
	}
	var stored settings
	for _, a := range s.axes {
		stored.Sweep = append(stored.Sweep, a.String())
	}
	for i, p := range s.points {
		if err := folder.WriteFile(p.Name()+".yaml", s.recipe.Spec.Resolve(s.options[i])); err != nil {
			return nil, errors.Join(err, folder.Close())
		}
	}
	// The last file: from now on the sweep can be continued.
	if err := folder.WriteConfig(s.recipe.stored.Resolve(&stored)); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

// runPoint begins a point's run, continues it, or finds it finished.
func (s *Sweep[O]) runPoint(ctx context.Context, folder *run.Folder, i int, r run.Reporter) error {
	name := s.points[i].Name()
	dir := folder.Path(name)
	if run.Finished(dir) {
		r.Say("run %d of %d, %s: finished before", i+1, len(s.points), name)
		return nil
	}
	r.Say("run %d of %d, %s", i+1, len(s.points), name)
	path, dirs := dir+".yaml", recipe.RunDir{Out: dir}
	if begun := filepath.Join(dir, configName); exists(begun) {
		path, dirs = begun, recipe.RunDir{Resume: dir}
	}
	o, err := s.recipe.load(config.Input{Path: path})
	if err == nil {
		err = s.fetch(ctx, o, r)
	}
	if err != nil {
		return err
	}
	*s.recipe.Dir(o) = dirs
	return s.recipe.Run(ctx, *o, r)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// explain says where the sweep ended. A new sweep whose first run could not begin leaves nothing.
func (s *Sweep[O]) explain(err error, folder *run.Folder, i int, interrupted bool) error {
	name := s.points[i].Name()
	where := fmt.Sprintf("in run %d of %d, %s", i+1, len(s.points), name)
	if stopped := (*recipe.Stopped)(nil); errors.As(err, &stopped) {
		return &recipe.Stopped{Where: where + ", " + stopped.Where, Dir: folder.Dir}
	}
	if interrupted {
		return &recipe.Stopped{Where: where, Dir: folder.Dir}
	}
	if i == 0 && s.resume == "" && !exists(folder.Path(name)) {
		return errors.Join(err, folder.Close(), os.RemoveAll(folder.Dir)) // it was empty before
	}
	return fmt.Errorf("%s: %w (the sweep continues with --resume %s)", where, err, folder.Dir)
}
