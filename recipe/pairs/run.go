package pairs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/generate"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// Result is what was written.
type Result struct {
	Pairs          []data.Preference
	Demonstrations []data.Demonstration
	Summary        string // in words
}

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Run lets a model answer prompts, scores the answers, and writes pairs or demonstrations to Options.Out. Answers and
// scores are kept beside it until all are there: an interrupted run continues with the same options. A nil Reporter is
// silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*Result, error) {
	if err := Spec.Verify(&o); err != nil {
		return nil, err
	}
	w := &work{Reporter: run.Listen(r), o: o}
	if err := w.read(); err != nil {
		return nil, err
	}
	if o.Templates {
		return w.ideal()
	}
	source, err := scorer.Open(o.Reward, scorer.Caller{Cache: o.Out + ".replies", Warn: w.Warn})
	if err != nil {
		return nil, err
	}
	defer source.Close()
	if err := w.sample(ctx); err != nil {
		return nil, err
	}
	all := scorer.Answers(w.groups)
	kept, err := score(ctx, w, source, o.Reward, o.Out, all, o.Answers)
	if err != nil {
		return nil, err
	}
	result, err := w.conclude(kept.Done)
	if err != nil {
		return nil, err
	}
	return result, errors.Join(kept.Remove(), w.drawn.Remove())
}

// work is a run.
type work struct {
	run.Reporter
	o       Options
	prompts []prompt
	drawn   *scorer.Kept[[]string] // answers to the prompts
	form    ci.Form                // of the prompts of items
	limit   int                    // most tokens of a prompt; 0: what the model takes
	groups  []scorer.Group         // prompts with their answers
	tooLong int                    // prompts without
}

// ideal writes demonstrations without a model. A prefill belongs to the answer.
func (w *work) ideal() (*Result, error) {
	var groups []scorer.Group
	for _, p := range w.prompts {
		groups = append(groups, scorer.Group{Prompt: p.Prompt, Item: p.item, Source: p.Source,
			Answers: []string{ci.Ideal(*p.item, w.form.Prompt, p.order)}})
	}
	source, err := scorer.Open(w.o.Reward, scorer.Caller{})
	if err != nil {
		return nil, err
	}
	scores, err := source.Score(context.Background(), scorer.Answers(groups))
	if err != nil {
		return nil, err
	}
	w.groups = groups
	return w.demonstrations(scores)
}

// sample draws the answers that are missing, and makes the groups. The beginning of an answer that the prompt has
// belongs to it, unless the chat template writes it.
func (w *work) sample(ctx context.Context) error {
	draw, closeModel, err := w.openModel()
	if err != nil {
		return err
	}
	defer closeModel()
	w.drawn, err = scorer.Keep[[]string](w.o.Out+".answers", w.identify(), len(w.prompts), scorer.Drawn)
	if err != nil {
		return err
	}
	if err := w.drawn.Fill(ctx, w, "prompt", scorer.PromptsAtOnce(w.o.Answers), draw); ctx.Err() != nil {
		return fmt.Errorf("%w: %d of %d prompts are answered; the same command continues", recipe.ErrInterrupted,
			len(w.drawn.Done), len(w.prompts))
	} else if err != nil {
		return err
	}
	for i, texts := range w.drawn.Done {
		p := &w.prompts[i]
		if texts == nil {
			w.tooLong++
			continue
		}
		w.groups = append(w.groups, scorer.Group{Prompt: p.Prompt, Answers: texts, Row: p.Row, Item: p.item,
			Source: p.Source, Prefilled: p.opened})
	}
	return nil
}

