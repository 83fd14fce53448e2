package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// lastSection has the commands about runs, and about the program itself.
const lastSection = "Runs"

// newRoot makes the whole command tree.
func newRoot(s streams) *cobra.Command {
	root := parent(&cobra.Command{
		Use:   "posttrain",
		Short: "Align language models with MaPPO and CI-RL, and measure what they leak, on a CPU or a GPU",
		Long: "posttrain aligns Hugging Face language models with MaPPO preference optimisation (arXiv 2507.21183:\n" +
			"the DPO family with prior reward knowledge), teaches them contextual integrity by reinforcement\n" +
			"learning (CI-RL), and measures both. Without flags, `posttrain mappo` trains a small embedded model\n" +
			"on embedded pairs.",
		Example: "  posttrain mappo\n" +
			"  posttrain init mappo --model DIR --data pairs.jsonl --out mappo.yaml\n" +
			"  posttrain sft --model DIR --data chat.jsonl",
		SilenceErrors: true,
		SilenceUsage:  true,
	},
		section{"Train", []*cobra.Command{newMappo(s), newSFT(s), newRewardModel(s), newGRPO(s), newCIRL(s),
			newInit(s)}},
		section{"Measure", []*cobra.Command{newEval(s)}},
		section{"Data", []*cobra.Command{newData(s)}},
		section{"Models", []*cobra.Command{newChat(s), newGenerate(s), newServe(s), newModel(s)}},
		section{"Federated", []*cobra.Command{newFederated(s)}},
		section{lastSection, []*cobra.Command{newPlan(s), newDoctor(s),
			newVersion(s)}})
	root.SetUsageTemplate(usage(root))
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.Version = version()
	root.SetFlagErrorFunc(flagError)
	root.SetGlobalNormalizationFunc(hyphens)
	root.SetHelpCommand(newHelp(root))
	wrapHelp(root, s)
	finishCompletion(root)
	return root
}

// hyphens takes a flag with underscores, as Python's tools write them, for the one with hyphens.
func hyphens(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}

// flagNames are other tools' names of flags.
var flagNames = map[string]string{"lr": "learning-rate", "output-dir": "out", "output": "out", "out-dir": "out",
	"engine": "backend", "device": "backend", "num-train-epochs": "epochs", "num-epochs": "epochs", "steps": "max-steps",
	"per-device-train-batch-size": "batch-size", "batch": "batch-size", "model-name-or-path": "model", "model-path": "model",
	"dataset": "data", "dataset-name": "data", "train-data": "data", "eval-data": "eval", "loss-type": "loss",
	"lora-r": "lora-rank", "rank": "lora-rank", "ref-model": "reference", "resume-from-checkpoint": "resume"}

// commandLines are what to write in the place of other tools' commands.
var commandLines = map[string]string{"dpo": "mappo --prior none", "ipo": "mappo --prior none --loss ipo",
	"simpo": "mappo --prior none --loss simpo", "cpo": "mappo --prior none --loss cpo", "orpo": "mappo --prior none --loss orpo",
	"kto": "mappo --loss kto", "ppo": "grpo", "rloo": "grpo --set grpo.baseline=leave-one-out", "rlhf": "grpo",
	"finetune": "sft", "fine-tune": "sft", "train": "mappo, sft, reward-model, grpo or ci-rl", "rm": "reward-model",
	"reward": "reward-model", "infer": "generate", "inference": "generate",
	"merge": "model export --model DIR --adapter DIR --out NEW", "export": "model export", "evaluate": "eval", "check": "data check"}

// unknownCommand refuses a first argument that names no command. cobra would read the flags behind it first, and refuse
// these.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || strings.HasPrefix(args[0], "__") || args[0] == "help" {
		return nil
	}
	if cmd, _, err := root.Find(args[:1]); err == nil && cmd != root {
		return nil
	}
	names := slices.Sorted(maps.Keys(commandLines))
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	meant := config.Nearest(strings.ToLower(args[0]), names)
	if meant == "" {
		return usageError{fmt.Errorf("unknown command %q: want %s", args[0], subcommands(root))}
	}
	return usageError{fmt.Errorf("unknown command %q: want posttrain %s", args[0], cmp.Or(commandLines[meant], meant))}
}

