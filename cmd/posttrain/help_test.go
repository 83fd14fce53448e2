package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestFlagSections: help shows each flag once, at most ten of them above the others, and of mappo's ten.
func TestFlagSections(t *testing.T) {
	used := map[string]bool{}
	for _, c := range allCommands() {
		help := must(t, append(strings.Fields(c.CommandPath())[1:], "--help")...).out
		first, _, many := strings.Cut(help, "\nOther flags:\n")
		shown := len(regexp.MustCompile(`(?m)^ +(-., )?--[a-z]`).FindAllString(first, -1))
		if many && shown > mostUsual || c.Name() == "mappo" && (!many || shown != mostUsual) {
			t.Errorf("%s: %d flags above the others", c.CommandPath(), shown)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			used[f.Name] = true
			if n := len(regexp.MustCompile(`(?m)^ +(-., )?--`+f.Name+`( |$)`).FindAllString(help, -1)); n != 1 && !f.Hidden {
				t.Errorf("%s: --%s is there %d times", c.CommandPath(), f.Name, n)
			}
		})
	}
	for _, u := range usual {
		for _, name := range u.names {
			if !used[name] {
				t.Errorf("no command has the usual flag --%s", name)
			}
		}
	}
}

// TestCommandGroups: every command is in a group of the help above it.
func TestCommandGroups(t *testing.T) {
	for _, c := range allCommands()[1:] {
		if c.GroupID == "" && len(c.Parent().Groups()) > 0 {
			t.Errorf("%s is in no group", c.CommandPath())
		}
	}
}
