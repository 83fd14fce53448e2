package main

import (
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
		"{{flagSections .LocalFlags | trimTrailingWhitespaces}}", 1)
}

// flagSections prints flags: if they are many, the usual ones below their headings, then the others.
func flagSections(all *pflag.FlagSet) (text string) {
	heading, shown, number := "Flags", map[string]bool{}, 0
	all.VisitAll(func(*pflag.Flag) { number++ })
	for _, u := range usual {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.SortFlags = false
		for _, name := range u.names {
			if f := all.Lookup(name); f != nil && len(shown) < mostUsual && number > mostUsual+1 { // 1: --help
				flags.AddFlag(f)
				shown[name] = true
			}
		}
		if flags.HasFlags() {
			text += u.heading + ":\n" + flags.FlagUsages() + "\n"
			heading = "Other flags"
		}
	}
	others := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if !shown[f.Name] {
			others.AddFlag(f)
		}
	})
	return text + heading + ":\n" + others.FlagUsages()
}
