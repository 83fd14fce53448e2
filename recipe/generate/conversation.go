package generate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

// ChatOptions say whom one talks with. The model may be the folder of a run: it is what the run has trained.
type ChatOptions struct {
	recipe.LocalModel `yaml:",inline"`
	Compare           bool       `yaml:"compare" flag:"compare" help:"of a run folder: the model before the run answers first, then the trained one"`
	System            string     `yaml:"system,omitempty" flag:"system,exact" help:"system message"`
	Seed              uint64     `yaml:"seed" flag:"seed" help:"seed of the draws"`
	Template          local.Chat `yaml:"chat_template"`
	rollout.Sampling  `yaml:",inline" defaults:"max_new_tokens=256 temperature=1"`

	Writer io.Writer `yaml:"-"` // gets the answers as they are drawn; may be nil
}

// ChatSpec says how a configuration becomes ChatOptions.
var ChatSpec = config.Register(&config.Spec[ChatOptions]{Command: "chat"})

// Check names the options that are out of range or have no effect.
func (o ChatOptions) Check() []fault.Fault {
	faults := fault.Faults(append(fault.Check(o), o.Sampling.Check()...))
	if o.Seed != 0 && o.Temperature == 0 {
		faults.Add("seed", o.Seed, "temperature 0 always takes the likeliest token; remove one of the two")
	}
	return faults
}

// ofRun turns the folder of a run into the model that it has trained, and gives the model before it; nil: the model is
// no run's.
func (o *ChatOptions) ofRun() (before *recipe.LocalModel, err error) {
	text, err := config.Open(filepath.Join(o.Model, "config.yaml"))
	if err != nil {
		return nil, nil
	}
	values, err := config.ValuesOf(text)
	if err != nil {
		return nil, fmt.Errorf("%s/config.yaml: %w", o.Model, err)
	}
	value := func(key string) string { return strings.Join(values[key], "") }
	first, dir := o.LocalModel, o.Model
	first.Model, first.Adapter = value("model"), value("adapter")
	has := func(kind string) bool {
		info, err := os.Stat(filepath.Join(dir, kind))
		return err == nil && info.IsDir()
	}
	switch {
	case has(run.ModelName):
		o.Model = filepath.Join(dir, run.ModelName)
	case has(run.AdapterName) && o.Adapter == "":
		o.Model, o.Adapter = first.Model, filepath.Join(dir, run.AdapterName)
	case has(run.AdapterName):
		return nil, fault.Fault{Key: "adapter", Value: o.Adapter, Problem: "the run " + dir + " has one; remove it"}
	default:
		return nil, fmt.Errorf("%s: the run has no trained model yet (no folder model or adapter): posttrain %s "+
			"--resume %s continues it", dir, config.CommandOf(text), dir)
	}
	if c := &o.Template; c.Template == "" && c.Variables == nil && c.Date == "" {
		*c = local.Chat{Template: value("chat.template"), SHA256: value("chat.template_sha256"),
			Variables: values["chat.variables"], Date: value("chat.date")}
	}
	return &first, nil
}

// Conversation is a model that answers one message after the other, or two that answer in turn. Close it.
type Conversation struct{ speakers []*speaker }

// speaker is one of the models, with what it has heard and said.
type speaker struct {
	*generator
	name    string // before its answers; "": nobody else answers
	system  string
	history []data.Message // of user and assistant
	turn    int            // of all messages and new beginnings: each has draws of its own
}

// Talk opens what answers. A nil Reporter is silent.
func Talk(o ChatOptions, r run.Reporter) (c *Conversation, err error) {
	if err := ChatSpec.Verify(&o); err != nil {
		return nil, err
	}
	of := o.Model
	before, err := o.ofRun()
	if err == nil && o.Compare && before == nil {
		err = fault.Fault{Key: "compare", Value: "true", Problem: of +
			" is no run folder, with config.yaml: there is no model before it"}
	}
	if err != nil {
		return nil, err
	}
	c = &Conversation{}
	if o.Compare {
		err = c.add("before", *before, o, r)
		r = nil // the engine has been named
	}
	if name := map[bool]string{true: "after"}[o.Compare]; err == nil {
		err = c.add(name, o.LocalModel, o, r)
	}
	if err != nil {
		c.Close()
	}
	return c, err
}

