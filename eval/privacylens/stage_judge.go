package privacylens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/posttrain/posttrain/data/journal"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/bench"
)

// judgeOptions say who judges.
type judgeOptions struct {
	Judge         Judge
	Parallel      int                  // questions under way; 0: 1
	Settings      map[string]string    // what a later call must agree with: the judge, its prompts and the like
	AllowUnparsed bool                 // accept a judge whose verdicts never have the form asked for
	Tick          func(bench.Progress) // one call at a time
}

// question is one that a judge has yet to answer.
type question struct {
	c      *lens.Case
	at     int // of the case in the run
	item   int // of leakage
	action string
	row    verdictRow // without the verdict
}

// questionsOf are all questions about a case, none about an output without an action.
func questionsOf(c *lens.Case, at int, actions map[string]ActionRow) []question {
	row, recorded := actions[c.Name]
	action, has := Action(row.FinalAction)
	if recorded && !has {
		return nil
	}
	hash := Hash(row.FinalAction)
	all := []question{{c, at, 0, action, verdictRow{Name: c.Name, Kind: helpfulness, Action: hash}}}
	for i, item := range c.Trajectory.Items {
		all = append(all, question{c, at, i, action, verdictRow{Name: c.Name, Kind: leakage, Item: item, Action: hash}})
	}
	return all
}

// judging is the stage judge under way.
type judging struct {
	*bench.Stage[verdictRow]
	judgeOptions
	cases   []lens.Case
	todo    []question
	left    []int  // by case: questions without a verdict
	leaks   []bool // by case
	replies bench.Replies
}

// Judge asks for the verdicts that are not there yet: on every item of every case with an action, and on the
// helpfulness of that action. A Replay needs no actions; where there are any, they must agree with it.
func (r *store) Judge(ctx context.Context, o judgeOptions) error {
	actions, err := r.actionsToJudge(o.Judge)
	if err != nil {
		return err
	}
	stage, err := r.beginJudge(o)
	if err != nil {
		return err
	}
	s := &judging{Stage: stage, judgeOptions: o, cases: r.Cases,
		left: make([]int, len(r.Cases)), leaks: make([]bool, len(r.Cases))}
	s.replies = bench.Replies{Form: "Answer: Yes", Allowed: o.AllowUnparsed}
	if err := s.plan(actions); err != nil {
		return errors.Join(err, s.Close())
	}
	return s.Run(ctx, func() error {
		err := s.replies.Check(bench.Patience)
		if err == nil {
			err = bench.InParallel(ctx, o.Parallel, len(s.todo),
				func(ctx context.Context, i int) error { return s.answer(ctx, s.todo[i]) })
		}
		return cmp.Or(err, s.replies.Check(1)) // at the end, a single reply without a verdict is enough
	})
}

// beginJudge is begin for verdicts. Those bind that have the form asked for, or were accepted without it.
func (r *store) beginJudge(o judgeOptions) (*bench.Stage[verdictRow], error) {
	settings := map[string]string{}
	maps.Copy(settings, o.Settings)
	if o.AllowUnparsed {
		settings["unparsed"] = "allowed"
	}
	binds := func(v *verdictRow, before map[string]string) bool { return v.Parsed || before["unparsed"] != "" }
	return bench.Begin(r.Store, StageJudge, verdictsName, settings, o.Tick, binds)
}

// actionsToJudge are the final actions by name; nil for a replay without any.
func (r *store) actionsToJudge(judge Judge) (map[string]ActionRow, error) {
	rows, err := journal.Read[ActionRow](r.Path(actionsName))
	if err != nil {
		return nil, err
	}
	replay, isReplay := judge.(*replay)
	if isReplay {
		if err := replay.Check(r.Cases); err != nil || len(rows) == 0 {
			return nil, err
		}
	}
	actions, _, err := index(rows, nil)
	settings, settingsErr := bench.ReadSettings(r.Dir)
	if err := cmp.Or(err, settingsErr); err != nil {
		return nil, err
	}
	if err := r.SameCases(settings, StageActions); err != nil {
		return nil, err
	}
	err = lacking(r.Path(actionsName), "action yet: the stage actions adds them", r.Cases, in(actions))
	if err == nil && isReplay {
		err = replay.agree(r.Cases, actions)
	}
	return actions, err
}

// agree wants no leak and no helpfulness of outputs without an action: such verdicts are of other outputs.
func (r *replay) agree(cases []lens.Case, actions map[string]ActionRow) error {
	for i := range cases {
		name := cases[i].Name
		_, has := Action(actions[name].FinalAction)
		if !has && (r.Verdicts[name].Leaks || r.Scores[name] > 0) {
			return fmt.Errorf("%s: its output has no %q, but the recorded verdicts say that it leaks or helps: they "+
				"are of other actions", name, actionMark)
		}
	}
	return nil
}

// plan counts the verdicts that are there, and lists the questions without one.
func (s *judging) plan(actions map[string]ActionRow) error {
	_, judged, err := index(nil, s.Rows)
	if err != nil {
		return err
	}
	cases := s.cases
	s.Now.Total = len(cases)
	for i := range cases {
		questions := questionsOf(&cases[i], i, actions)
		s.left[i] = len(questions)
		s.Now.TotalCalls += len(questions)
		for _, q := range questions {
			v, done := judged[q.row.key()]
			switch {
			case !done:
				s.todo = append(s.todo, q)
			case v.Action != q.row.Action:
				return ofAnother(s.Path(), q.c.Name)
			default:
				s.count(i, v)
			}
		}
		if len(questions) == 0 {
			s.Now.Done++
		}
	}
	return nil
}

// count takes note of a verdict; the progress is held, or nobody else has it yet.
func (s *judging) count(at int, v verdictRow) {
	s.Now.Calls++
	if s.left[at]--; s.left[at] == 0 {
		s.Now.Done++
	}
	if v.Leaks != nil && *v.Leaks && !s.leaks[at] {
		s.leaks[at] = true
		s.Now.Found++
	}
	if v.Tries > 0 {
		s.replies.Count(v.Reply, v.Parsed)
	}
	if !v.Parsed {
		s.Now.Unparsed++
	}
}

// answer has one question answered.
func (s *judging) answer(ctx context.Context, q question) error {
	var v Verdict
	var err error
	row := q.row
	if row.Kind == leakage {
		v, err = s.Judge.Leakage(ctx, q.c, q.action, q.item)
		row.Leaks = &v.Leaks
	} else if v, err = s.Judge.Helpfulness(ctx, q.c, q.action); errors.Is(err, errNoScore) {
		v, err = Verdict{Parsed: true}, nil
	} else {
		row.Score = &v.Score
	}
	if err != nil {
		return err
	}
	row.Parsed, row.Cut, row.Tries, row.Reply, row.Prompt = v.Parsed, v.Cut, v.Tries, v.Reply, v.Prompt
	var fault error
	err = s.Note(row, func(*bench.Progress) {
		s.count(q.at, row)
		fault = s.replies.Check(bench.Patience)
	})
	return cmp.Or(err, fault)
}
