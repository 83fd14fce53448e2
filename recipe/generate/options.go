// Package generate is the recipe of posttrain generate, where a model continues a prompt or a file of prompts, and of
// posttrain chat, a conversation.
package generate

import (
	"io"
	"path/filepath"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

// Command is the command that runs this recipe.
const Command = "generate"

// Options say what is continued and how.
type Options struct {
	recipe.LocalModel `yaml:",inline"`
	Seed              uint64 `yaml:"seed" flag:"seed" help:"seed of the draws"`

	// What is continued: one of Prompt and Input.
	Prompt  *string  `yaml:"prompt,omitempty" want:"@text" flag:"prompt,exact" help:"text to continue"`
	Input   string   `yaml:"input,omitempty" hub:"data" words:"a .jsonl, .json, .parquet, .csv or .tsv file (also .gz)" flag:"input" help:"prompts, .jsonl, .json, .parquet, .csv or .tsv, or org/name[@revision][:config][:split] on the hub: column prompt (text or messages) or messages"`
	Columns []string `yaml:"columns,omitempty" words:"names such as prompt=question" flag:"columns" help:"columns by other names in the input, such as prompt=question"`
	Chat    bool     `yaml:"chat" flag:"chat" help:"the prompt is the user's message, by the chat template"`

	Template local.RowChat `yaml:"chat_template"` // what the chat template gets: chat is the switch

	Samples          int `yaml:"samples" want:">=1" default:"1" flag:"samples" help:"answers to each prompt"`
	rollout.Sampling `yaml:",inline" defaults:"max_new_tokens=256 temperature=1"`

	Out   string `yaml:"out,omitempty" words:"a file whose name ends in .jsonl" flag:"out" help:"jsonl file to write: prompt, completion, reason, tokens"`
	Logps bool   `yaml:"logps" flag:"logps" help:"also write each token's log-prob, at temperature 1 with nothing cut off"`

	// Writer gets what is not written to Out: the text of one prompt's answers, a single one as it is drawn, and the
	// answers to a file of prompts as JSON lines. It may be nil.
	Writer io.Writer `yaml:"-"`
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{Command: Command})

// DefaultMaxNew is how many tokens an answer has at most where the options do not say. A model with fewer positions
// writes fewer.
const DefaultMaxNew = 256

// Check names the options that are out of range, contradict each other, or have no effect.
func (o Options) Check() []fault.Fault {
	faults := fault.Check(o)
	faults = append(append(faults, o.Sampling.Check()...), data.CheckColumns(o.Columns)...)
	idle := func(key string, value any, used bool, problem string) {
		if used {
			faults.Add(key, value, "%s", problem)
		}
	}
	const greedy = "temperature 0 always takes the likeliest token; remove one of the two"
	idle("seed", o.Seed, o.Seed != 0 && o.Temperature == 0, greedy)
	idle("samples", o.Samples, o.Samples > 1 && o.Temperature == 0, greedy)
	const plain = "the prompt is plain text, which has no chat template; add chat, or remove it"
	unused := o.Prompt != nil && !o.Chat
	idle("chat_template.template", o.Template.Template, unused && o.Template.Template != "", plain)
	idle("chat_template.variables", o.Template.Variables, unused && o.Template.Variables != nil, plain)
	idle("chat_template.date", o.Template.Date, unused && o.Template.Date != "", plain)
	idle("chat_template.plain", o.Template.Plain, o.Template.Plain == "text" && (o.Chat || o.Prompt != nil),
		"it is about a file of prompts without chat; remove it")
	idle("columns", o.Columns, len(o.Columns) > 0 && o.Input == "", "it is about a file of prompts; add input")
	idle("input", o.Input, o.Input != "" && o.Prompt != nil, "there is a prompt too: want prompt or input, not both")
	idle("logps", o.Logps, o.Logps && o.Prompt != nil && o.Out == "", "they are written to a file; add out: FILE.jsonl")
	idle("prompt", "", o.Prompt == nil && o.Input == "",
		"there is nothing to continue: want prompt or input; posttrain chat talks")
	return append(faults, o.checkOut()...)
}

func (o Options) checkOut() (faults fault.Faults) {
	if o.Out == "" || filepath.Ext(o.Out) == ".jsonl" {
		return recipe.CheckOut("out", o.Out)
	}
	faults.Add("out", o.Out, "want a name that ends in .jsonl")
	return faults
}
