package main

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/eval/judge"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/internal/config"
)

// prepareJudge reads what the judge goes by; a server is asked nothing yet.
func (s *plStaged) prepareJudge() (err error) {
	switch j := s.config.Judge; j.Kind {
	case config.JudgeKeyword:
		s.judge, s.judgeSettings = privacylens.Keyword{}, map[string]string{}
	case config.JudgeReplay:
		err = s.prepareReplay(j)
	default:
		err = s.prepareModel(j)
	}
	if err == nil {
		s.judgeSettings["kind"] = s.config.Judge.Kind
	}
	return err
}

// prepareReplay reads recorded verdicts, and recorded helpfulness where there is any.
func (s *plStaged) prepareReplay(j config.PLJudge) (err error) {
	replay := &privacylens.Replay{}
	if replay.Verdicts, err = s.readVerdicts(j.Verdicts); err != nil {
		return err
	}
	if j.Helpfulness != "" {
		if replay.Scores, err = s.readScores(j.Helpfulness); err != nil {
			return err
		}
	}
	s.judge, s.judgeSettings = replay, map[string]string{}
	for name, path := range map[string]string{"verdicts": j.Verdicts, "helpfulness": j.Helpfulness} {
		if s.judgeSettings[name], err = fileHash(path); err != nil {
			return err
		}
	}
	return replay.Check(s.cases)
}

func (s *plStaged) readVerdicts(path string) (map[string]data.PLVerdict, error) {
	if path == config.Embedded {
		return data.ReadVerdictsFS(embedded.Files, embedded.PrivacyLensVerdicts, s.all)
	}
	return data.ReadVerdicts(path, s.all)
}

func (s *plStaged) readScores(path string) (map[string]int, error) {
	if path == config.Embedded {
		return data.ReadScoresFS(embedded.Files, embedded.PrivacyLensHelpfulness, s.all)
	}
	return data.ReadScores(path, s.all)
}

// prepareModel reads the prompts of a model that judges.
func (s *plStaged) prepareModel(j config.PLJudge) (err error) {
	s.judgePrompts = s.prompts
	if j.Recorded != "" {
		if s.judgePrompts, err = privacylens.ReadJudgePrompts(j.Recorded, s.all); err != nil {
			return err
		}
	}
	hash, err := s.hashJudgePrompts()
	s.judgeSettings = map[string]string{"model": j.Model, "base_url": j.BaseURL, "max_new_tokens": fmt.Sprint(j.MaxNew), "prompts": hash}
	return err
}

// hashJudgePrompts names all prompts, less the actions in them.
func (s *plStaged) hashJudgePrompts() (string, error) {
	return s.hashPrompts(func(c *data.PLCase, add func(string, error)) {
		for _, item := range c.Trajectory.Items {
			add(s.judgePrompts.Leakage(c, "", item))
		}
		add(s.judgePrompts.Helpfulness(c, ""))
	})
}

// openJudge opens the client of a model that judges.
func (s *plStaged) openJudge() (err error) {
	j := s.config.Judge
	if j.Kind != config.JudgeModel || s.client != nil {
		return nil
	}
	cache := j.Cache
	if cache == "" {
		cache = s.folder.Path("judge-cache.jsonl")
	}
	retries := j.Retries
	if retries == 0 {
		retries = -1 // judge.Options: none
	}
	s.client, err = judge.Open(judge.Options{
		BaseURL: j.BaseURL, Model: j.Model, KeyName: j.KeyEnv, MaxTokens: j.MaxNew, Cache: cache,
		Parallel: j.Parallel, RequestsPerMinute: j.RequestsPerMinute, TokensPerMinute: j.TokensPerMinute, Timeout: j.Timeout, Retries: retries,
		MaxRequests: j.MaxRequests, MaxCost: j.MaxCost, PromptPrice: j.PromptPrice, CompletionPrice: j.CompletionPrice,
	})
	s.judge = privacylens.ModelJudge{Model: s.client, Prompts: s.judgePrompts}
	return err
}

// tryJudge asks a judge that comes after actions still to be written one question ahead of them, so that a wrong address,
// name or key does not show when hours have gone by. A reply that is in the cache is good enough.
func (s *plStaged) tryJudge(ctx context.Context) error {
	pending, err := s.plRun.run.Pending()
	if err != nil || pending == 0 || s.judgePrompts == nil {
		return err
	}
	if err := s.openJudge(); err != nil {
		return err
	}
	_, err = s.client.Ask(ctx, "Reply with this line and nothing else.\nAnswer: No")
	return err
}

// judging is the stage judge.
func (s *plStaged) judging(ctx context.Context) error {
	if err := s.importActions(); err != nil {
		return err
	}
	if err := s.openJudge(); err != nil {
		return err
	}
	bar := s.newBar("case", s.told)
	o := privacylens.JudgeOptions{Judge: s.judge, Parallel: 1, Settings: s.judgeSettings, Tick: bar.tick}
	if s.client != nil {
		o.Unparsed = s.config.Judge.AllowUnparsed
		o.Parallel = 2 * s.config.Judge.Parallel // the client sends half as many: the others wait for a slow disk
	}
	err := s.plRun.run.Judge(ctx, o)
	bar.close()
	s.sayStats()
	return err
}

// told are leaks, and of a model what it was asked for and, where prices are known, what that costs.
func (s *plStaged) told(p privacylens.Progress) map[string]float64 {
	values := map[string]float64{"leaks": float64(p.Leaks)}
	if p.Unparsed > 0 {
		values["unparsed"] = float64(p.Unparsed)
	}
	if s.client != nil {
		t := s.client.Stats()
		values["requests"] = float64(t.Requests)
		if s.priced() {
			values["cost"] = t.Cost
		}
	}
	return values
}

func (s *plStaged) priced() bool {
	return s.config.Judge.PromptPrice > 0 || s.config.Judge.CompletionPrice > 0
}

// sayStats says what the judge was asked for.
func (s *plStaged) sayStats() {
	if s.client == nil {
		return
	}
	t := s.client.Stats()
	cost := ""
	if s.priced() {
		cost = fmt.Sprintf(", cost %.4g", t.Cost)
	}
	s.say("judge: %d replies, %d of them from the cache; %d requests, %d of them further tries; %d tokens of prompts, %d of replies%s",
		t.Replies, t.Cached, t.Requests, t.Retried, t.PromptTokens, t.CompletionTokens, cost)
}
