package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/recipe/rl"
)

// configured is a command whose options O come from a YAML file, from flags that set its keys, and from --set.
type configured[O any] struct {
	spec  *config.Spec[O]
	flags []config.Flag // that set keys, beside the tags' flags
	run   func(context.Context, O, run.Reporter) (printed string, err error)
}

// command completes a cobra command, which has its texts.
func (c configured[O]) command(s streams, cmd *cobra.Command) *cobra.Command {
	f := c.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.execute(s, f, cmd) }
	return cmd
}

// register gives a cobra command its flags.
func (c configured[O]) register(cmd *cobra.Command) *configFlags {
	f := &configFlags{command: c.spec.Command, known: withTags(c.flags, c.spec.Flags()), kind: c.spec.TypeOf}
	if c.spec.QuickStart != nil {
		f.quickStart, _ = c.spec.QuickStart(nil)
	}
	f.registerConfig(cmd)
	if hub.Used(new(O)) {
		f.fetcher.register(cmd)
	}
	if dirOf(new(O)) != nil {
		cmd.Flags().StringVar(&f.out, "out", "", "run folder to make (default: runs/"+f.folder()+"-<time>)")
		cmd.Flags().StringVar(&f.resume, "resume", "", "run folder to continue")
		f.registerQuiet(cmd)
	}
	if _, explains := any(new(O)).(config.Explainer); explains {
		cmd.Flags().BoolVar(&f.explain, "explain", false,
			"print the objective with its numbers, and what differs from the paper, and end")
	}
	cmd.Args = noArgs
	return f
}

// dirOf is where the folder of a run is, nil where the command makes none.
func dirOf(options any) *recipe.RunDir {
	if o, makes := options.(interface{ RunDirectory() *recipe.RunDir }); makes {
		return o.RunDirectory()
	}
	return nil
}

// withTags adds the flags that tags of the options describe to a list.
func withTags(list, tags []config.Flag) []config.Flag {
	for _, f := range tags {
		if !slices.ContainsFunc(list, func(own config.Flag) bool { return own.Name == f.Name }) {
			list = append(slices.Clone(list), f)
		}
	}
	return list
}

// execute runs the recipe with the options that the flags give.
func (c configured[O]) execute(s streams, f *configFlags, cmd *cobra.Command) error {
	o, err := c.load(f, cmd)
	if err != nil {
		return err
	}
	if f.explain {
		fmt.Fprint(s.out, any(o).(config.Explainer).Explain())
		return nil
	}
	r := run.NewReporter(s.err, s.terminal, f.quiet)
	if err := f.fetcher.pin(cmd.Context(), o, r); err != nil {
		return err
	}
	printed, err := c.run(cmd.Context(), *o, r)
	if printed != "" {
		fmt.Fprint(s.out, printed)
	}
	return f.ended(err)
}

// ended tells how an interrupted run continues.
func (f *configFlags) ended(err error) error {
	if stopped := (*recipe.Stopped)(nil); errors.As(err, &stopped) {
		return fmt.Errorf("%w %s: continue with %s", recipe.ErrInterrupted, stopped.Where, f.resumeLine(stopped.Dir))
	}
	return err
}

// load reads the options from the file and the flags.
func (c configured[O]) load(f *configFlags, cmd *cobra.Command) (*O, error) {
	sets, err := f.overrides(cmd)
	if err != nil {
		return nil, err
	}
	path, err := f.path()
	if err != nil {
		return nil, err
	}
	if c.spec.HasKey("run") && isRun(path) {
		if _, err := rl.CISpec.Load(config.Input{Path: path, Allow: config.Anything}); err != nil {
			return nil, err
		}
		sets, path = append(sets, config.Override{Flag: "--config", Key: "run", Value: path}), ""
	}
	in, err := f.input(path, sets)
	if err != nil {
		return nil, err
	}
	o, err := c.spec.Load(in)
	if err != nil {
		return nil, err
	}
	f.needs = c.spec.Needs(o)
	if place := dirOf(o); place != nil {
		place.Out, place.Resume = f.out, f.resume
	}
	return o, nil
}

// isRun says that a config is a ci-rl run's. Commands that can follow such a run take its config as their own.
func isRun(path string) bool {
	text, err := config.Open(path)
	return err == nil && config.CommandOf(text) == rl.CICommand
}

// configFlags are the flags of a command with a configuration.
type configFlags struct {
	command    string
	quickStart string // name of the file that is read where the user names none; "": every key's default
	config     string
	sets       []string
	out        string
	resume     string
	quiet      bool
	explain    bool
	allow      string
	needs      config.Grants // of a run with these options that is resumed
	fetcher    fetcher
	known      []config.Flag // that set keys
	kind       func(key string) string
	keys       []*keyFlag
}

// keyFlag is a flag that sets a key. The config checks its values, but for a switch's.
type keyFlag struct {
	config.Flag
	kind   string
	values []string
}

func (k *keyFlag) Type() string { return k.kind }

func (k *keyFlag) String() string {
	if len(k.values) == 0 {
		return ""
	}
	return k.values[len(k.values)-1]
}

func (k *keyFlag) Set(value string) error {
	if k.Value != "" && value != "true" && value != "false" {
		return errors.New("want true or false")
	}
	k.values = append(k.values, value)
	return nil
}

