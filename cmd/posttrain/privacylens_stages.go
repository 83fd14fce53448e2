package main

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/eval/judge"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/run"
)

// plStaged is an evaluation with all that its stages need.
type plStaged struct {
	*plRun
	agent         *agent                    // nil: none is asked
	agentPrompts  privacylens.AgentPrompter // of the stage actions
	agentSettings map[string]string         // of the stage actions
	judge         privacylens.Judge         // of a model: from the client's opening on
	judgePrompts  privacylens.JudgePrompter // of a model; nil: none judges
	judgeSettings map[string]string         // of the stage judge
	client        *judge.Client             // of a model, from the first question on
}

// prepare prepares the stages that are to be run.
func (p *plRun) prepare() (*plStaged, error) {
	s := &plStaged{plRun: p}
	prepare := map[string]func() error{config.StageActions: s.prepareAgent, config.StageProbe: s.openAgent, config.StageJudge: s.prepareJudge}
	for _, stage := range plStages[p.flags.stage] {
		if prepare[stage] == nil {
			continue
		}
		if err := prepare[stage](); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// stage runs one stage, and notes in the folder what it was run with.
func (s *plStaged) stage(ctx context.Context, name string) error {
	stages := map[string]func(context.Context) error{
		config.StageActions: s.actions, config.StageJudge: s.judging, config.StageProbe: s.probe, config.StageReport: s.report,
	}
	if err := stages[name](ctx); err != nil {
		return err
	}
	return s.keepConfig()
}

func (s *plStaged) close() {
	if s.agent != nil {
		s.agent.close()
	}
	if s.client != nil {
		s.client.Close()
	}
}

// report is the stage of that name.
func (s *plStaged) report(context.Context) error {
	summary, results, err := s.plRun.run.Report()
	if err != nil {
		return err
	}
	if len(results) > 0 {
		fmt.Fprintf(s.out, "PrivacyLens, %s\n", s.title(summary.Settings))
	}
	if err := summary.Write(s.out); err != nil {
		return err
	}
	for _, name := range []string{privacylens.SummaryName, privacylens.CasesName, privacylens.PageName} {
		fmt.Fprintln(s.out, s.folder.Path(name))
	}
	return nil
}

// title says what was measured, by whose judgement.
func (s *plStaged) title(settings privacylens.Settings) string {
	actions, by := settings["actions"], settings["judge"]
	who := "no actions"
	switch {
	case actions["kind"] == config.AgentRecorded:
		who = "recorded actions"
	case actions != nil:
		who = shortPath(actions["model"]) + ", prompt " + actions["prompt"]
	}
	judge := by["kind"]
	switch judge {
	case config.JudgeModel:
		judge = by["model"]
	case config.JudgeReplay:
		judge = "recorded verdicts"
	}
	return fmt.Sprintf("%d cases of %s: %s; judge: %s", len(s.cases), shortPath(s.config.Data.Cases), who, judge)
}

// plBar tells how far a stage is: cases, leaks, requests, cost.
type plBar struct {
	*plStaged
	unit     string
	progress *run.Progress                                 // from the first tick on, which knows how many cases there are
	last     int                                           // cases done at the last line
	values   func(privacylens.Progress) map[string]float64 // worth telling
}

func (s *plStaged) newBar(unit string, values func(privacylens.Progress) map[string]float64) *plBar {
	return &plBar{plStaged: s, unit: unit, last: -1, values: values}
}

// tick is told of every answer. Plain lines are for cases only.
func (b *plBar) tick(p privacylens.Progress) {
	if b.progress == nil {
		b.progress = run.NewProgress(run.ProgressOptions{Out: b.err, Terminal: b.terminal, Quiet: b.flags.quiet, Unit: b.unit, Total: p.Total})
	}
	if !b.terminal && p.Done == b.last {
		return
	}
	b.last = p.Done
	b.progress.Step(p.Done, b.values(p))
}

func (b *plBar) close() {
	if b.progress != nil {
		b.progress.Close()
	}
}
