package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestFlagSections: help shows each flag once, at most thirteen of them above the others, and of mappo thirteen.
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
			lines := regexp.MustCompile(`(?m)^ +(-., )?--` + f.Name + `( |$)`)
			if n := len(lines.FindAllString(help, -1)); n != 1 && !f.Hidden {
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

// TestCommandGroups: every command is in a group of the help above it. README.md has a row for each of the program's
// groups, and docs/commands.md a part for each, with all commands that have none below them.
func TestCommandGroups(t *testing.T) {
	texts := documents(t)
	rows := map[string][]string{}
	for _, c := range allCommands()[1:] {
		if c.GroupID == "" && len(c.Parent().Groups()) > 0 {
			t.Errorf("%s is in no group", c.CommandPath())
		}
		if c.Parent() == c.Root() {
			rows[c.GroupID] = append(rows[c.GroupID], "`"+c.Name()+"`")
		}
		group := groupOf(c)
		_, part, _ := strings.Cut(texts["docs/commands.md"], "\n## "+group+"\n")
		part, _, _ = strings.Cut(part, "\n## ")
		listed := !c.HasAvailableSubCommands() && c.Parent().Name() != "completion"
		if listed && !strings.Contains(part, "\n| `"+c.CommandPath()) {
			t.Errorf("docs/commands.md, %s: %s is not there", group, c.CommandPath())
		}
	}
	readme := regexp.MustCompile(`\[(.*?)\]\(.*?\)`).ReplaceAllString(texts["README.md"], "$1")
	for group, names := range rows {
		if row := "\n| **" + group + "** | " + strings.Join(names, ", ") + " |"; !strings.Contains(readme, row) {
			t.Errorf("README.md lacks the row %s", row)
		}
	}
}

// groupOf is the program's group that has a command, or one above it.
func groupOf(c *cobra.Command) string {
	for c.Parent() != c.Root() {
		c = c.Parent()
	}
	return c.GroupID
}
