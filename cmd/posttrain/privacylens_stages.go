package main

import (
	"github.com/posttrain/posttrain/eval/privacylens"

	"context"
	"fmt"

	"github.com/posttrain/posttrain/run"
)

// stage runs one stage, and notes in the folder what it was run with.
func (p *plRun) stage(ctx context.Context, name string) error {
	stages := map[string]func(context.Context) error{
		privacylens.StageActions: p.actions, privacylens.StageJudge: p.judging, privacylens.StageProbe: p.probe, privacylens.StageReport: p.report,
	}
	if err := stages[name](ctx); err != nil {
		return err
	}
	return p.accepted(name)
}

// accepted keeps the config as soon as a stage goes on with it. The actions ahead of a judge do not, since that may be refused yet,
// nor do the probes of a run that has actions, whose agent may be another one.
func (p *plRun) accepted(stage string) error {
	switch {
	case stage == privacylens.StageReport, stage == privacylens.StageActions && p.flags.stage == "":
		return nil
	case stage == privacylens.StageProbe:
		if pending, err := p.run.Pending(); err != nil || pending < len(p.cases) {
			return err
		}
	}
	return p.keepConfig()
}

// report is the stage of that name.
func (p *plRun) report(context.Context) error {
	summary, results, err := p.run.Report()
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "PrivacyLens, %d cases of %s: %s\n", len(p.cases), shortPath(p.config.Data.Cases), whose(summary.Settings, len(results) > 0))
	if err := summary.Write(p.out); err != nil {
		return err
	}
	for _, name := range []string{privacylens.SummaryName, privacylens.CasesName, privacylens.PageName} {
		fmt.Fprintln(p.out, p.folder.Path(name))
	}
	return nil
}

// whose says who was measured, by whose judgement.
func whose(settings privacylens.Settings, judged bool) string {
	actions, by := settings[privacylens.StageActions], settings[privacylens.StageJudge]
	if !judged {
		return shortPath(settings[privacylens.StageProbe]["model"]) + ", probed"
	}
	who := "no actions"
	switch {
	case actions["kind"] == privacylens.AgentRecorded:
		who = "recorded actions"
	case actions != nil:
		who = shortPath(actions["model"]) + ", prompt " + actions["prompt"]
	}
	judge := by["kind"]
	switch judge {
	case privacylens.KindModel:
		judge = by["model"]
	case privacylens.KindReplay:
		judge = "recorded verdicts"
	}
	return who + "; judge: " + judge
}

// plBar tells how far a stage is: cases, leaks, requests, cost.
type plBar struct {
	*plRun
	stageName string
	unit      string
	progress  *run.Progress                                 // from the first tick on, which knows how many cases there are
	last      int                                           // cases done at the last line
	values    func(privacylens.Progress) map[string]float64 // worth telling
}

func (p *plRun) newBar(stage, unit string, values func(privacylens.Progress) map[string]float64) *plBar {
	return &plBar{plRun: p, stageName: stage, unit: unit, last: -1, values: values}
}

// tick is told of every answer. Plain lines are for cases only.
func (b *plBar) tick(p privacylens.Progress) {
	if b.progress == nil {
		b.accepted(b.stageName) // what cannot be written now will be at the stage's end, or is an error then
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
