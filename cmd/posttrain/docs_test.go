package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/internal/config"
)

// elsewhere are the programs whose command lines nobody checks here: other projects', and the shell's own words. The
// files of this repository that they name must exist.
var elsewhere = strings.Fields("python python3 venv/bin/python cuda/bin/pip pip node git ollama tensorboard cat man " +
	"set mkdir for until sleep done wait jq")

// TestDocs: every command line of every document can be run: programs, targets, packages, tests, files and flags exist,
// and posttrain takes the values.
func TestDocs(t *testing.T) {
	t.Chdir(root)
	counts := map[string]int{}
	for _, c := range documentCommands(t) {
		counts[c.Words[0]]++
		if err := runnable(t, c); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	indented := regexp.MustCompile(`(?m)^ {4,}(?:(?:posttrain|go|make|python) |scripts/).*`)
	for name, text := range documents(t) {
		if line := indented.FindString(text); line != "" {
			t.Errorf("%s: %s: want a fenced block, which is checked", name, strings.TrimSpace(line))
		}
	}
	if counts["posttrain"] < 100 || counts["go"] < 30 || counts["make"] < 10 {
		t.Errorf("found %v: want more", counts)
	}
}

// TestRunnable: the check finds what is wrong with a command line.
func TestRunnable(t *testing.T) {
	t.Chdir(root)
	for line, want := range map[string]string{
		"posttrain mappo --prior none --out runs/dpo":             "",
		"posttrain model info DIR":                                "",
		"posttrain --version":                                     "",
		"posttrain mappo --resume runs/mappo --set loss.beta=0.2": "",
		"posttrain data synth --seed $N --out demos.jsonl":        "",
		"go run ./cmd/posttrain mappo":                            "",
		"make fuzz FUZZTIME=60s":                                  "",
		"go test ./internal/run ./data -run 'TestLock|Bomb'":      "",
		"scripts/fuzz.sh":                                         "",
		"python train.py":                                         "",
		"posttrain mapo":                                          `unknown command "mapo"`,
		"posttrain mappo extra":                                   `unknown argument "extra"`,
		"posttrain mappo --pior none":                             "unknown flag: --pior",
		"posttrain sft --prior none":                              "unknown flag: --prior",
		"posttrain mappo --out":                                   "flag needs an argument",
		"posttrain model info":                                    "found 0",
		"posttrain mappo --prior non":                             `loss.prior "non"`,
		"posttrain mappo --set loss.beat=0.2":                     `unknown key "loss.beat"`,
		"posttrain mappo --config configs/none.yaml":              "no such file",
		"posttrain mappo --data pairs.jsonl":                      "model is missing",
		"posttrain ci-rl --sweep sed=1,2":                         `unknown key "sed"`,
		"go run ./cmd/posttrain mapo":                             `unknown command "mapo"`,
		"go test ./rum -run TestLock":                             "./rum is no package",
		"go test ./internal/run -run 'TestLock|TestLok'":          "matches TestLok",
		"go test pkg":                                             "names no package",
		"make tests":                                              "no tests",
		"make fuzz FUZTIME=60s":                                   "no FUZTIME",
		"scripts/fuz.sh":                                          "no such file",
		"python scripts/fuz.py":                                   "no such file",
		"scripts/oracle/lora.py check":                            "cannot be executed",
		"postrain mappo":                                          "want a program",
	} {
		c := commandLinesIn("line", "```\n"+line+"\n```")[0]
		if err := runnable(t, c); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	for line, ok := range map[string]bool{"`posttrain data score`": true, "`posttrain data stat`": false,
		"`posttrain mappo --pior`": false, "`posttrain mappo --set loss.beat=1`": false} {
		if err := runnable(t, commandLinesIn("line", line)[0]); (err == nil) != ok {
			t.Errorf("%s: %v, want it to be right: %v", line, err, ok)
		}
	}
}

// TestDocsNameFiles: the files that the documents link to, or name between backquotes with a folder, exist, and so do
// the headings.
func TestDocsNameFiles(t *testing.T) {
	t.Chdir(root)
	links := regexp.MustCompile(`(?:\]\(|src=")([^):#"]*)(?:#([^)]+))?[)"]`)
	names := regexp.MustCompile("`([\\w-]+/[\\w/.-]+\\.(?:go|py|sh|mjs))`")
	texts := documents(t)
	for name, text := range texts {
		for _, m := range names.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			path := name
			if m[1] != "" {
				path = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if m[2] != "" && !slices.Contains(headings(texts[path]), m[2]) {
				t.Errorf("%s: %s has no heading #%s", name, path, m[2])
			}
		}
	}
}

// headings are a document's, as links name them.
func headings(text string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

// runnable checks a command line, in the repository's folder. It runs nothing. internal/speed checks its own.
func runnable(t *testing.T, c commandLine) error {
	words := c.Words
	for _, w := range words {
		if regexp.MustCompile(`^(scripts|configs|internal)/\S+\.\w+$`).MatchString(w) {
			if _, err := os.Stat(w); err != nil {
				return err
			}
		}
	}
	switch program := words[0]; {
	case filepath.Base(program) == "posttrain" && c.Mention:
		return mentions(words)
	case filepath.Base(program) == "posttrain":
		return parses(append([]string{"posttrain"}, words[1:]...))
	case program == "go":
		return goes(t, words[1:])
	case program == "make":
		return makes(t, words[1:])
	case strings.HasPrefix(program, "scripts/"):
		info, err := os.Stat(program)
		if err == nil && len(words) > 1 && info.Mode()&0o111 == 0 {
			err = fmt.Errorf("%s cannot be executed", program)
		}
		return err
	case !slices.Contains(elsewhere, program):
		return fmt.Errorf("%s: want a program of this repository, or one of those that are not checked", program)
	}
	return nil
}

// makes checks the targets.
func makes(t *testing.T, targets []string) error {
	makefile := read(t, "Makefile")
	for _, w := range targets {
		name, _, variable := strings.Cut(w, "=")
		line := "\n" + name + map[bool]string{false: ":", true: " ?="}[variable]
		if !strings.Contains(makefile, line) {
			return fmt.Errorf("the Makefile has no %s", name)
		}
	}
	return nil
}

// goes checks the packages, and the tests that are asked for by name.
func goes(t *testing.T, words []string) error {
	packages := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, "./") })
	if words[0] == "run" && len(words) > 1 && words[1] == "./cmd/posttrain" {
		return parses(append([]string{"posttrain"}, words[2:]...))
	}
	if len(packages) == 0 {
		return errors.New("names no package of this repository")
	}
	for _, dir := range packages {
		if files, _ := filepath.Glob(strings.TrimSuffix(dir, "...") + "/*.go"); files == nil && dir != "./..." {
			return fmt.Errorf("%s is no package", dir)
		}
	}
	for i, w := range words[:len(words)-1] {
		kind := map[string]string{"-run": "Test", "-fuzz": "Fuzz", "-bench": "Benchmark"}[w]
		if kind == "" || words[i+1] == "^$" {
			continue
		}
		functions := functionsOf(t, packages, kind)
		for part := range strings.SplitSeq(words[i+1], "|") {
			if !slices.ContainsFunc(functions, regexp.MustCompile(part).MatchString) {
				return fmt.Errorf("no function of the packages is a %s and matches %s", kind, part)
			}
		}
	}
	return nil
}