// identify is a hash of what answers depend on.
func (w *work) identify() string {
	h, o := sha256.New(), w.o
	enc := json.NewEncoder(h) // a hash never fails
	_ = enc.Encode([]any{o.Model, o.Adapter, o.Backend, o.Server.BaseURL, o.Server.Model})
	_ = enc.Encode([]any{o.Seed, o.Answers, o.Sampling, w.limit})
	if chat, err := o.Template.Identify(); chat != "" && err == nil { // reading the prompts says what is wrong
		_ = enc.Encode(chat)
	}
	for _, p := range w.prompts {
		_ = enc.Encode([]any{p.Prompt, p.Prompt.Unwritten(), p.prefill})
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// drawer gives answers to the prompts from..to-1; nil to one that is too long.
type drawer func(ctx context.Context, from, to int) ([][]string, error)

func (w *work) openModel() (drawer, func(), error) {
	if w.o.Server.BaseURL != "" {
		remote, err := w.o.Server.Open(nil, w.Warn)
		return w.fromServer(remote), func() {}, err
	}
	m, err := local.OpenWith(local.Options{Backend: w.o.Backend, Model: w.o.Model, Adapter: w.o.Adapter,
		CacheGB: w.o.CacheGB, Chat: w.o.Template})
	if err != nil {
		return nil, nil, err
	}
	recipe.ReportEngine(m.Engine, w)
	byDefault := w.o.MaxNew
	if w.o.Input != "" {
		byDefault = generate.DefaultMaxNew
	}
	err = recipe.CheckLength(w.o.MaxNew, byDefault, m.Model.Config.MaxPositions)
	if err == nil && w.o.Chat && !m.Tokenizer.HasTemplate() {
		err = fmt.Errorf("chat: %s has no chat template (chat_template.jinja, or chat_template in "+
			"tokenizer_config.json); without chat a prompt is continued as plain text", w.o.Model)
	}
	if err == nil {
		err = w.fit(&batch.Encoder{Tokenizer: m.Tokenizer}, m.Model.Config.MaxPositions)
	}
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return w.fromFolder(m), m.Close, nil
}

// fromFolder draws with a model in this process.
func (w *work) fromFolder(m *local.Model) drawer {
	e := &batch.Encoder{Tokenizer: m.Tokenizer}
	return func(ctx context.Context, from, to int) ([][]string, error) {
		var requests []rollout.Request
		var owners []int
		for i := from; i < to; i++ {
			p := &w.prompts[i]
			if p.long {
				continue
			}
			ids, err := e.Prefilled(p.Prompt, p.prefill)
			if err != nil {
				return nil, err
			}
			r := rollout.Request{Sampling: w.o.Sampling, Prompt: ids, Seed: rollout.DrawSeed(w.o.Seed, i)}
			for _, one := range r.Samples(w.o.Answers) {
				requests, owners = append(requests, one), append(owners, i)
			}
		}
		completions, err := m.Sampler.Sample(ctx, requests)
		texts := make([][]string, to-from)
		for k, c := range completions {
			texts[owners[k]-from] = append(texts[owners[k]-from], w.prompts[owners[k]].head()+c.Text)
		}
		return texts, err
	}
}

// fromServer draws with a server's model.
func (w *work) fromServer(remote *rollout.Remote) drawer {
	return func(ctx context.Context, from, to int) ([][]string, error) {
		var talks []rollout.Conversation
		for i := from; i < to; i++ {
			p := &w.prompts[i]
			talks = append(talks, rollout.Conversation{Sampling: w.o.Sampling, Messages: p.Prompt.Messages,
				Prefill: p.prefill, Samples: w.o.Answers, Seed: rollout.DrawSeed(w.o.Seed, i)})
		}
		replies, err := remote.Answer(ctx, talks)
		texts := make([][]string, len(replies))
		for i := range replies {
			for _, a := range replies[i] {
				texts[i] = append(texts[i], w.prompts[from+i].head()+a.Text)
			}
		}
		return texts, err
	}
}

// conclude writes the files.
func (w *work) conclude(scores []scorer.Score) (*Result, error) {
	kept := ""
	if w.o.Keep != "" {
		all := scorer.Table(w.groups, scores)
		if err := data.WriteAll(w.o.Keep, all); err != nil {
			return nil, err
		}
		kept = fmt.Sprintf("%s: the answers to %d prompts with their scores\n", w.o.Keep, len(all))
	}
	if w.o.Write == Demonstrations {
		result, err := w.demonstrations(scores)
		if err == nil {
			result.Summary += kept
		}
		return result, err
	}
	pairs, tally, err := scorer.Pairs(w.groups, scores)
	if err != nil {
		return nil, fmt.Errorf("%s%w", w.name(), err)
	}
	if err := data.WriteAll(w.o.Out, pairs); err != nil {
		return nil, err
	}
	summary := fmt.Sprintf("%s: %s\n%s", w.o.Out, tally, kept)
	if w.tooLong > 0 {
		summary += fmt.Sprintf("%d prompts are too long for the model and have no answers\n", w.tooLong)
	}
	if _, why := scorer.Unscored(scores); why != "" {
		summary += fmt.Sprintf("the last answer without a score: %s\n", why)
	}
	return &Result{Pairs: pairs, Summary: summary + gaps(pairs)}, nil
}

// name begins an error about the prompts of a file.
func (w *work) name() string {
	if file := cmp.Or(w.o.Input, w.o.Run); file != "" {
		return file + ": "
	}
	return ""
}

// gaps are the prior's in words, and the warning about them; "" without scores.
func gaps(pairs []data.Preference) string {
	_, _, report, err := data.Prior(pairs, data.DefaultRewardOptions())
	if err != nil {
		return ""
	}
	text := report.String() + "\n"
	if warning := report.Warning(); warning != "" {
		text += "warning: " + warning + "\n"
	}
	return text
}

// demonstrations writes the distinct answers to each prompt that are good enough, the best first.
func (w *work) demonstrations(scores []scorer.Score) (*Result, error) {
	var demos []data.Demonstration
	good, met, sum, best, all := 0, 0, 0.0, math.Inf(-1), len(scores)
	for _, g := range w.groups {
		var chosen []int
		mine := scores[:len(g.Answers)]
		scores = scores[len(g.Answers):]
		for i, s := range mine {
			if s.Why != "" {
				continue
			}
			sum, best = sum+s.Value, max(best, s.Value)
			if s.Value < w.o.MinScore {
				continue
			}
			good++
			if !slices.ContainsFunc(chosen, func(k int) bool { return g.Answers[k] == g.Answers[i] }) {
				chosen = append(chosen, i)
			}
		}
		slices.SortStableFunc(chosen, func(i, k int) int { return cmp.Compare(mine[k].Value, mine[i].Value) })
		met += min(1, len(chosen))
		if w.o.Most > 0 {
			chosen = chosen[:min(w.o.Most, len(chosen))]
		}
		for _, i := range chosen {
			demos = append(demos, data.Demonstration{Prompt: g.Prompt, Completion: g.Prompt.Reply(g.Answers[i]),
				Source: g.Source})
		}
	}
	mean := sum / float64(max(1, all))
	if len(demos) == 0 {
		return nil, fmt.Errorf("no answer has a score of %v or more: the best of %d has %.2f, the mean is %.2f; "+
			"lower --min-score, or sample more answers or at another temperature", w.o.MinScore, all, best, mean)
	}
	if err := data.WriteAll(w.o.Out, demos); err != nil {
		return nil, err
	}
	return &Result{Demonstrations: demos, Summary: fmt.Sprintf("%s: %d demonstrations\n%d of %d answers have a score of "+
		"%v or more (mean %.3f), to %d of %d prompts\n", w.o.Out, len(demos), good, all, w.o.MinScore, mean, met,
		len(w.groups))}, nil
}
