package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe/preference"
)

// trainers are the commands whose configs init writes.
var trainers = []string{"mappo", "sft", "grpo", "ci-rl", "reward-model"}

func newInit(s streams) *cobra.Command {
	var out string
	f := &configFlags{known: slices.DeleteFunc(slices.Clone(mappoFlags), func(k config.Flag) bool {
		return k.Name != "model" && k.Name != "data"
	})}
	cmd := &cobra.Command{
		Use:   "init COMMAND",
		Short: "Write a config for a command that trains: every key with its value and what it is",
		Long: "Write a config for mappo, sft, grpo, ci-rl or reward-model: every key with what it is, and the value\n" +
			"that the command takes for this model and data. Without a model and data it is the config of the\n" +
			"command's quick start, if it has one. An existing file is left alone.",
		Example: "  posttrain init mappo --model DIR --data pairs.jsonl\n" +
			"  posttrain init sft --model DIR --data chat.jsonl --set lora.rank=16 --out sft-lora.yaml\n" +
			"  posttrain init grpo --model DIR --data prompts.jsonl --set reward.kind=exact",
		Args: oneArg("command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			command := args[0]
			if !slices.Contains(trainers, command) {
				return usageError{fmt.Errorf("init %s: want %s", command, fault.Or(trainers))}
			}
			if out == "" {
				out = command + ".yaml"
			}
			if _, err := os.Stat(out); err == nil {
				return usageError{fmt.Errorf("--out %s: it exists; want the name of a file to make", out)}
			}
			if command == "grpo" && !strings.Contains(strings.Join(f.sets, " "), "reward.kind=") {
				f.sets = append([]string{"reward.kind=command", "reward.command=python3 score.py"}, f.sets...)
			}
			sets, err := f.overrides(cmd)
			if err != nil {
				return err
			}
			text, err := initialConfig(command, config.Input{Overrides: sets, Flags: f.known, Allow: config.Anything})
			if err == nil {
				err = os.WriteFile(out, []byte(text), 0o666)
			}
			if err != nil {
				return err
			}
			allow := ""
			if strings.Contains(text, "\n  command:") { // of a reward
				allow = " --allow commands"
			}
			fmt.Fprintf(s.out, "%s is written; posttrain plan --config %[2]s says what the run takes. Next:\n"+
				"posttrain %s --config %[2]s%[4]s\n", out, fault.ShellWord(out), command, allow)
			return nil
		},
	}
	f.keys = addKeyFlags(cmd, f.known, preference.Spec.TypeOf)
	cmd.Flags().StringArrayVar(&f.sets, "set", nil, "set a key of the config, such as seed=3 (may be repeated)")
	cmd.Flags().StringVar(&out, "out", "", "file to make (default: COMMAND.yaml)")
	return cmd
}

var givenKey = regexp.MustCompile(`^( *)([a-z_0-9]+):`)

// initialConfig is the config of a command with what is set.
func initialConfig(command string, in config.Input) (string, error) {
	c := config.Find(command)
	options, err := c.Read(in)
	if err != nil {
		return "", err
	}
	about := map[string]string{}
	for _, k := range c.Table() {
		about[k.Name] = k.About
	}
	lines := []commented{{text: "# Keys of `posttrain " + command + "`. One that is left out has its default."}}
	var path []string
	for line := range strings.Lines(string(options.(interface{ Resolved() []byte }).Resolved())) {
		l := commented{text: strings.TrimSuffix(line, "\n")}
		if m := givenKey.FindStringSubmatch(l.text); m != nil {
			path = append(path[:len(m[1])/2], m[2])
			l.comment = about[strings.Join(path, ".")]
		}
		lines = append(lines, l)
	}
	return layComments(lines), nil
}

// commented is a line of a config: what stays of it, and its comment.
type commented struct{ text, comment string }

// layComments aligns comments, and breaks them at 120 columns.
func layComments(lines []commented) string {
	const most, far = 120, 36
	column := 0
	for _, l := range lines {
		if n := utf8.RuneCountInString(l.text); l.comment != "" && n <= far {
			column = max(column, n+2)
		}
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text)
		if l.comment == "" {
			b.WriteString("\n")
			continue
		}
		at := utf8.RuneCountInString(l.text)
		b.WriteString(strings.Repeat(" ", max(1, column-at)) + "#")
		at = max(at+1, column) + 1
		for _, word := range strings.Fields(l.comment) {
			if at+1+utf8.RuneCountInString(word) > most {
				b.WriteString("\n" + strings.Repeat(" ", column) + "#")
				at = column + 1
			}
			b.WriteString(" " + word)
			at += 1 + utf8.RuneCountInString(word)
		}
		b.WriteString("\n")
	}
	return b.String()
}