// addKeyFlags adds flags that set keys; kind names the type of a key's value for the help.
func addKeyFlags(cmd *cobra.Command, known []config.Flag, kind func(key string) string) (all []*keyFlag) {
	for _, k := range known {
		f := &keyFlag{Flag: k, kind: kind(k.Key)}
		if k.Value != "" {
			f.kind = "bool"
		}
		if flag := cmd.Flags().VarPF(f, k.Name, "", withKey(k)); f.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
		all = append(all, f)
	}
	return all
}

// withKey is a flag's help with the key that it sets, where this is another name.
func withKey(f config.Flag) string {
	if f.Value != "" || strings.ReplaceAll(f.Key, "_", "-") == f.Name {
		return f.Help
	}
	return fmt.Sprintf("%s [%s]", f.Help, f.Key)
}

// folder begins the name of a run folder that the user does not name.
func (f *configFlags) folder() string { return strings.ReplaceAll(f.command, " ", "-") }

func (f *configFlags) registerQuiet(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.quiet, "quiet", false, "print only the summary, warnings and errors")
}

// registerConfig gives a command the flags that make up its config.
func (f *configFlags) registerConfig(cmd *cobra.Command) {
	flags, file := cmd.Flags(), "config file (default: every key's default)"
	if f.quickStart != "" {
		file = "config file (default: " + f.quickStart + " for the embedded model and data, else every key's default)"
	}
	flags.StringVar(&f.config, "config", "", file)
	flags.StringVar(&f.allow, "allow", "", "what the config file may have done: libraries (loaded by path), commands (run), "+
		"hosts (sent to, with keys), with commas (default: $POSTTRAIN_ALLOW, else nothing)")
	flags.StringArrayVar(&f.sets, "set", nil, "set a key of the config, such as seed=3 (may be repeated)")
	f.keys = addKeyFlags(cmd, f.known, f.kind)
}

// named are the flags that take the name of a file or folder, which cannot be empty.
var named = map[string]string{
	"config": "a config file", "out": "the name of a file or folder", "resume": "a run folder", "input": "a data file",
	"data": "a data file", "name": "a name",
}

// overrides are what the command line sets, in the order: flags, then --set.
func (f *configFlags) overrides(cmd *cobra.Command) (all []config.Override, err error) {
	for name, want := range named {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed && flag.Value.String() == "" {
			return nil, usageError{fmt.Errorf("--%s is empty: want %s", name, want)}
		}
	}
	for _, k := range f.keys {
		if k.values != nil {
			all = append(all, k.Override(k.values...))
		}
	}
	for _, text := range f.sets {
		o, err := config.ParseSet(text)
		if err != nil {
			return nil, usageError{err}
		}
		all = append(all, o)
	}
	return all, nil
}

// path is the config file to read: the one named, or the resumed run's own. Run folders are looked at here, ahead of
// anything that takes long.
func (f *configFlags) path() (string, error) {
	if f.resume == "" {
		return f.config, run.CheckNew(f.out)
	}
	if f.out != "" {
		return "", usageError{fmt.Errorf("--out %s: a resumed run stays in its folder, %s; remove one of the two flags",
			f.out, f.resume)}
	}
	path := filepath.Join(f.resume, "config.yaml")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("--resume %s: there is no run in it (no config.yaml); "+
			"want a run folder such as runs/%s-20260102-150405", f.resume, f.folder())
	}
	if f.config != "" {
		return f.config, nil
	}
	return path, nil
}

// input is what Load reads: a file, and what the command line sets and allows.
func (f *configFlags) input(path string, sets []config.Override) (config.Input, error) {
	in := config.Input{Path: path, Overrides: sets, Flags: f.known, Allow: config.Anything}
	if f.explain {
		return in, nil
	}
	var err error
	if in.Allow, err = config.ParseGrants(f.allow); err != nil {
		err = usageError{err}
	}
	return in, err
}

// resumeLine gives the command line that continues a run.
func (f *configFlags) resumeLine(dir string) string {
	line := fmt.Sprintf("posttrain %s --resume %s", f.command, fault.ShellWord(dir))
	if len(f.needs) > 0 {
		line += " --allow " + strings.Join(f.needs, ",")
	}
	return line
}

const (
	modelHelp   = "model folder in Hugging Face layout, org/name[@revision] on the hub, or embedded"
	adapterHelp = "folder of a LoRA adapter for the model, as peft or this program saves it"
	backendHelp = "auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN"
)

// mappoFlags are the flags of commands that take the config of any training command, and without a config mappo's.
var mappoFlags = preference.Spec.Flags()

// commandOf is the command that a config is for: mappo where there is no file, or it does not say.
func commandOf(in config.Input) (config.Command, error) {
	if in.Path == "" {
		return preference.Spec, nil
	}
	text, err := config.Open(in.Path)
	if err != nil {
		return nil, err
	}
	if c := config.Find(config.CommandOf(text)); c != nil {
		return c, nil
	}
	return preference.Spec, nil
}

// optionsOf reads the config of any command whose options are a T, which the accepted commands have; the file says
// which command it is for. cannot ends the error about another command.
func optionsOf[T any](in config.Input, cannot string, accepted []string) (options T, err error) {
	command, err := commandOf(in)
	if err != nil {
		return options, err
	}
	read, err := command.Read(in)
	if err != nil {
		return options, err
	}
	options, ok := read.(T)
	if !ok {
		err = fmt.Errorf("%s is a config for `posttrain %s`, which %s: want one for %s", in.Path, command.Name(),
			cannot, fault.Or(accepted))
	}
	return options, err
}
