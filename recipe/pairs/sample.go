package pairs

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/generate"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// sample draws the answers that are missing, and makes the groups.
func (p *pairing) sample(ctx context.Context) (err error) {
	if p.drawn, err = scorer.KeepAnswers(p.o.Out+".answers", p.identify(), len(p.prompts)); err != nil {
		return err
	}
	if n := len(p.drawn.Answers); n > 0 {
		p.Say("%s: continuing after %d of %d prompts", p.drawn.Path(), n, len(p.prompts))
	}
	if err := errors.Join(p.draw(ctx), p.drawn.Close()); err != nil {
		return err
	}
	for i, texts := range p.drawn.Answers {
		if texts == nil {
			p.tooLong++
			continue
		}
		p.groups = append(p.groups, scorer.Group{Prompt: p.prompts[i].Prompt, Answers: texts,
			Source: p.prompts[i].Source})
	}
	if len(p.groups) == 0 {
		return fmt.Errorf("%s: all %d prompts are too long for the model %s", p.o.Input, len(p.prompts), p.o.Model)
	}
	return nil
}

// identify is a hash of what answers depend on.
func (p *pairing) identify() string {
	h, o := sha256.New(), p.o
	enc := json.NewEncoder(h) // a hash never fails
	_ = enc.Encode([]any{o.Model, o.Adapter, o.Backend, o.Server.BaseURL, o.Server.Model})
	_ = enc.Encode([]any{o.Seed, o.Answers, o.Sampling})
	if chat, err := o.Template.Identify(); chat != "" && err == nil { // reading the prompts says what is wrong
		_ = enc.Encode(chat)
	}
	for _, row := range p.prompts {
		_ = enc.Encode(row.Prompt)
		if more := row.Prompt.Unwritten(); more != nil {
			_ = enc.Encode(more)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// drawer gives answers to prompts, the first of which has this number; nil to one that is too long.
type drawer func(ctx context.Context, first int, prompts []data.PromptRow) ([][]string, error)

// draw draws what is missing.
func (p *pairing) draw(ctx context.Context) error {
	if len(p.drawn.Answers) == len(p.prompts) {
		return nil
	}
	some, closeModel, err := p.openModel()
	if err != nil {
		return err
	}
	defer closeModel()
	bar := p.Progress("prompt", len(p.drawn.Answers), len(p.prompts))
	defer bar.Close()
	err = p.drawn.Draw(ctx, p.o.Answers, func(ctx context.Context, from, to int) ([][]string, error) {
		return some(ctx, from, p.prompts[from:to])
	}, func(done int) { bar.Step(done, nil) })
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %d of %d prompts are answered; the same command continues", recipe.ErrInterrupted,
			len(p.drawn.Answers), len(p.prompts))
	}
	return err
}

func (p *pairing) openModel() (drawer, func(), error) {
	if p.o.Server.BaseURL != "" {
		some, err := p.openServer()
		return some, func() {}, err
	}
	m, err := local.OpenWith(local.Options{Backend: p.o.Backend, Model: p.o.Model, Adapter: p.o.Adapter,
		CacheGB: p.o.CacheGB, Chat: p.o.Template})
	if err != nil {
		return nil, nil, err
	}
	recipe.ReportEngine(m.Engine, p)
	err = recipe.CheckLength(p.o.MaxNew, generate.DefaultMaxNew, m.Model.Config.MaxPositions)
	if err == nil && p.o.Chat && !m.Tokenizer.HasTemplate() {
		err = fmt.Errorf("chat: %s has no chat template (chat_template.jinja, or chat_template in "+
			"tokenizer_config.json); without chat a prompt is continued as plain text", p.o.Model)
	}
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return p.fromFolder(m), m.Close, nil
}

// fromFolder draws with a model in this process.
func (p *pairing) fromFolder(m *local.Model) drawer {
	e := &batch.Encoder{Tokenizer: m.Tokenizer}
	return func(ctx context.Context, first int, prompts []data.PromptRow) ([][]string, error) {
		var requests []rollout.Request
		var owners []int
		for i, row := range prompts {
			ids, err := e.Prompt(row.Prompt)
			if err == nil && len(ids) == 0 {
				err = errors.New("the prompt has no tokens: want at least one")
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", row.Source, err)
			}
			if len(ids) >= m.Model.Config.MaxPositions {
				continue
			}
			r := rollout.Request{Sampling: p.o.Sampling, Prompt: ids, Seed: rollout.DrawSeed(p.o.Seed, first+i)}
			for _, one := range r.Samples(p.o.Answers) {
				requests, owners = append(requests, one), append(owners, i)
			}
		}
		completions, err := m.Sampler.Sample(ctx, requests)
		texts := make([][]string, len(prompts))
		for k, c := range completions {
			texts[owners[k]] = append(texts[owners[k]], c.Text)
		}
		return texts, err
	}
}

// openServer draws with a server's model.
func (p *pairing) openServer() (drawer, error) {
	remote, err := p.o.Server.Open(nil, p.Warn)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, first int, prompts []data.PromptRow) ([][]string, error) {
		talks := make([]rollout.Conversation, len(prompts))
		for i, row := range prompts {
			talks[i] = rollout.Conversation{Sampling: p.o.Sampling, Messages: row.Prompt.Messages,
				Samples: p.o.Answers, Seed: rollout.DrawSeed(p.o.Seed, first+i)}
		}
		replies, err := remote.Answer(ctx, talks)
		texts := make([][]string, len(replies))
		for i := range replies {
			for _, a := range replies[i] {
				texts[i] = append(texts[i], a.Text)
			}
		}
		return texts, err
	}, nil
}
