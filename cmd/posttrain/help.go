package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// section is a group of commands in the help of the one above them.
type section struct {
	title string // "": they are few
	parts []*cobra.Command
}

// parent makes a command that prints its help and has the sections' commands below it, in this order.
func parent(cmd *cobra.Command, sections ...section) *cobra.Command {
	cmd.Args, cmd.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, s := range sections {
		if s.title != "" {
			cmd.AddGroup(&cobra.Group{ID: s.title, Title: s.title + ":"})
		}
		for _, part := range s.parts {
			part.GroupID = s.title
		}
		cmd.AddCommand(s.parts...)
	}
	return cmd
}

// mostUsual is how many flags the help of a command shows above the other ones.
const mostUsual = 13

// usual are the flags that help shows first. A command that has too many of them shows the first.
var usual = []struct {
	heading string
	names   []string
}{
	{"Model and data", []string{"model", "data", "input", "prompt", "policy", "questions",
		"kind"}},
	{"Run", []string{"out", "resume", "config", "set", "addr", "listen", "fix", "json"}},
	{"Training", []string{"loss", "prior", "lora-rank", "epochs", "max-steps", "batch-size", "learning-rate", "group-size", "kl",
		"method", "workload",
		"environment", "agents", "updates", "rounds"}},
	{"Answers", []string{"chat", "n", "form", "reward", "base-url", "api-model", "judge-model", "samples",
		"temperature", "max-new-tokens"}},
	{"Engine", []string{"backend", "seed"}},
}

// Cobra has these for all commands of the program.
func init() {
	cobra.EnableCommandSorting = false
	cobra.AddTemplateFunc("flagSections", flagSections)
}

// usage is cobra's text for the help of a command, with its flags in sections.
func usage(root *cobra.Command) string {
	return strings.Replace(root.UsageTemplate(), "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}",
		"{{flagSections . | trimTrailingWhitespaces}}", 1)
}

// all is the word behind --help that asks for the flags that are not usual, too.
const all = "all"

// wrapHelp makes help fit into the width of the terminal, or of $COLUMNS, or 80 characters.
func wrapHelp(root *cobra.Command, s streams) {
	print := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		width := 0
		if out, ok := s.colour.(*stream); ok {
			width = out.width()
		}
		if width <= 0 {
			fmt.Sscan(os.Getenv("COLUMNS"), &width)
		}
		if width < 20 {
			width = 80
		}
		whole, text := slices.Contains(args, all), &strings.Builder{}
		cmd.Annotations = map[string]string{all: fmt.Sprint(whole)}
		if examples := strings.Split(cmd.Example, "\n"); hasOthers(cmd.LocalFlags()) && !whole {
			cmd.Example = strings.Join(examples[:min(len(examples), 4)], "\n")
		}
		cmd.Long = fill(cmd.Long)
		cmd.SetOut(text)
		print(cmd, args)
		fmt.Fprint(s.out, wrap(text.String(), width))
	})
}

// hasOthers says that a command has more flags than help shows above the others.
func hasOthers(flags *pflag.FlagSet) bool {
	number := 0
	flags.VisitAll(func(*pflag.Flag) { number++ })
	return number > mostUsual+1 // 1: --help
}

// flagSections prints flags: if they are many, the usual ones below their headings, and the others only if asked for.
func flagSections(cmd *cobra.Command) (text string) {
	flags, many := cmd.LocalFlags(), hasOthers(cmd.LocalFlags())
	heading, shown := "Flags", map[string]bool{}
	for _, u := range usual {
		own := pflag.NewFlagSet("", pflag.ContinueOnError)
		own.SortFlags = false
		for _, name := range u.names {
			if f := flags.Lookup(name); f != nil && len(shown) < mostUsual && many {
				own.AddFlag(f)
				shown[name] = true
			}
		}
		if own.HasFlags() {
			text += u.heading + ":\n" + own.FlagUsages() + "\n"
			heading = "Other flags"
		}
	}
	others := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		if !shown[f.Name] {
			others.AddFlag(f)
		}
	})
	if many && cmd.Annotations[all] == "false" {
		return text + cmd.CommandPath() + " --help all lists the other flags."
	}
	return text + heading + ":\n" + others.FlagUsages()
}
