package privacylens

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/posttrain/posttrain/data"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/rollout/metered"
)

// prepareJudge reads what the judge needs; a server is asked nothing yet.
func (e *evaluation) prepareJudge() (err error) {
	if !e.runs(StageJudge) {
		return nil
	}
	switch e.Judge.Kind {
	case KindKeyword:
		e.judging.Judge = keywordJudge{}
	case KindReplay:
		err = e.readReplay()
	default:
		e.judgePrompts = e.prompts
		if path := e.Judge.Recorded; path != "" {
			e.judgePrompts, err = readJudgePrompts(path, e.cases)
		}
	}
	if err == nil {
		e.judging.Settings, err = e.settingsOfJudge()
	}
	return err
}

// readReplay reads recorded verdicts, and recorded helpfulness where there is any.
func (e *evaluation) readReplay() (err error) {
	r, j := &replay{}, e.Judge
	r.Verdicts, err = readNamed(lens.ReadVerdictsFS, j.Verdicts, embedded.PrivacyLensVerdicts, e.all)
	if err == nil && j.Helpfulness != "" {
		r.Scores, err = readNamed(lens.ReadScoresFS, j.Helpfulness, embedded.PrivacyLensHelpfulness, e.all)
	}
	if err != nil {
		return err
	}
	e.judging.Judge = r
	return r.Check(e.cases)
}

// openJudge opens the client of a model that judges.
func (e *evaluation) openJudge() (err error) {
	j := e.Judge
	if j.Kind != KindModel || e.client != nil {
		return nil
	}
	e.client, err = metered.Open(metered.Options{
		Name: "judge", BaseURL: j.BaseURL, Model: j.Model, KeyName: j.KeyEnv, MaxTokens: j.MaxNew,
		Cache:    cmp.Or(j.Cache, e.folder.Path("judge-cache.jsonl")),
		Parallel: j.Parallel, RequestsPerMinute: j.RequestsPerMinute, TokensPerMinute: j.TokensPerMinute,
		Timeout: j.Timeout, Retries: cmp.Or(j.Retries, -1), // -1: no retries
		MaxRequests: j.MaxRequests,
		MaxCost:     j.MaxCost, PromptPrice: j.PromptPrice, CompletionPrice: j.CompletionPrice,
	})
	e.judging.Judge = modelJudge{Model: e.client, Prompts: e.judgePrompts}
	return err
}

// tryJudge sends the judge one test question before actions are generated, so that a wrong URL, model name or key does
// not show hours later. A reply in the cache is good enough.
func (e *evaluation) tryJudge(ctx context.Context) error {
	pending, err := e.store.pending()
	if err != nil || pending == 0 || e.judgePrompts == nil {
		return err
	}
	if err := e.openJudge(); err != nil {
		return err
	}
	_, err = e.client.Ask(ctx, "Reply with this line and nothing else.\nAnswer: No")
	return err
}

// closeJudge waits for the requests under way, and reports what the judge was asked for.
func (e *evaluation) closeJudge() error {
	if e.client == nil {
		return nil
	}
	err := e.client.Close()
	t := e.client.Stats()
	e.client = nil
	if t.Replies+t.Requests == 0 {
		return err
	}
	return errors.Join(err, e.noteUsage(t))
}

// judgeProgress returns what the progress bar shows: leaks, and for a model judge its requests and, if prices are set,
// the cost.
func (e *evaluation) judgeProgress(p progress) map[string]float64 {
	values := map[string]float64{"leaks": float64(p.Leaks)}
	if p.Unparsed > 0 {
		values["unparsed"] = float64(p.Unparsed)
	}
	if e.client != nil {
		t := e.client.Stats()
		values["requests"] = float64(t.Requests)
		if e.Judge.priced() {
			values["cost"] = t.Cost
		}
	}
	return values
}

func (j JudgeConfig) priced() bool { return j.PromptPrice > 0 || j.CompletionPrice > 0 }

// noteUsage adds the usage of this call to that of earlier ones in usage.json, and reports both.
func (e *evaluation) noteUsage(t metered.Stats) error {
	path := e.folder.Path(usageName)
	var all map[string]metered.Stats
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.reporter.Warn("%s cannot be read: a new one is begun", path)
	}
	if err != nil || all == nil {
		all = map[string]metered.Stats{}
	}
	name := e.Judge.Model
	before := all[name]
	all[name] = before.Plus(t)
	e.reporter.Say("judge: %s", e.describe(t))
	if before.Requests > 0 {
		e.reporter.Say("judge, with earlier calls: %s", e.describe(all[name]))
	}
	return data.WriteJSON(path, all)
}

func (e *evaluation) describe(t metered.Stats) string {
	cost := ""
	if e.Judge.priced() {
		cost = fmt.Sprintf(", cost %.4g", t.Cost)
	}
	return fmt.Sprintf("%d replies, %d of them from the cache; %d requests, %d of them further tries; "+
		"%d tokens of prompts, %d of replies%s",
		t.Replies, t.Cached, t.Requests, t.Retried, t.PromptTokens, t.CompletionTokens, cost)
}
