package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
	"github.com/posttrain/posttrain/rollout/remote"
)

// Evaluation says where a run is and how far it came.
type Evaluation struct {
	Dir      string // run folder, a new one or the folder of a run to continue; "": a new one in runs
	Stage    string // the last one that was begun; "": no stage was
	Cases    int    // evaluated
	Reported bool   // there is a result
	Figures  string // that others have published, as tables; "": none compare
}

// evaluation is a call of Benchmark.Run.
type evaluation struct {
	Evaluation
	Protocol
	command    string
	o          Options
	judge      metered.Options
	config     []byte // config.yaml
	none       bool   // no answers are needed, and none are named
	continuing bool   // the run continues
	reporter   run.Reporter
	folder     *run.Folder // nil until open
	identity   string      // of what is evaluated, as HashCases names it
	subject    *Subject    // nil: no model is asked
	client     *metered.Client
	spent      spent
	replay     *replay // nil: verdicts are not recorded
	result     fmt.Stringer
	bar        run.Bar // of the stage under way, from its first tick on
}

// Continues says whether an earlier run has this folder.
func Continues(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "config.yaml"))
	return dir != "" && err == nil
}

func (e *evaluation) run(ctx context.Context) error {
	defer e.close()
	err := e.prepare()
	err = e.do(ctx, err, StageAnswers, e.runAnswers)
	err = e.do(ctx, err, StageJudge, e.runJudge)
	return e.do(ctx, err, StageReport, e.runReport)
}

// do runs a stage, if it is one of those to run and err is nil.
func (e *evaluation) do(ctx context.Context, err error, name string, stage func(context.Context) error) error {
	if err != nil || !e.o.Runs(name) || name == StageJudge && e.Questions == nil {
		return err
	}
	e.Stage = name
	if err = context.Cause(ctx); err == nil {
		err = stage(ctx)
	}
	e.closeBar()
	return err
}

// progress shows how far a stage is, from its first tick on, which knows how many cases there are.
func (e *evaluation) progress(unit string, values func(Progress) map[string]float64) (tick func(Progress)) {
	return func(p Progress) {
		if e.bar == nil {
			e.bar = e.reporter.Progress(unit, 0, p.Total)
		}
		shown := values(p)
		if p.Unparsed > 0 {
			shown["unparsed"] = float64(p.Unparsed)
		}
		e.bar.Step(p.Done, shown)
	}
}

func (e *evaluation) closeBar() {
	if e.bar != nil {
		e.bar.Close()
		e.bar = nil
	}
}

// folderName begins the name of a run folder that the user does not name.
func folderName(command string) string {
	return strings.ReplaceAll(strings.TrimPrefix(command, "eval "), " ", "-")
}

func (e *evaluation) path(name string) string { return filepath.Join(e.Dir, name) }

// asksModel says that a model is asked for answers, asksJudge that a server's model judges.
func (e *evaluation) asksModel() bool {
	return e.o.Runs(StageAnswers) && e.Recorded == nil && e.o.Agent.Way() != ""
}
func (e *evaluation) asksJudge() bool {
	return e.Questions != nil && e.o.Runs(StageJudge) && e.Rule == nil
}

// text is what is read of an answer.
func (e *evaluation) text(a Answer) string {
	switch {
	case e.Text != nil:
		return e.Text(a)
	case e.Questions != nil:
		rest, _ := a.Rest()
		return rest
	}
	return a.Whole()
}

// prepare finds what is wrong before anything is written or takes long, and opens the folder.
func (e *evaluation) prepare() (err error) {
	if e.continuing {
		err = e.checkOwn()
	}
	if err == nil && e.asksModel() && e.o.Agent.Way() == Remote {
		err = e.o.Agent.CheckKey("agent")
	}
	if err == nil && e.asksJudge() {
		err = e.judge.CheckKey("judge")
	}
	if err = cmp.Or(err, e.checkRecorded()); err == nil && e.asksModel() {
		err = e.openSubject()
	}
	if err != nil {
		return err
	}
	if e.continuing {
		e.folder, err = run.Open(e.Dir)
	} else {
		e.folder, err = run.Create(e.Dir, folderName(e.command))
	}
	if err != nil {
		return err
	}
	e.Dir, e.identity = e.folder.Dir, cmp.Or(e.Protocol.Cases, HashCases(e.Items))
	err = e.folder.Own(append([]string{SettingsName, UsageName, timeName, SummaryName, CasesName}, e.Files...)...)
	if err == nil && !e.continuing {
		err = e.folder.WriteConfig(e.config)
	}
	return err
}

