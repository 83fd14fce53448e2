package main

import (
	"github.com/posttrain/posttrain/embedded"
	"github.com/posttrain/posttrain/eval/privacylens"

	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/rollout/metered"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// plRun is an evaluation on its way.
type plRun struct {
	streams
	flags    *plFlags
	config   *privacylens.Options
	prompts  *privacylens.Prompts
	all      []lens.Case       // of the data
	cases    []lens.Case       // those evaluated
	recorded map[string]string // actions by name; nil: none
	leftOut  string            // how many cases have none, "" if all have one
	folder   *run.Folder       // nil until open
	run      *privacylens.Run

	agent         *agent                    // nil: none is asked
	agentPrompts  privacylens.AgentPrompter // of the stage actions
	agentSettings map[string]string         // of the stage actions
	judge         privacylens.Judge         // of a model: from the client's opening on
	judgePrompts  privacylens.JudgePrompter // of a model; nil: none judges
	judgeSettings map[string]string         // of the stage judge
	client        *metered.Client           // of a model, from the first question on
}

// runPrivacyLens reads everything that can be wrong, makes the run folder or goes on with it, and runs the stages.
func runPrivacyLens(ctx context.Context, s streams, f *plFlags, cmd *cobra.Command) error {
	c, err := f.load(cmd)
	if err != nil {
		return err
	}
	p := &plRun{streams: s, flags: f, config: c}
	defer p.close()
	for _, step := range []func() error{p.read, p.prepare, p.open} {
		if err := step(); err != nil {
			return err
		}
	}
	for _, stage := range plStages[f.stage] {
		err := context.Cause(ctx)
		if err == nil {
			err = p.stage(ctx, stage)
		}
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%w in stage %s: go on with %s", train.ErrInterrupted, stage, f.again(cmd, p.folder.Dir))
		}
		if err != nil {
			return err
		}
	}
	return p.sayNext()
}

// sayNext names the folder of a stage that ran alone, and what may come next.
func (p *plRun) sayNext() error {
	next := map[string]string{privacylens.StageActions: privacylens.StageJudge, privacylens.StageJudge: privacylens.StageReport, privacylens.StageProbe: privacylens.StageReport}[p.flags.stage]
	if next == "" {
		return nil
	}
	_, err := fmt.Fprintf(p.out, "%s: %s of %d cases done; then: posttrain %s %s --out %s\n", p.folder.Dir, p.flags.stage, len(p.cases), p.flags.command, next, shellWord(p.folder.Dir))
	return err
}

// say prints to standard error, unless --quiet.
func (p *plRun) say(format string, args ...any) {
	if !p.flags.quiet {
		fmt.Fprintf(p.err, format+"\n", args...)
	}
}

// read reads cases, prompts and recorded actions.
func (p *plRun) read() (err error) {
	var report *data.Report
	if p.all, report, err = readCases(p.config.Data.Cases); err != nil {
		return err
	}
	p.say("%s", report)
	p.cases = p.all
	if n := p.config.Data.First; n > 0 {
		p.cases = p.all[:min(n, len(p.all))]
	}
	if p.prompts, err = privacylens.LoadPrompts(p.config.Prompts); err != nil {
		return err
	}
	return p.readActions()
}

// readCases reads cases from a file, the embedded ones, or the folder in which PrivacyLens has them.
func readCases(path string) ([]lens.Case, *data.Report, error) {
	if path == embedded.Name {
		return lens.ReadFS(embedded.Files, embedded.PrivacyLensCases)
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, mainData)
		_, err = os.Stat(path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w: want a file of cases, or the folder with PrivacyLens's %s", path, errors.Unwrap(err), mainData)
	}
	return lens.Read(path)
}

// mainData is the file of the released cases.
const mainData = "main_data.json"

// readActions reads recorded actions, and leaves out the cases that have none. A stage that goes on with a run finds them in
// its folder.
func (p *plRun) readActions() (err error) {
	path := p.config.Agent.Actions
	if path != "" && p.flags.goesOn() && !p.flags.takesActions() {
		p.cases, err = privacylens.Acted(p.flags.out, p.cases)
		return err
	}
	switch path {
	case "":
		return nil
	case embedded.Name:
		p.recorded, err = lens.ReadActionsFS(embedded.Files, embedded.PrivacyLensActions, p.all)
	default:
		p.recorded, err = lens.ReadActions(path, p.all)
	}
	if err != nil {
		return err
	}
	wanted := len(p.cases)
	if p.cases = privacylens.WithActions(p.cases, p.recorded); len(p.cases) == 0 {
		return fmt.Errorf("%s: no actions for the first %d cases", p.config.Agent.Actions, wanted)
	}
	if left := wanted - len(p.cases); left > 0 {
		p.leftOut = fmt.Sprintf("%d of %d", left, wanted)
		p.say("warning: %s cases have no recorded action: they are left out", p.leftOut)
	}
	return nil
}

// prepare prepares the stages that are to be run.
func (p *plRun) prepare() error {
	prepare := map[string]func() error{privacylens.StageActions: p.prepareAgent, privacylens.StageProbe: p.openAgent, privacylens.StageJudge: p.prepareJudge}
	for _, stage := range plStages[p.flags.stage] {
		if prepare[stage] == nil {
			continue
		}
		if err := prepare[stage](); err != nil {
			return err
		}
	}
	return nil
}

// open makes the run folder, or opens the one to go on with.
func (p *plRun) open() (err error) {
	if p.flags.goesOn() {
		p.folder, err = run.Open(p.flags.out)
	} else {
		p.folder, err = run.Create(p.flags.out, "privacylens")
	}
	if err != nil {
		return err
	}
	if err := p.folder.Own(privacylens.FileNames...); err != nil {
		return err
	}
	if !p.flags.goesOn() {
		err = p.keepConfig()
	}
	if err == nil {
		p.run, err = privacylens.OpenRun(p.folder.Dir, p.cases)
	}
	return err
}

func (p *plRun) close() {
	if p.agent != nil {
		p.agent.close()
	}
	p.closeJudge() // ahead of the folder, in which its cache is
	if p.folder != nil {
		p.folder.Close()
	}
}

// keepConfig notes what is in force for later commands on the folder, wherever these are given.
func (p *plRun) keepConfig() error {
	c := *p.config
	for _, path := range c.Paths() {
		*path = wholePath(*path)
	}
	return p.folder.WriteConfig(c.Resolved())
}

// wholePath is a path from the root; none and embedded stay.
func wholePath(path string) string {
	if path == "" || path == embedded.Name {
		return path
	}
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path // there is no working directory: relative paths are as good as any
}

// shortPath is a path from the working directory, where it lies within that.
func shortPath(path string) string {
	if here, err := os.Getwd(); err == nil {
		if within, ok := strings.CutPrefix(path, here+string(filepath.Separator)); ok {
			return within
		}
	}
	return path
}

// fileHash names a file's contents in settings; embedded ones and none by their word.
func fileHash(path string) (string, error) {
	if path == "" || path == embedded.Name {
		return path, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return "sha256 " + hex.EncodeToString(sum[:8]), nil
}

// hashPrompts names the prompts that a function adds of every case.
func (p *plRun) hashPrompts(of func(c *lens.Case, add func(text string, err error))) (string, error) {
	sum := sha256.New()
	var first error
	for i := range p.cases {
		of(&p.cases[i], func(text string, err error) {
			if err != nil && first == nil {
				first = fmt.Errorf("%s: %w", p.cases[i].Place, err)
			}
			io.WriteString(sum, text)
		})
	}
	return "sha256 " + hex.EncodeToString(sum.Sum(nil)[:16]), first
}
