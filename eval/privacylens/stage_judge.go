package privacylens

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	lens "github.com/posttrain/posttrain/data/privacylens"
)

// judgeOptions say who judges.
type judgeOptions struct {
	Judge         Judge
	Parallel      int               // questions under way; 0: 1
	Settings      map[string]string // what a later call must agree with: the judge, its prompts and the like
	AllowUnparsed bool              // accept a judge whose verdicts never have the form asked for
	Tick          func(progress)    // one call at a time
}

// patience is the number of replies without a single verdict that stops the stage.
const patience = 10

// question is one that a judge has yet to answer.
type question struct {
	c      *lens.Case
	at     int // of the case in the run
	item   int // -1: helpfulness
	action string
	hash   string // of the final action
}

// questionsOf are all questions about a case, none about an output without an action.
func questionsOf(c *lens.Case, at int, actions map[string]ActionRow) (all []question) {
	row, recorded := actions[c.Name]
	action, has := Action(row.FinalAction)
	if recorded && !has {
		return nil
	}
	for item := -1; item < len(c.Trajectory.Items); item++ {
		all = append(all, question{c, at, item, action, Hash(row.FinalAction)})
	}
	return all
}

// judging is the stage judge under way.
type judging struct {
	*judgeOptions
	journal *journal[verdictRow]
	todo    []question
	counter counter
	left    []int  // by case: questions without a verdict
	leaks   []bool // by case
	replies int    // of the judge, of this call and earlier ones
	strange string // a reply without a verdict
}

// Judge asks for the verdicts that are not there yet: on every item of every case with an action, and on the
// helpfulness of that action. A Replay needs no actions; where there are any, they must agree with it.
func (r *store) Judge(ctx context.Context, o judgeOptions) error {
	actions, err := r.actionsToJudge(o.Judge)
	if err != nil {
		return err
	}
	j, rows, err := r.beginJudge(o.Settings, o.AllowUnparsed)
	if err != nil {
		return err
	}
	s := &judging{judgeOptions: &o, journal: j, left: make([]int, len(r.Cases)), leaks: make([]bool, len(r.Cases)),
		counter: counter{tick: o.Tick}}
	if err = s.begin(r, actions, rows); err == nil {
		err = r.start(StageJudge)
	}
	if err == nil {
		s.counter.step(func(*progress) {})
		err = s.checkReplies(patience)
	}
	if err == nil {
		err = inParallel(ctx, o.Parallel, len(s.todo),
			func(ctx context.Context, i int) error { return s.answer(ctx, s.todo[i]) })
	}
	if err == nil {
		err = s.checkReplies(1) // at the end, a single reply without a verdict is enough
	}
	return stopped(ctx, err, j.close())
}

// beginJudge is begin for verdicts. Those bind that have the form asked for, or were accepted without it.
func (r *store) beginJudge(settings map[string]string, allowUnparsed bool) (*journal[verdictRow], []verdictRow, error) {
	all, err := readSettings(r.Dir)
	if err != nil {
		return nil, nil, err
	}
	now := map[string]string{}
	maps.Copy(now, settings)
	if allowUnparsed {
		now["unparsed"] = "allowed"
	}
	accepted := all[StageJudge]["unparsed"] != ""
	return begin(r, StageJudge, verdictsName, now, func(v *verdictRow) bool { return v.Parsed || accepted })
}

// actionsToJudge are the final actions by name; nil for a replay without any.
func (r *store) actionsToJudge(judge Judge) (map[string]ActionRow, error) {
	rows, err := readRows[ActionRow](r.path(actionsName))
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
	if err != nil {
		return nil, err
	}
	settings, err := readSettings(r.Dir)
	if err != nil {
		return nil, err
	}
	if err := r.sameCases(settings, StageActions); err != nil {
		return nil, err
	}
	err = lacking(r.path(actionsName), "action yet: the stage actions adds them", r.Cases,
		func(c *lens.Case) bool { _, ok := actions[c.Name]; return ok })
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

// begin counts the verdicts that are there, and lists the questions without one.
func (s *judging) begin(r *store, actions map[string]ActionRow, rows []verdictRow) error {
	_, judged, err := index(nil, rows)
	if err != nil {
		return err
	}
	s.counter.now.Total = len(r.Cases)
	for i := range r.Cases {
		questions := questionsOf(&r.Cases[i], i, actions)
		s.left[i] = len(questions)
		s.counter.now.TotalCalls += len(questions)
		for _, q := range questions {
			v, done := judged[q.key()]
			if done && v.Action != q.hash {
				return fmt.Errorf("%s: the verdicts on %s are of another action: name another --out DIR",
					r.path(verdictsName), q.c.Name)
			}
			if done {
				s.count(i, v)
			} else {
				s.todo = append(s.todo, q)
			}
		}
		if s.left[i] == 0 {
			s.counter.now.Done++
		}
	}
	return nil
}

func (q *question) key() verdictKey {
	if q.item < 0 {
		return verdictKey{q.c.Name, ""}
	}
	return verdictKey{q.c.Name, q.c.Trajectory.Items[q.item]}
}

// count takes note of a verdict; the counter is held, or nobody else has it yet.
func (s *judging) count(at int, v verdictRow) {
	p := &s.counter.now
	p.Calls++
	if s.left[at]--; v.Leaks != nil && *v.Leaks && !s.leaks[at] {
		s.leaks[at] = true
		p.Leaks++
	}
	if v.Tries > 0 {
		s.replies++
	}
	if !v.Parsed {
		p.Unparsed++
		s.strange = v.Reply
	}
}

// answer has one question answered.
func (s *judging) answer(ctx context.Context, q question) error {
	row := verdictRow{Name: q.c.Name, Kind: leakage, Action: q.hash}
	var v Verdict
	var err error
	if q.item < 0 {
		row.Kind = helpfulness
		v, err = s.judgeOptions.Judge.Helpfulness(ctx, q.c, q.action)
		if errors.Is(err, errNoScore) {
			v, err = Verdict{Parsed: true}, nil
		} else {
			row.Score = &v.Score
		}
	} else {
		row.Item = q.c.Trajectory.Items[q.item]
		v, err = s.judgeOptions.Judge.Leakage(ctx, q.c, q.action, q.item)
		row.Leaks = &v.Leaks
	}
	if err != nil {
		return err
	}
	row.Parsed, row.Tries, row.Reply, row.Prompt = v.Parsed, v.Tries, v.Reply, v.Prompt
	if err := s.journal.add(row); err != nil {
		return err
	}
	s.counter.step(func(p *progress) {
		if s.count(q.at, row); s.left[q.at] == 0 {
			p.Done++
		}
		err = s.checkReplies(patience)
	})
	return err
}

// checkReplies returns an error if there are enough replies, and none of them has a verdict.
func (s *judging) checkReplies(enough int) error {
	if s.AllowUnparsed || s.replies < enough || s.counter.now.Unparsed < s.replies {
		return nil
	}
	return fmt.Errorf("the judge gives no verdicts: none of %d replies has a line such as %q (the last one: %.80q): "+
		"want another judge or other prompts",
		s.replies, "Answer: Yes", strings.Join(strings.Fields(s.strange), " "))
}