// meantFlag finds the flag of a command that a misspelt name means, or another tool's name. Without one it is "".
func meantFlag(cmd *cobra.Command, name string) string {
	if own := flagNames[name]; own != "" && cmd.Flags().Lookup(own) != nil {
		return own
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return config.Nearest(name, names)
}

// flagError says which flag was meant, or which commands have a flag that this one lacks.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		if meant := meantFlag(cmd, string(hyphens(nil, unknown.GetSpecifiedName()))); meant != "" {
			text += ": want --" + meant
		} else if others := commandsWithFlag(cmd.Root(), unknown.GetSpecifiedName()); len(others) > 0 {
			text += fmt.Sprintf(": it belongs to %s, not to %s", someOf(others, cmd.CommandPath()), cmd.CommandPath())
		}
	}
	return usageError{fmt.Errorf("%s (see %s --help)", text, cmd.CommandPath())}
}

// someOf names commands; if they are many, those that are near to one.
func someOf(commands []string, one string) string {
	const most = 5
	slices.SortStableFunc(commands, func(a, b string) int { return sharedWords(b, one) - sharedWords(a, one) })
	if more := len(commands) - most; more > 1 {
		commands = append(slices.Clone(commands[:most]), fmt.Sprintf("%d more", more))
	}
	return fault.And(commands)
}

// sharedWords counts the words with which both begin.
func sharedWords(a, b string) (n int) {
	first, second := strings.Fields(a), strings.Fields(b)
	for n < min(len(first), len(second)) && first[n] == second[n] {
		n++
	}
	return n
}

// commandsWithFlag lists the commands under cmd that have a flag.
func commandsWithFlag(cmd *cobra.Command, name string) []string {
	var found []string
	if cmd.Flags().Lookup(name) != nil {
		found = append(found, cmd.CommandPath())
	}
	for _, c := range cmd.Commands() {
		found = append(found, commandsWithFlag(c, name)...)
	}
	return found
}

// newHelp makes a help command that refuses unknown commands, which cobra's own does not.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Print the help of a command", GroupID: lastSection,
		Example: "  posttrain help mappo\n  posttrain help mappo all\n  posttrain help model init",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 && rest[0] != all {
				name := "posttrain " + strings.Join(args, " ")
				return usageError{fmt.Errorf("no command %q: want %s", name, subcommands(root))}
			}
			cmd.HelpFunc()(cmd, rest)
			return nil
		},
	}
}

// finishCompletion gives cobra's completion commands examples, and makes them refuse arguments as ours do.
func finishCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		parent(c).Example = "  posttrain completion bash > /etc/bash_completion.d/posttrain"
		c.GroupID = lastSection
		for _, shell := range c.Commands() {
			shell.Args, shell.Example = noArgs, "  posttrain completion "+shell.Name()
		}
	}
}

// noArgs refuses positional arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	path := cmd.CommandPath()
	if cmd.HasAvailableSubCommands() {
		return usageError{fmt.Errorf("unknown command %q for %s: want %s", args[0], path, subcommands(cmd))}
	}
	return usageError{fmt.Errorf("unknown argument %q: %s takes flags only (see %s --help)", args[0], path, path)}
}

// subcommands lists the names of a command's parts.
func subcommands(cmd *cobra.Command) string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fault.Or(names)
}

// oneArg wants exactly one positional argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		path := cmd.CommandPath()
		return usageError{fmt.Errorf("%s wants one %s, found %d (see %s --help)", path, what, len(args), path)}
	}
}

// oneOrMore wants one argument at least.
func oneOrMore(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		path := cmd.CommandPath()
		return usageError{fmt.Errorf("%s wants one %s or more, found 0 (see %s --help)", path, what, path)}
	}
}
