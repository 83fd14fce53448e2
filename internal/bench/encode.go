package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing/fstest"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/tokenizer"
)

// newEncode measures how fast conversations become tokens.
func newEncode() *cobra.Command {
	var o encoding
	cmd := newCommand("encode", "Conversational preference pairs encoded a minute, template and tokenizer",
		"  go run ./bench encode --model DIR --data pairs.jsonl.gz --template chat_template.jinja",
		func(out io.Writer) error { return o.measure(out) })
	flags := cmd.Flags()
	flags.StringVar(&o.model, "model", "", "model folder with a tokenizer and a chat template")
	flags.StringVar(&o.data, "data", "", "preference pairs; plain ones become conversations of two turns")
	flags.StringVar(&o.template, "template", "", "file with another chat template")
	flags.IntVar(&o.rounds, "rounds", 9, "times that the pairs are encoded")
	return cmd
}

type encoding struct {
	model, data, template string
	rounds                int
}

// measure prints the median of the rounds.
func (o encoding) measure(out io.Writer) error {
	t, err := o.tokenizer()
	if err != nil {
		return err
	}
	pairs, _, err := data.ReadPreferences(o.data, data.PreferenceOptions{})
	if err != nil {
		return err
	}
	for i := range pairs {
		converse(&pairs[i])
	}
	var times []time.Duration
	tokens := 0
	for range o.rounds {
		begin := time.Now()
		groups, err := batch.EncodeAll(context.Background(), &batch.Encoder{Tokenizer: t}, pairs,
			(*batch.Encoder).Preference)
		if err != nil {
			return err
		}
		times = append(times, time.Since(begin))
		tokens = 0
		for _, g := range groups {
			tokens += len(g.Prompt) + len(g.Answers[0]) + len(g.Answers[1])
		}
	}
	slices.Sort(times)
	median := times[len(times)/2]
	_, err = fmt.Fprintf(out, "%d pairs, %d tokens, %d cores: median %.3f s, %.0f pairs a minute\n", len(pairs), tokens,
		runtime.GOMAXPROCS(0), median.Seconds(), float64(len(pairs))/median.Minutes())
	return err
}

// tokenizer loads the folder's, with the other template.
func (o encoding) tokenizer() (*tokenizer.Tokenizer, error) {
	if o.template == "" {
		return tokenizer.Load(o.model)
	}
	files := fstest.MapFS{}
	for name, path := range map[string]string{
		"tokenizer.json":        filepath.Join(o.model, "tokenizer.json"),
		"tokenizer_config.json": filepath.Join(o.model, "tokenizer_config.json"),
		"chat_template.jinja":   o.template,
	} {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files[name] = &fstest.MapFile{Data: b}
	}
	return tokenizer.LoadFS(files, o.model)
}

// converse makes a plain pair a conversation.
func converse(p *data.Preference) {
	if p.Prompt.IsChat() {
		return
	}
	for text, role := range map[*data.Text]string{&p.Prompt: "user", &p.Chosen: "assistant", &p.Rejected: "assistant"} {
		*text = data.Text{Messages: []data.Message{{Role: role, Content: text.Plain}}}
	}
}