// functionsOf lists the functions of a kind that go test runs in packages.
func functionsOf(t *testing.T, dirs []string, kind string) (names []string) {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (` + kind + `\w+)`)
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, m := range declared.FindAllStringSubmatch(read(t, file), -1) {
				names = append(names, m[1])
			}
		}
	}
	return names
}

// parses checks whether a command line, from "posttrain" on, names a command that can be run, with flags that it has
// and values that they accept. It runs nothing, in the repository's folder.
func parses(words []string) error {
	c, err := parsed(words)
	if err == nil {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err != nil {
		return err
	}
	command, in, err := configOf(c)
	if err != nil || command == nil {
		return err
	}
	continues := in.Path == "" && c.Flags().Changed("config") || c.Flags().Changed("resume") || c.Flags().Changed("stage")
	_, err = command.Read(in)
	faults, are := errors.AsType[config.Faults](err)
	if !are {
		return err
	}
	for _, f := range faults {
		missing := continues && strings.Contains(f.Text, " is missing: ") // it may be in a file that is not here
		if !missing && !strings.Contains(f.Text, ": no such file") {
			return f
		}
	}
	return nil
}

// mentions checks the names of a command, of its flags and of the keys that are set.
func mentions(words []string) error {
	c, err := parsed(words)
	if err == nil && c.HasSubCommands() {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err != nil {
		return err
	}
	command, in, err := configOf(c)
	for _, o := range in.Overrides {
		if err == nil && !command.HasKey(o.Key) {
			err = fmt.Errorf("%s: unknown key %q", o.Flag, o.Key)
		}
	}
	return err
}

// standIn is what readers replace by a number.
var standIn = regexp.MustCompile(`\$\w+|^N$`)

// parsed gives a command line's command, with the flags that it has got.
func parsed(words []string) (*cobra.Command, error) {
	if len(words) == 0 || words[0] != "posttrain" {
		return nil, errors.New("does not begin with posttrain")
	}
	words = slices.Clone(words)
	for i, w := range words {
		words[i] = standIn.ReplaceAllString(strings.ReplaceAll(w, "STAGE", "judge"), "1")
	}
	c, rest, err := newRoot(streams{}).Find(words[1:])
	if err != nil {
		return nil, err
	}
	c.InitDefaultVersionFlag() // cobra adds it when a command runs
	if err := c.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return nil, err
	}
	return c, nil
}

// configOf gives what a command reads its config by, nil if it has none, and what the flags give. A file that is not of
// this repository is left out.
func configOf(c *cobra.Command) (config.Command, config.Input, error) {
	var in config.Input
	var sets []string
	c.Flags().Visit(func(f *pflag.Flag) {
		switch v := f.Value.(type) {
		case *keyFlag:
			in.Overrides = append(in.Overrides, v.Override(v.values...))
		case pflag.SliceValue:
			if f.Name == "set" {
				sets = append(sets, v.GetSlice()...)
			}
			for _, axis := range v.GetSlice() {
				if f.Name == "sweep" {
					first, _, _ := strings.Cut(axis, ",")
					sets = append(sets, first)
				}
			}
		default:
			if f.Name == "config" && strings.HasPrefix(v.String(), "configs/") {
				in.Path = v.String()
			}
		}
	})
	for _, text := range sets {
		o, err := config.ParseSet(text)
		if err != nil {
			return nil, in, err
		}
		in.Overrides = append(in.Overrides, o)
	}
	if c.Flags().Lookup("set") == nil {
		return nil, in, nil
	}
	command, err := readerOf(c, in)
	if err == nil && command.HasKey("run") && isRun(in.Path) {
		in.Overrides, in.Path = append(in.Overrides, config.Override{Key: "run", Value: in.Path}), ""
	}
	return command, in, err
}

// readerOf gives what reads a command's config.
func readerOf(c *cobra.Command, in config.Input) (config.Command, error) {
	path := strings.TrimPrefix(c.CommandPath(), "posttrain ")
	if path == "init" {
		path = c.Flags().Arg(0)
	}
	if command := config.Find(path); command != nil {
		return command, nil
	}
	return commandOf(in)
}
