package main

import (
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/eval/privacylens"

	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/posttrain/posttrain/data"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/rollout/metered"
)

// prepareJudge reads what the judge goes by; a server is asked nothing yet.
func (p *plRun) prepareJudge() (err error) {
	switch j := p.config.Judge; j.Kind {
	case privacylens.KindKeyword:
		p.judge, p.judgeSettings = privacylens.Keyword{}, map[string]string{}
	case privacylens.KindReplay:
		err = p.prepareReplay(j)
	default:
		err = p.prepareModel(j)
	}
	if err == nil {
		p.judgeSettings["kind"] = p.config.Judge.Kind
	}
	return err
}

// prepareReplay reads recorded verdicts, and recorded helpfulness where there is any.
func (p *plRun) prepareReplay(j privacylens.JudgeConfig) (err error) {
	replay := &privacylens.Replay{}
	if replay.Verdicts, err = p.readVerdicts(j.Verdicts); err != nil {
		return err
	}
	if j.Helpfulness != "" {
		if replay.Scores, err = p.readScores(j.Helpfulness); err != nil {
			return err
		}
	}
	p.judge, p.judgeSettings = replay, map[string]string{}
	for name, path := range map[string]string{"verdicts": j.Verdicts, "helpfulness": j.Helpfulness} {
		if p.judgeSettings[name], err = fileHash(path); err != nil {
			return err
		}
	}
	return replay.Check(p.cases)
}

func (p *plRun) readVerdicts(path string) (map[string]lens.Verdict, error) {
	if path == embedded.Name {
		return lens.ReadVerdictsFS(embedded.Files, embedded.PrivacyLensVerdicts, p.all)
	}
	return lens.ReadVerdicts(path, p.all)
}

func (p *plRun) readScores(path string) (map[string]int, error) {
	if path == embedded.Name {
		return lens.ReadScoresFS(embedded.Files, embedded.PrivacyLensHelpfulness, p.all)
	}
	return lens.ReadScores(path, p.all)
}

// prepareModel reads the prompts of a model that judges.
func (p *plRun) prepareModel(j privacylens.JudgeConfig) (err error) {
	p.judgePrompts = p.prompts
	if j.Recorded != "" {
		if p.judgePrompts, err = privacylens.ReadJudgePrompts(j.Recorded, p.cases); err != nil {
			return err
		}
	}
	hash, err := p.hashJudgePrompts()
	p.judgeSettings = map[string]string{"model": j.Model, "base_url": strings.TrimRight(j.BaseURL, "/"), "max_new_tokens": fmt.Sprint(j.MaxNew), "prompts": hash}
	return err
}

// hashJudgePrompts names all prompts, less the actions in them.
func (p *plRun) hashJudgePrompts() (string, error) {
	return p.hashPrompts(func(c *lens.Case, add func(string, error)) {
		for _, item := range c.Trajectory.Items {
			add(p.judgePrompts.Leakage(c, "", item))
		}
		add(p.judgePrompts.Helpfulness(c, ""))
	})
}

// openJudge opens the client of a model that judges.
func (p *plRun) openJudge() (err error) {
	j := p.config.Judge
	if j.Kind != privacylens.KindModel || p.client != nil {
		return nil
	}
	cache := j.Cache
	if cache == "" {
		cache = p.folder.Path("judge-cache.jsonl")
	}
	retries := j.Retries
	if retries == 0 {
		retries = -1 // metered.Options: none
	}
	p.client, err = metered.Open(metered.Options{
		Name:    "judge",
		BaseURL: j.BaseURL, Model: j.Model, KeyName: j.KeyEnv, MaxTokens: j.MaxNew, Cache: cache,
		Parallel: j.Parallel, RequestsPerMinute: j.RequestsPerMinute, TokensPerMinute: j.TokensPerMinute, Timeout: j.Timeout, Retries: retries,
		MaxRequests: j.MaxRequests, MaxCost: j.MaxCost, PromptPrice: j.PromptPrice, CompletionPrice: j.CompletionPrice,
	})
	p.judge = privacylens.ModelJudge{Model: p.client, Prompts: p.judgePrompts}
	return err
}

// tryJudge asks a judge that comes after actions still to be written one question ahead of them, so that a wrong address,
// name or key does not show when hours have gone by. A reply that is in the cache is good enough.
func (p *plRun) tryJudge(ctx context.Context) error {
	pending, err := p.run.Pending()
	if err != nil || pending == 0 || p.judgePrompts == nil {
		return err
	}
	if err := p.openJudge(); err != nil {
		return err
	}
	_, err = p.client.Ask(ctx, "Reply with this line and nothing else.\nAnswer: No")
	return err
}

// judging is the stage judge.
func (p *plRun) judging(ctx context.Context) error {
	if err := p.importActions(); err != nil {
		return err
	}
	if err := p.openJudge(); err != nil {
		return err
	}
	bar := p.newBar(privacylens.StageJudge, "case", p.told)
	o := privacylens.JudgeOptions{Judge: p.judge, Parallel: 1, Settings: p.judgeSettings, Tick: bar.tick}
	if p.client != nil {
		o.AllowUnparsed = p.config.Judge.AllowUnparsed
		o.Parallel = 2 * p.config.Judge.Parallel // the client sends half as many: the others wait for a slow disk
	}
	err := p.run.Judge(ctx, o)
	bar.close()
	if closing := p.closeJudge(); err == nil {
		err = closing
	}
	return err
}

// closeJudge waits for the requests under way, and says what the judge was asked for.
func (p *plRun) closeJudge() error {
	if p.client == nil {
		return nil
	}
	err := p.client.Close()
	t := p.client.Stats()
	p.client = nil
	if t.Replies+t.Requests == 0 {
		return err
	}
	return errors.Join(err, p.noteUsage(t))
}

// told are leaks, and of a model what it was asked for and, where prices are known, what that costs.
func (p *plRun) told(now privacylens.Progress) map[string]float64 {
	values := map[string]float64{"leaks": float64(now.Leaks)}
	if now.Unparsed > 0 {
		values["unparsed"] = float64(now.Unparsed)
	}
	if p.client != nil {
		t := p.client.Stats()
		values["requests"] = float64(t.Requests)
		if p.priced() {
			values["cost"] = t.Cost
		}
	}
	return values
}

func (p *plRun) priced() bool {
	return p.config.Judge.PromptPrice > 0 || p.config.Judge.CompletionPrice > 0
}

// noteUsage adds what this call has asked the judge for to what earlier ones have, and says both.
func (p *plRun) noteUsage(t metered.Stats) error {
	var all map[string]metered.Stats
	text, err := os.ReadFile(p.folder.Path(privacylens.UsageName))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.say("warning: %s cannot be read: it begins anew", p.folder.Path(privacylens.UsageName))
	}
	if err != nil || all == nil {
		all = map[string]metered.Stats{}
	}
	name := p.config.Judge.Model
	before := all[name]
	all[name] = before.Plus(t)
	p.say("judge: %s", p.words(t))
	if before.Requests > 0 {
		p.say("judge, with earlier calls: %s", p.words(all[name]))
	}
	return data.WriteJSON(p.folder.Path(privacylens.UsageName), all)
}

// words are what a judge was asked for.
func (p *plRun) words(t metered.Stats) string {
	cost := ""
	if p.priced() {
		cost = fmt.Sprintf(", cost %.4g", t.Cost)
	}
	return fmt.Sprintf("%d replies, %d of them from the cache; %d requests, %d of them further tries; %d tokens of prompts, %d of replies%s",
		t.Replies, t.Cached, t.Requests, t.Retried, t.PromptTokens, t.CompletionTokens, cost)
}