// add opens one of the models.
func (c *Conversation) add(name string, m recipe.LocalModel, o ChatOptions, r run.Reporter) error {
	g := &generator{Reporter: run.Listen(r), o: Options{LocalModel: m, Seed: o.Seed, Chat: true, Samples: 1,
		Template: local.RowChat{Chat: o.Template}, Sampling: o.Sampling, Writer: o.Writer}}
	if err := g.openModel(); err != nil {
		return err
	}
	c.speakers = append(c.speakers, &speaker{generator: g, name: name, system: o.System})
	return nil
}

// Close frees the models.
func (c *Conversation) Close() {
	for _, s := range c.speakers {
		s.model.Close()
	}
}

// Forget begins a new conversation.
func (c *Conversation) Forget() {
	for _, s := range c.speakers {
		s.history = nil
		s.turn++
	}
}

// SetSystem gives the conversation, which continues, another system message; "": none.
func (c *Conversation) SetSystem(text string) {
	for _, s := range c.speakers {
		s.system = text
	}
}

// Save adds the conversation to a file, as a line of each model that the recipe sft reads.
func (c *Conversation) Save(path string) error {
	if len(c.speakers[0].history) == 0 {
		return fmt.Errorf("there is no answer to save yet")
	}
	if filepath.Ext(path) != ".jsonl" {
		return fmt.Errorf("%q: want the name of a file that ends in .jsonl", path)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	for _, s := range c.speakers {
		err = errors.Join(err, data.WriteLine(file, map[string]any{"messages": s.messages()}))
	}
	return errors.Join(err, file.Close())
}

// Reply answers a message that is not blank. What was said before the context ends stays in the conversation.
func (c *Conversation) Reply(ctx context.Context, message string) error {
	if strings.TrimSpace(message) == "" {
		return nil
	}
	var stopped error
	for _, s := range c.speakers {
		err := s.reply(ctx, message)
		if err != nil && !errors.Is(err, recipe.ErrInterrupted) {
			return err
		}
		stopped = errors.Join(stopped, err)
	}
	return stopped
}

func (s *speaker) reply(ctx context.Context, message string) error {
	defer func() { s.turn++ }()
	before, answer := s.history, rollout.Completion{}
	s.history = append(slices.Clip(before), data.Message{Role: "user", Content: message})
	q, err := s.question()
	if err == nil {
		if s.name != "" && ctx.Err() == nil {
			fmt.Fprint(s.o.Writer, s.name+": ")
		}
		answer, err = s.stream(ctx, q)
	}
	if err != nil && answer.Text == "" {
		s.history = before
	} else {
		s.history = append(s.history, data.Message{Role: "assistant", Content: answer.Text})
	}
	return s.stopError(ctx, err)
}

// messages are what the model is shown.
func (s *speaker) messages() []data.Message {
	if s.system == "" {
		return s.history
	}
	return append([]data.Message{{Role: "system", Content: s.system}}, s.history...)
}

// question forgets the oldest messages and answers where the model has no positions for them beside the answer, or
// beside half its positions.
func (s *speaker) question() (*ask.Question, error) {
	positions := s.positions()
	for forgotten := false; ; forgotten = true {
		q := &ask.Question{Prompt: data.Text{Messages: s.messages()}, Source: "the conversation"}
		err := s.encode(q, s.turn)
		tooLong := len(q.Tokens)+min(s.o.MaxNew, positions/2) > positions
		if len(s.history) > 2 && len(q.Tokens) > 0 && tooLong {
			s.history = s.history[2:]
			continue
		}
		if forgotten {
			s.Say("(the oldest messages are forgotten: the model has %d positions)", positions)
		}
		return q, err
	}
}