// checkOwn wants a folder that is there to be a run of this benchmark: another command would lose its config and
// summary.
func (e *evaluation) checkOwn() error {
	path := filepath.Join(e.o.Dir, "config.yaml")
	text, err := config.Open(path)
	if command := config.CommandOf(text); err == nil && command != e.command {
		err = fmt.Errorf("%s: its command is %q: want the folder of a run of %q, or a new one", path, command, e.command)
	}
	return err
}

// checkRecorded wants recorded answers to every turn of every item.
func (e *evaluation) checkRecorded() error {
	if e.Recorded == nil {
		return nil
	}
	missing, first := 0, ""
	for _, item := range e.Items {
		if len(e.Recorded[item.ID]) < item.turns() {
			missing, first = missing+1, cmp.Or(first, item.ID)
		}
	}
	if missing > 0 {
		return fmt.Errorf("%s: %d of %d questions have no answer (first: %s)", e.o.Agent.Answers, missing, len(e.Items),
			first)
	}
	return nil
}

// openSubject opens the model under test, and finds out whether it has room for a prompt.
func (e *evaluation) openSubject() (err error) {
	if e.subject, err = OpenSubject(e.o.Agent, !e.continuing, e.reporter); err != nil || e.continuing {
		return err
	}
	return e.subject.CheckRoom(len(e.Items), func(i int) ask.Question {
		question, _ := e.conversation(&e.Items[i], nil) // the first follows from nothing
		return question
	})
}

// accepted saves config.yaml once a stage has begun with it, but for answers that run before the judge, which may
// still be rejected.
func (e *evaluation) accepted(stage string) error {
	if stage == StageAnswers && e.o.Runs(StageJudge) && e.Questions != nil {
		return nil
	}
	return e.folder.WriteConfig(e.config)
}

func (e *evaluation) close() {
	e.subject.Close()
	_ = e.closeClient() // before the folder, which has its cache; a stage that succeeds has closed it
	if e.folder != nil {
		e.folder.Close()
	}
}

// runReport reads what the stages have left, counts it, and writes it.
func (e *evaluation) runReport(context.Context) error {
	f, err := e.found()
	if err != nil {
		return err
	}
	result, cases, err := e.Protocol.Report(f)
	if err == nil {
		err = data.WriteLines(f.Path(CasesName), len(cases), func(i int) any { return cases[i] })
	}
	if err == nil {
		err = data.WriteJSON(f.Path(SummaryName), result)
	}
	if err == nil {
		e.result = result
	}
	if err == nil && e.Published {
		e.Figures = eval.Published(e.command)
		if e.Differs != nil {
			unlike := e.Differs(f)
			if len(unlike) == 0 {
				unlike = []string{"nothing that the settings show"}
			}
			e.Figures += strings.Join(append([]string{"\nof this run, not as published:"}, unlike...), "\n  ") + "\n"
		}
	}
	return err
}

// found reads what the stages have left; nothing may be missing.
func (e *evaluation) found() (*Found, error) {
	answers, err := e.answers()
	if err != nil {
		return nil, err
	}
	questions, err := e.questions(answers)
	if err != nil {
		return nil, err
	}
	path := e.path(VerdictsName)
	rows, err := run.ReadJournal[Verdict](path)
	if err != nil {
		return nil, err
	}
	settings, err := e.sameCases(StageJudge)
	if err == nil {
		err = e.begunWith(settings, StageJudge, e.nameOfJudge())
	}
	if err != nil {
		return nil, err
	}
	todo, err := unanswered(questions, rows, func(Verdict) {})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(todo) > 0 {
		return nil, fmt.Errorf("%s: %d of %d verdicts are missing (first: %s): run `posttrain %s --stage judge --out %s` "+
			"to finish", path, len(todo), len(questions), todo[0].ID, e.command, e.Dir)
	}
	f := &Found{Dir: e.Dir, Items: e.Items, Answers: answers, Settings: settings, text: e.text}
	if e.replay != nil {
		f.from = e.replay.path
	}
	f.Verdicts, _ = byKey(rows) // unanswered has checked them
	f.warn(e.Questions != nil && e.Text == nil)
	return f, nil
}

