package plan

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/cirl"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/recipe/sft"
)

// chooser chooses for the run of a text on the go engine, where the command line gives some keys.
func chooser(t *testing.T, spec config.Command, text string, fixed ...string) *Chooser {
	t.Helper()
	debug.FreeOSMemory() // what other tests left would count as the program's
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("command: "+spec.Name()+"\nbackend: go\n"+text), 0o666); err != nil {
		t.Fatal(err)
	}
	return &Chooser{
		Fixed: func(key string) bool { return slices.Contains(fixed, key) },
		Read: func(changes []config.Override, _ run.Reporter) (recipe.Drafter, error) {
			o, err := spec.Read(config.Input{Path: path, Overrides: changes})
			if err != nil {
				return nil, err
			}
			return o.(recipe.Drafter), nil
		},
	}
}

const (
	pairs8 = "model: embedded\ndata: {train: embedded}\ntrain: {max_steps: 10, batch_size: 8, warmup_steps: 0}\n"
	demos8 = "model: embedded\ndata: {train: embedded}\ntrain: {max_steps: 10, batch_size: 8, warmup_steps: 0, " +
		"gradient_checkpointing: true}\n"
	items = "model: embedded\ndata: {train: embedded, scenarios: 40}\nsampling: {max_new_tokens: 400}\n" +
		"grpo: {prompts_per_step: 16, group_size: 16}\ntrain: {max_steps: 3}\nvalidation: {every: 0}\n"
)

// TestChoose: limits as shares of what the run takes as it is, and what is chosen within them.
func TestChoose(t *testing.T) {
	const all = 1.2 // of a peak is room for it with its doubt
	for _, c := range []struct {
		name         string
		spec         config.Command
		text         string
		fixed        []string
		memory, time float64
		want         string // prefix of the changes
		refused      bool
	}{
		{"all fits", preference.Spec, pairs8, nil, all, all, "", false},
		{"memory for smaller batches", preference.Spec, pairs8, nil, 0.95, 0, "train.micro_batch_size", false},
		{"batches are fixed", preference.Spec, pairs8, []string{microKey}, 0.95, 0, againKey + "=true", false},
		{"only an adapter is left", preference.Spec, pairs8, []string{microKey, againKey}, 1.05, 0, "lora.rank=16",
			false},
		{"the adapter is fixed, too", preference.Spec, pairs8, []string{microKey, againKey, "lora.rank"}, 1.05, 0, "",
			true},
		{"no memory", preference.Spec, pairs8, nil, 0.1, 0, "", true},
		{"no time for all steps", sft.Spec, demos8, []string{"lora.rank"}, 0, 0.6, "train.max_steps=", false},
		{"steps are fixed", sft.Spec, demos8, []string{"lora.rank", "train.epochs"}, 0, 0.4, "", true},
		{"no time at all", preference.Spec, pairs8, nil, 0, 0.001, "", true},
		{"layers need not be computed again", sft.Spec, demos8, []string{microKey}, 0, 0.99, againKey + "=false",
			false},
		{"a smaller cache of answers", cirl.Spec, items, nil, 0.85, 0, cacheKey, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := chooser(t, c.spec, c.text, c.fixed...)
			own := x.plan(t.Context(), nil, nil)
			if own.err != nil {
				t.Fatal(own.err)
			}
			x.Memory = int(c.memory * float64(own.plan.Memory.Peak))
			x.Within = time.Duration(c.time * own.plan.Time.Likely * 1e9)
			p, err := x.Choose(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Refusal(); (err != nil) != c.refused {
				t.Fatalf("refused with %v", err)
			}
			checkChoice(t, x, p, c.want, c.refused)
		})
	}
}

// checkChoice: the choice keeps the limits, is the first that does, and names all others with a reason.
func checkChoice(t *testing.T, x *Chooser, p *Plan, want string, refused bool) {
	t.Helper()
	var changed []string
	for _, o := range p.Choice.Changes {
		changed = append(changed, o.Key+"="+o.Value)
	}
	if got := strings.Join(changed, " "); !refused && (!strings.HasPrefix(got, want) || (got == "") != (want == "")) {
		t.Errorf("chosen %q, want %q", got, want)
	}
	if memory, late, _ := x.misses(p); !refused && (memory || late) {
		t.Errorf("the choice takes %d bytes and %v s", p.Memory.Peak, p.Time.Likely)
	}
	if len(p.Choice.GivesUp) != len(changed) || len(p.Choice.LeftOut) != len(x.tried)-1 {
		t.Errorf("%d changes give up %q; %d trials, left out %v", len(changed), p.Choice.GivesUp, len(x.tried),
			p.Choice.LeftOut)
	}
	for _, l := range p.Choice.LeftOut {
		if l.Why == "" || !strings.Contains(p.String(), l.Why) {
			t.Errorf("%s is left out for %q, in\n%s", l.Settings, l.Why, p)
		}
	}
	if len(x.tried) > 16 {
		t.Errorf("%d trials", len(x.tried))
	}
}

// TestShorten: a run of 10 steps that takes 100 s more than one of 1 step has 5 steps in 4/9 of that.
func TestShorten(t *testing.T) {
	x := chooser(t, preference.Spec, pairs8, "lora.rank", microKey)
	ten, one := x.plan(t.Context(), nil, nil), x.plan(t.Context(), []change{steps(1)}, nil)
	if ten.err != nil || one.err != nil {
		t.Fatal(ten.err, one.err)
	}
	first, all := one.plan.Time.Likely, ten.plan.Time.Likely
	x.Within = time.Duration((first + 5*(all-first)/9) * 1e9)
	p, err := x.Choose(t.Context(), nil)
	if err != nil || p.Steps < 4 || p.Steps > 6 || p.Refusal() != nil {
		t.Fatalf("%d steps of 10, which take %v s, within %v; 1 takes %v s; %v", p.Steps, all, x.Within, first, err)
	}
	if !strings.Contains(p.String(), "of 10 steps") {
		t.Errorf("the steps that are lost are not in\n%s", p)
	}
}

// TestChooseSays: settings that the run refuses are left out with the run's own words; an interrupted search is an
// error.
func TestChooseSays(t *testing.T) {
	x := chooser(t, preference.Spec, pairs8, microKey, againKey)
	read := x.Read
	x.Read = func(changes []config.Override, r run.Reporter) (recipe.Drafter, error) {
		if len(changes) > 0 {
			return nil, errors.New("not for this model")
		}
		return read(changes, r)
	}
	x.Memory = 1e6
	p, err := x.Choose(t.Context(), nil)
	if err != nil || p.Refusal() == nil || !strings.Contains(p.String(), "not for this model") {
		t.Errorf("%v: %v", err, p)
	}
	ctx, cancel := context.WithCancel(t.Context())
	x = chooser(t, preference.Spec, pairs8)
	x.Memory, x.Reporter = 1e6, nil
	read = x.Read
	x.Read = func(changes []config.Override, r run.Reporter) (recipe.Drafter, error) {
		if len(changes) > 0 {
			cancel()
		}
		return read(changes, r)
	}
	if _, err := x.Choose(ctx, nil); !errors.Is(err, recipe.ErrInterrupted) {
		t.Errorf("%v", err)
	}
}
