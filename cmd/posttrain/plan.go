package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/plan"
	"github.com/posttrain/posttrain/recipe/preference"
)

// planFlags are those of posttrain plan.
type planFlags struct {
	configFlags
	asJSON bool
	within duration
	memory byteSize
}

func newPlan(s streams) *cobra.Command {
	f := &planFlags{configFlags: configFlags{command: preference.Command, known: mappoFlags,
		kind: preference.Spec.TypeOf}}
	f.quickStart, _ = preference.Spec.QuickStart(nil)
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what a run takes before it starts: memory, disk, batch shapes, steps, hours",
		Long: "Print what a training run takes before it starts: bytes in memory and on the disk, the shapes of\n" +
			"batches that are compiled, steps, tokens and hours. It reads the model's config.json, its tokenizer\n" +
			"and the data; the weights need not be there. A run that does not fit ends with exit code 1. The\n" +
			"config says which command it is for; without --config it is that of mappo.\n\n" +
			"With --within or --memory it looks for settings that keep the run within them, and prints the command\n" +
			"line of the run, what that gives up, and what was left out. It tries, in this order: the run as it is,\n" +
			"other micro batches, layers computed again (train.gradient_checkpointing), a LoRA adapter, one on\n" +
			"weights of 4 bits, fewer steps. What the command line sets stays; what the config sets may change.",
		Example: "  posttrain plan --config configs/mappo.yaml\n" +
			"  posttrain plan --config configs/sft.yaml --json\n" +
			"  posttrain plan --model DIR --data pairs.jsonl --lora-rank 16\n" +
			"  posttrain plan --config configs/mappo.yaml --within 20m --memory 8GB",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := f.plan(cmd, run.NewReporter(s.err, s.terminal, f.quiet))
			if err != nil {
				return err
			}
			if err := printPlan(s.out, p, f.asJSON); err != nil {
				return err
			}
			return p.Refusal()
		},
	}
	f.registerConfig(cmd)
	f.registerQuiet(cmd)
	f.fetcher.register(cmd)
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON, sizes in bytes, times in seconds")
	cmd.Flags().Var(&f.within, "within", "choose settings with which the run takes at most this long by its forecast, "+
		"such as 20m or 3h")
	cmd.Flags().Var(&f.memory, "memory", "choose settings with which the run takes at most this much memory, such as "+
		"8GB or 512MiB")
	return cmd
}

// plan plans the run, or chooses settings for it.
func (f *planFlags) plan(cmd *cobra.Command, r run.Reporter) (*plan.Plan, error) {
	sets, err := f.overrides(cmd)
	if err != nil {
		return nil, err
	}
	in := config.Input{Path: f.config, Overrides: sets, Flags: f.known}
	if f.within == 0 && f.memory == 0 {
		return planRun(cmd.Context(), in, &f.configFlags, r)
	}
	c := plan.Chooser{
		Limits: plan.Limits{Within: time.Duration(f.within), Memory: int(f.memory)},
		Fixed: func(key string) bool {
			return slices.ContainsFunc(sets, func(o config.Override) bool { return o.Key == key })
		},
		Read: func(changes []config.Override, r run.Reporter) (recipe.Drafter, error) {
			changed := in
			changed.Overrides = slices.Concat(sets, changes)
			return readPlanned(cmd.Context(), changed, &f.configFlags, r)
		},
	}
	p, err := c.Choose(cmd.Context(), r)
	if err == nil {
		p.Choice.Command = runLine(cmd, p)
	}
	return p, err
}

// runLine is the command line of a chosen plan: the flags that the plan was given, then its changes.
func runLine(cmd *cobra.Command, p *plan.Plan) string {
	words := []string{"posttrain", p.Command}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch v := f.Value.(type) {
		case *keyFlag:
			words = append(words, given(f, v.values)...)
		case pflag.SliceValue: // --set
			words = append(words, given(f, v.GetSlice())...)
		default:
			if f.Name == "config" || f.Name == "offline" {
				words = append(words, given(f, []string{v.String()})...)
			}
		}
	})
	for _, c := range p.Choice.Changes {
		words = append(words, "--set", c.Key+"="+c.Value)
	}
	for i, word := range words {
		words[i] = shellWord(word)
	}
	return strings.Join(words, " ")
}

// given are the words of a flag that was given once for each value. A switch takes no value after a blank.
func given(f *pflag.Flag, values []string) (words []string) {
	for _, v := range values {
		if f.NoOptDefVal != "" {
			words = append(words, "--"+f.Name+"="+v)
		} else {
			words = append(words, "--"+f.Name, v)
		}
	}
	return words
}

// duration is a flag for a time above 0.
type duration time.Duration

func (d *duration) Type() string { return "duration" }

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (d *duration) Set(text string) error {
	t, err := time.ParseDuration(text)
	if err != nil || t <= 0 {
		return errors.New("want a time above 0 with its unit, such as 20m or 3h")
	}
	*d = duration(t)
	return nil
}

// byteSize is a flag for a number of bytes above 0.
type byteSize int

func (b *byteSize) Type() string { return "size" }

func (b *byteSize) String() string {
	if *b == 0 {
		return ""
	}
	return humanize.Bytes(uint64(*b))
}

func (b *byteSize) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	if bare := strings.ContainsAny(text[max(0, len(text)-1):], "0123456789. "); err != nil || bare || n == 0 ||
		n > math.MaxInt {
		return errors.New("want a size above 0 with its unit, such as 8GB or 512MiB")
	}
	*b = byteSize(n)
	return nil
}

func printPlan(out io.Writer, p *plan.Plan, asJSON bool) error {
	if !asJSON {
		_, err := fmt.Fprint(out, p)
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", text)
	}
	return err
}

// planRun plans a run of whichever command the config is for.
func planRun(ctx context.Context, in config.Input, f *configFlags, r run.Reporter) (*plan.Plan, error) {
	o, err := readPlanned(ctx, in, f, r)
	if err != nil {
		return nil, err
	}
	return plan.Make(ctx, o, r)
}

// readPlanned reads the options of a run, and fetches what they name on the hub.
func readPlanned(ctx context.Context, in config.Input, f *configFlags, r run.Reporter) (recipe.Drafter, error) {
	o, err := optionsOf[recipe.Drafter](in, "cannot be planned", planned)
	if err != nil {
		return nil, err
	}
	return o, f.fetcher.pinShapes(ctx, o, r)
}

// planned are the commands whose options are a [recipe.Drafter].
var planned = []string{"mappo", "sft", "ci-rl"}
