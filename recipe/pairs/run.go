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

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/generate"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/remote"
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
	source, err := scorer.Open(o.Reward, scorer.Caller{Cache: o.Out + ".replies", Warn: w.Warn, Say: w.Say})
	if err != nil {
		return nil, err
	}
	defer source.Close()
	if err := o.Reward.Try(ctx, w.questions[0]); err != nil {
		return nil, err
	}
	if err := w.sample(ctx); err != nil {
		return nil, err
	}
	kept, err := score(ctx, w, source, o.Reward, o.Out, slices.Concat(w.groups...), o.Answers)
	if err != nil {
		return nil, err
	}
	ask.Assign(w.groups, kept.Done)
	result, err := w.conclude(kept.Done)
	if err != nil {
		return nil, err
	}
	return result, errors.Join(kept.Remove(), w.drawn.Remove())
}

// work is a run.
type work struct {
	run.Reporter
	o         Options
	questions []ask.Question
	drawn     *ask.Texts
	form      ci.Form            // of the prompts of items
	order     func(i int) uint64 // of item i's attributes
	limit     int                // most tokens of a prompt; 0: what the model takes
	groups    [][]ask.Answer     // to each question
	tooLong   int                // prompts without answers
}

// ideal writes demonstrations without a model. A prefill belongs to the answer.
func (w *work) ideal() (*Result, error) {
	source, err := scorer.Open(w.o.Reward, scorer.Caller{})
	if err != nil {
		return nil, err
	}
	for i := range w.questions {
		q := &w.questions[i]
		q.Prefill = ""
		w.groups = append(w.groups, []ask.Answer{{To: q, Completion: rollout.Completion{
			Text: ci.Ideal(*q.Item, w.form.Prompt, w.order(i))}}})
	}
	scores, err := source.Score(context.Background(), slices.Concat(w.groups...))
	if err != nil {
		return nil, err
	}
	ask.Assign(w.groups, scores)
	return w.demonstrations()
}

// sample draws the answers that are missing, and makes the groups.
func (w *work) sample(ctx context.Context) error {
	ask.SeedDraws(w.questions, w.o.Seed)
	for i := range w.questions {
		w.questions[i].Sampling, w.questions[i].Samples = w.o.Sampling, w.o.Answers
	}
	m, closeModel, err := w.openModel()
	if err != nil {
		return err
	}
	defer closeModel()
	id, err := w.identify()
	if err == nil {
		w.drawn, err = ask.KeepTexts(w.o.Out+".answers", id, w.questions, w.o.Answers)
	}
	if err != nil {
		return err
	}
	if err := w.drawn.Fill(ctx, w, m.Answer); ctx.Err() != nil {
		return fmt.Errorf("%w: %d of %d prompts are answered; the same command continues", recipe.ErrInterrupted,
			len(w.drawn.Done), len(w.questions))
	} else if err != nil {
		return err
	}
	w.groups = w.drawn.Answers()
	return nil
}

// identify is a hash of what answers depend on.
func (w *work) identify() (id string, err error) {
	h, o, weights := sha256.New(), w.o, ""
	if o.Server.BaseURL == "" {
		if weights, err = local.HashWeights(o.Model, o.Adapter); err != nil {
			return "", err
		}
	}
	enc := json.NewEncoder(h) // a hash never fails
	_ = enc.Encode([]any{o.Model, o.Adapter, weights, o.Backend, o.Server.BaseURL, o.Server.APIModel})
	_ = enc.Encode([]any{o.Seed, o.Answers, o.Sampling, w.limit})
	if chat, err := o.Template.Identify(); chat != "" && err == nil { // reading the prompts says what is wrong
		_ = enc.Encode(chat)
	}
	if o.Template.Plain == "text" {
		_ = enc.Encode(o.Template.Plain)
	}
	for _, q := range w.questions {
		_ = enc.Encode([]any{q.Prompt, q.Prompt.Unwritten(), q.Prefill})
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16]), nil
}

// openModel opens the model of a folder or a server.
func (w *work) openModel() (_ ask.Model, closeModel func(), err error) {
	if w.o.Server.BaseURL != "" {
		o := w.o.Server.Options()
		o.Warn = w.Warn
		client, err := remote.New(o)
		return client, func() {}, err
	}
	m, err := local.OpenWith(local.Options{Backend: w.o.Backend, Model: w.o.Model, Adapter: w.o.Adapter,
		CacheGB: w.o.CacheGB, Chat: w.o.Template.Chat})
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
		err = w.fit(w.o.Template.Encoder(m.Tokenizer), m.Model.Config.MaxPositions)
	}
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return m.Chat(nil), m.Close, nil
}

// conclude writes the files.
func (w *work) conclude(scores []ask.Score) (*Result, error) {
	kept := ""
	if w.o.Keep != "" {
		all := ask.Table(w.groups)
		if err := data.WriteAll(w.o.Keep, all); err != nil {
			return nil, err
		}
		kept = fmt.Sprintf("%s: the answers to %d prompts with their scores\n", w.o.Keep, len(all))
	}
	if w.o.Write == Demonstrations {
		result, err := w.demonstrations()
		if err == nil {
			result.Summary += kept + unscored(scores) + leftOut(scores)
		}
		return result, err
	}
	pairs, tally, err := ask.Pairs(w.groups)
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
	if _, why := ask.Unscored(scores); why != "" {
		summary += fmt.Sprintf("the last answer without a score: %s\n", why)
	}
	return &Result{Pairs: pairs, Summary: summary + leftOut(scores) + gaps(pairs)}, nil
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
func (w *work) demonstrations() (*Result, error) {
	var demos []data.Demonstration
	good, met, sum, best, all, scored, why := 0, 0, 0.0, math.Inf(-1), 0, 0, ""
	for _, g := range w.groups {
		var chosen []*ask.Answer
		all += len(g)
		for i := range g {
			a := &g[i]
			if a.Score.Missing != "" {
				why = a.Score.Missing
				continue
			}
			sum, best, scored = sum+a.Score.Value, max(best, a.Score.Value), scored+1
			if a.Score.Value < w.o.MinScore {
				continue
			}
			good++
			if !slices.ContainsFunc(chosen, func(other *ask.Answer) bool { return other.Text == a.Text }) {
				chosen = append(chosen, a)
			}
		}
		slices.SortStableFunc(chosen, func(a, b *ask.Answer) int { return cmp.Compare(b.Score.Value, a.Score.Value) })
		met += min(1, len(chosen))
		if w.o.Most > 0 {
			chosen = chosen[:min(w.o.Most, len(chosen))]
		}
		for _, a := range chosen {
			demos = append(demos, data.Demonstration{Prompt: a.To.Prompt, Completion: a.Response(), Source: a.To.Source})
		}
	}
	mean := sum / float64(max(1, scored))
	if scored == 0 {
		return nil, fmt.Errorf("none of %d answers has a score; the last: %s", all, why)
	}
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