// runAnswers asks the model under test for the answers that are not there yet, turn by turn.
func (e *evaluation) runAnswers(ctx context.Context) error {
	if e.none {
		return nil // the options need no answers
	}
	settings, err := e.settingsOfAnswers(ctx)
	if err != nil {
		return err
	}
	s, err := begin[Answer](e, StageAnswers, AnswersName, settings, e.progress("answer", e.subject.Values), nil)
	if err != nil {
		return err
	}
	done, err := byItem(e.Items, s.Rows)
	if err != nil {
		s.Close()
		return fmt.Errorf("%s: %w", s.Path(), err)
	}
	turns := 0
	for i := range e.Items {
		item := &e.Items[i]
		turns = max(turns, item.turns())
		s.Now.Total += item.turns() - item.spared(done[item.ID])
	}
	s.Now.Done = len(s.Rows)
	return s.run(ctx, func() error {
		defer e.spent.save(e.Dir)
		for turn := range turns {
			if err := e.answerTurn(ctx, s, done, turn); err != nil {
				return err
			}
		}
		return nil
	})
}

// answerTurn gets the answers of a turn, counted from 0, that are not there yet, and adds them to done.
func (e *evaluation) answerTurn(ctx context.Context, s *stage[Answer], done map[string][]Answer, turn int) error {
	var todo []*Item
	before, items := map[string][]Answer{}, map[string]*Item{}
	for i := range e.Items {
		item := &e.Items[i]
		_, ended, err := item.next(done[item.ID])
		if err != nil {
			return err
		}
		if ended || len(done[item.ID]) > turn {
			continue
		}
		items[item.ID] = item
		todo, before[item.ID] = append(todo, item), done[item.ID]
	}
	add := func(row Answer) error {
		row.Turn = turn + 1
		return s.note(row, func(p *Progress) {
			p.Done++
			done[row.ID] = append(done[row.ID], row)
			p.Total -= items[row.ID].spared(done[row.ID])
		})
	}
	if e.Recorded != nil {
		for _, item := range todo {
			if err := add(Answer{ID: item.ID, Output: e.Recorded[item.ID][turn]}); err != nil {
				return err
			}
		}
		return nil
	}
	parallel, batch := e.subject.atOnce()
	batches := slices.Collect(slices.Chunk(todo, batch))
	return remote.InParallel(ctx, parallel, len(batches), func(ctx context.Context, i int) error {
		var rows []Answer
		var questions []ask.Question
		for _, item := range batches[i] {
			question, err := e.conversation(item, before[item.ID])
			if err != nil {
				return err
			}
			row := Answer{ID: item.ID, Prompt: hashMessages(question.Prompt.Messages), Reason: TooLong}
			tokens, fits, err := e.subject.fits(question)
			row.Asked = tokens
			if err == nil && fits {
				row.Opened, err = e.subject.opened(question)
				rows, questions = append(rows, row), append(questions, question)
			} else if err == nil {
				err = add(row)
			}
			if err != nil {
				return err
			}
		}
		if len(rows) == 0 {
			return nil
		}
		start := time.Now()
		answers, err := e.subject.Answer(ctx, questions)
		if err == nil {
			s.mu.Lock()
			e.spent.Answers, e.spent.Seconds = e.spent.Answers+len(rows), e.spent.Seconds+time.Since(start).Seconds()
			s.mu.Unlock()
		}
		for k := 0; k < len(rows) && err == nil; k++ {
			a, row := answers[k][0], &rows[k]
			row.Output, row.Reason, row.Tokens = a.Text, a.Reason, a.Length()
			row.Asked = cmp.Or(row.Asked, a.Usage.PromptTokens)
			err = add(*row)
		}
		return err
	})
}
