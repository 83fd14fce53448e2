package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestFlagSections: --help all shows each flag once, at most thirteen of them above the others, and of mappo thirteen;
// --help shows these alone, in a screen. No line is longer than 80 characters, but for words that are.
func TestFlagSections(t *testing.T) {
	used := map[string]bool{}
	for _, c := range allCommands() {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		brief, help := must(t, args...).out, must(t, append(args, "all")...).out
		first, _, many := strings.Cut(help, "\nOther flags:\n")
		if n := strings.Count(brief, "\n"); many && (n > 66 ||
			!strings.HasSuffix(brief, " --help all lists the other flags.\n")) {
			t.Errorf("%s: %d lines of help:\n%s", c.CommandPath(), n, brief)
		}
		for line := range strings.Lines(brief + help) {
			if n := len([]rune(line)); n > 81 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s: a line of %d characters: %s", c.CommandPath(), n, line)
			}
		}
		shown := len(regexp.MustCompile(`(?m)^ {2}(-., | {4})--[a-z]`).FindAllString(first, -1))
		if many && shown > mostUsual || c.Name() == "mappo" && (!many || shown != mostUsual) {
			t.Errorf("%s: %d flags above the others", c.CommandPath(), shown)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			used[f.Name] = true
			lines := regexp.MustCompile(`(?m)^ {2}(-., | {4})--` + f.Name + `( |$)`)
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

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"warning: this line breaks between words\n":   "warning: this line\nbreaks between words\n",
		"short\nää ää ää ää ää ää ää ää ää\n":         "short\nää ää ää ää ää ää ää ää\nää\n",
		"  --x int  words about a flag\n":             "  --x int  words about a\n           flag\n",
		"  indented words that go on\n":               "  indented words that go\n    on\n",
		"  posttrain mappo --data D.jsonl --lr 1\n":   "  posttrain mappo \\\n    --data D.jsonl \\\n    --lr 1\n",
		"averylongwordthatdoesnotfit in\n":            "averylongwordthatdoesnotfit in\n",
		"{\"a\": \"a line of JSON stays whole\"}\n":   "{\"a\": \"a line of JSON stays whole\"}\n",
		"no end of the line is in sight":              "no end of the line is in sight",
		"\rstep 3 of the many that a bar has drawn\n": "\rstep 3 of the many that a bar has drawn\n",
		"\n": "\n",
	} {
		if got := wrap(text, 24); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got, want := fill("a\nb\n\nc\n  d"), "a b\n\nc\n  d"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestColour(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	text := "warning: a\nno warning: b\nModel: runs/x\n"
	want := "\x1b[33mwarning:\x1b[0m a\nno warning: b\n\x1b[32mModel:\x1b[0m runs/x\n"
	if got := colour(text); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	t.Setenv("NO_COLOR", "1")
	if got := colour(text); got != text {
		t.Errorf("%q with NO_COLOR", got)
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
