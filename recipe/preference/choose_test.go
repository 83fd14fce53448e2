package preference

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
)

// openOptions leaves what follows the data open.
func openOptions(t *testing.T, sets ...string) *Options {
	t.Helper()
	o, err := parseOpen(t, append(sets, "train.max_steps=2")...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func parseOpen(t *testing.T, sets ...string) (*Options, error) {
	t.Helper()
	all := testkit.Overrides(t, append(sets, "model=embedded", "data.train=embedded")...)
	return Spec.Parse("", []byte("command: mappo"), config.Input{Overrides: all})
}

// TestResumeKeepsWhatWasChosen: config.yaml has the numbers, and a run that is resumed with the user's config keeps
// them.
func TestResumeKeepsWhatWasChosen(t *testing.T) {
	var said strings.Builder
	dir, o := filepath.Join(t.TempDir(), "run"), openOptions(t)
	o.Dir.Out = dir
	if _, err := Run(context.Background(), *o, run.NewReporter(&said, false, false)); err != nil {
		t.Fatal(err)
	}
	if want := "rate 5e-06 (a preference loss, all weights of a model of"; !strings.Contains(said.String(), want) {
		t.Errorf("lacks %q:\n%s", want, &said)
	}
	path := filepath.Join(dir, "config.yaml")
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "learning_rate: 5e-06\n") ||
		!strings.Contains(string(text), "warmup_steps: 0\n") {
		t.Errorf("%v\n%s", err, text)
	}
	other := strings.Replace(string(text), "learning_rate: 5e-06", "learning_rate: 3e-05", 1)
	expect.Write(t, path, other)
	again := openOptions(t)
	again.Dir = recipe.RunDir{Resume: dir}
	r, err := again.open(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Choose(1000, 1, "pairs", true); r.Train.LearningRate != 3e-5 || r.Train.EvalEvery != 0 {
		t.Errorf("rate %v, evaluations every %d steps, want those of config.yaml", r.Train.LearningRate, r.Train.EvalEvery)
	}
	changed := openOptions(t, "train.learning_rate=1")
	changed.Dir = recipe.RunDir{Resume: dir}
	if _, err := changed.open(nil, false); err == nil || !strings.Contains(err.Error(), "the config has changed") {
		t.Errorf("another rate: %v", err)
	}
}

// TestPaperConfigsKeepTheirs: they leave nothing of the paper's open.
func TestPaperConfigsKeepTheirs(t *testing.T) {
	files, err := filepath.Glob("../../configs/*paper*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		_, text := configs.Read(filepath.Base(file))
		if config.CommandOf(text) != Command {
			continue
		}
		o, err := Spec.Parse(file, text, config.Input{Allow: config.Anything})
		if err != nil {
			t.Error(err)
			continue
		}
		for _, key := range []string{"batch_size", "learning_rate", "warmup_steps"} {
			if o.Train.IsUnset(key) {
				t.Errorf("%s leaves train.%s open", file, key)
			}
		}
	}
}

// TestPatienceWantsEvaluations, during training, and mode offline.
func TestPatienceWantsEvaluations(t *testing.T) {
	for _, sets := range [][]string{{"train.patience=2"}, {"train.patience=2", "mode=online"},
		{"train.patience=2", "data.eval_fraction=0.1", "train.eval_every=0"}} {
		_, err := parseOpen(t, sets...)
		if faults := (config.Faults)(nil); !errors.As(err, &faults) || !strings.Contains(err.Error(), "train.patience 2: ") {
			t.Errorf("%v: %v", sets, err)
		}
	}
}
