package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/run"
)

// trainFlags are the flags of the commands with a config: mappo, sft, ci-rl and eval privacylens.
type trainFlags struct {
	command string
	config  string
	sets    []string
	out     string
	resume  string
	quiet   bool
	known   []config.Flag // that set keys
	keys    []keyFlag
}

// keyFlag is a flag that stands for a key of the config.
type keyFlag struct {
	config.Flag
	value string
}

// register gives a command every training flag.
func (f *trainFlags) register(cmd *cobra.Command) {
	f.registerConfig(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "run folder (default: runs/"+f.command+"-<time>)")
	flags.StringVar(&f.resume, "resume", "", "run folder to go on with")
	flags.BoolVar(&f.quiet, "quiet", false, "print nothing but the summary and errors")
}

// registerConfig gives a command the flags that make up its config.
func (f *trainFlags) registerConfig(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "config file (default: configs/"+f.command+".yaml for the embedded model and data, every key's default for others)")
	flags.StringArrayVar(&f.sets, "set", nil, "set any key of the config, such as train.learning_rate=1e-6 (may be repeated)")
	f.keys = make([]keyFlag, 0, 16)
	for _, k := range f.known {
		f.keys = append(f.keys, keyFlag{Flag: k})
		flags.StringVar(&f.keys[len(f.keys)-1].value, k.Name, "", k.Help)
	}
}

// overrides are what the command line sets, in the order: flags, then --set.
func (f *trainFlags) overrides(cmd *cobra.Command) ([]config.Override, error) {
	for name, want := range map[string]string{"config": "a config file", "out": "a folder", "resume": "a run folder"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed && flag.Value.String() == "" {
			return nil, usageError{fmt.Errorf("--%s is empty: want %s", name, want)}
		}
	}
	var all []config.Override
	for _, k := range f.keys {
		if cmd.Flags().Changed(k.Name) {
			all = append(all, k.Override(k.value))
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
func (f *trainFlags) path() (string, error) {
	if f.resume == "" {
		return f.config, run.CheckNew(f.out)
	}
	if f.out != "" {
		return "", usageError{fmt.Errorf("--out %s: a resumed run stays in its folder, %s; remove one of the two flags", f.out, f.resume)}
	}
	path := filepath.Join(f.resume, "config.yaml")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("--resume %s: there is no run in it (no config.yaml); want a run folder such as runs/%s-20260102-150405", f.resume, f.command)
	}
	if f.config != "" {
		return f.config, nil
	}
	return path, nil
}

// loadConfig makes up the config of a command from file and flags, with the engine that auto stands for here, and holds it against
// that of a resumed run.
func loadConfig[C any](f *trainFlags, cmd *cobra.Command, spec *config.Spec[C], engine func(*C) *string) (c *C, err error) {
	sets, err := f.overrides(cmd)
	if err != nil {
		return c, err
	}
	path, err := f.path()
	if err != nil {
		return c, err
	}
	if c, err = spec.Load(config.Input{Path: path, Overrides: sets, Flags: f.known}); err != nil {
		return c, err
	}
	pinEngine(engine(c))
	return c, f.check(spec.Resolve(c))
}

// check compares the config in force with the one that a resumed run was started with.
func (f *trainFlags) check(resolved []byte) error {
	if f.resume == "" {
		return nil
	}
	stored, err := os.ReadFile(filepath.Join(f.resume, "config.yaml"))
	if err != nil {
		return err
	}
	changed := config.Diff(stored, resolved)
	if len(changed) == 0 {
		return nil
	}
	return fmt.Errorf("--resume %s: the config has changed since the run was started (%s): resume without changing it, or start a new run with --out",
		f.resume, strings.Join(changed, "; "))
}

// again is the command line that goes on with a run.
func (f *trainFlags) again(dir string) string {
	return fmt.Sprintf("posttrain %s --resume %s", f.command, shellWord(dir))
}

// shellWord quotes a word where a shell would take it apart.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+=:,@%", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
