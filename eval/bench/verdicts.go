package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// questions are those about all items, in the items' order.
func (e *benching) questions(answers map[string][]Answer) (all []Question, err error) {
	if e.Bench.Questions == nil {
		return nil, nil
	}
	found := Found{Answers: answers, text: e.text}
	for i, item := range e.Items {
		some, err := e.Bench.Questions(i, found.Outputs(item.ID))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item.ID, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// runJudge asks for the verdicts that are not there yet.
func (e *benching) runJudge(ctx context.Context) error {
	answers, err := e.answers()
	if err != nil {
		return err
	}
	questions, err := e.questions(answers)
	if err != nil {
		return err
	}
	if err := e.openClient(); err != nil {
		return err
	}
	err = e.judgeAll(ctx, questions)
	e.CloseBar() // before the usage is printed
	return cmp.Or(err, e.closeClient())
}

// settingsOfJudge are what the verdicts depend on, besides the answers and the prompts.
func (e *benching) settingsOfJudge() map[string]string {
	settings := map[string]string{"kind": e.Kind}
	if e.Rule == nil {
		settings = e.judge.Identify()
		settings["kind"] = "model"
	}
	maps.Copy(settings, e.Identity)
	return settings
}

func (e *benching) judgeAll(ctx context.Context, questions []Question) error {
	binds := func(v *Verdict, _ map[string]string) bool { return v.Parsed }
	tick := e.Progress("verdict", func(p Progress) map[string]float64 { return e.judge.Values(e.client, p) })
	s, err := Begin(e.store, StageJudge, VerdictsName, e.settingsOfJudge(), tick, binds)
	if err != nil {
		return err
	}
	replies := Replies{Form: e.Form}
	count := func(p *Progress, v Verdict) {
		if p.Done++; !v.Parsed {
			p.Unparsed++
		}
		if n := len(v.Replies); n > 0 {
			replies.Count(v.Replies[n-1], v.Parsed)
		}
	}
	s.Now.Total = len(questions)
	todo, err := unanswered(questions, s.Rows, func(v Verdict) { count(&s.Now, v) })
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.Path(), err), s.Close())
	}
	one := func(ctx context.Context, i int) error {
		v, err := e.ask(ctx, todo[i])
		if err != nil {
			return err
		}
		var fault error
		err = s.Note(v, func(p *Progress) { count(p, v); fault = replies.Check(Patience) })
		return cmp.Or(err, fault)
	}
	return s.Run(ctx, func() error {
		err := replies.Check(Patience)
		if err == nil {
			parallel := 1
			if e.Rule == nil { // the client sends about half as many: the others wait for a slow disk
				parallel = 2*e.judge.Parallel - 1
			}
			err = InParallel(ctx, parallel, len(todo), one)
		}
		return cmp.Or(err, replies.Check(1)) // at the end, a single reply without a verdict is enough
	})
}

// unanswered lists the questions without a verdict, and calls there for each verdict. Verdicts on something else are
// refused.
func unanswered(questions []Question, rows []Verdict, there func(Verdict)) (todo []Question, err error) {
	verdicts, err := byKey(rows)
	if err != nil {
		return nil, err
	}
	for _, q := range questions {
		v, done := verdicts[[2]string{q.ID, q.Key}]
		switch {
		case !done:
			todo = append(todo, q)
		case !slices.Equal(v.Prompt[:min(len(q.Messages), len(v.Prompt))], q.Messages):
			return nil, fmt.Errorf("the verdict on %s was given to another prompt or answer: name another --out DIR",
				q.ID)
		default:
			there(v)
			delete(verdicts, [2]string{q.ID, q.Key})
		}
	}
	if len(verdicts) > 0 {
		first := slices.MinFunc(slices.Collect(maps.Values(verdicts)),
			func(a, b Verdict) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Key, b.Key)) })
		return nil, fmt.Errorf("%d verdicts are on no question of this run (first: %s, %s): name another --out DIR",
			len(verdicts), first.ID, first.Key)
	}
	return todo, nil
}

// byKey finds verdicts by id and key.
func byKey(rows []Verdict) (map[[2]string]Verdict, error) {
	all := map[[2]string]Verdict{}
	for i, v := range rows {
		key := [2]string{v.ID, v.Key}
		if _, twice := all[key]; twice {
			return nil, fmt.Errorf("row %d: a verdict on %q that is there twice", i+1, v.ID)
		}
		all[key] = v
	}
	return all, nil
}

// ask asks once, and once more where the reply has no verdict.
func (e *benching) ask(ctx context.Context, q Question) (v Verdict, err error) {
	v = Verdict{ID: q.ID, Key: q.Key, Prompt: q.Messages}
	if e.Rule != nil {
		e.Rule(q, &v)
		return v, nil
	}
	for messages := q.Messages; ; {
		reply, err := e.client.Chat(ctx, messages)
		if err != nil {
			return v, err
		}
		v.Replies, v.Top, v.Cut = append(v.Replies, reply.Text), reply.Top, reply.Cut && reply.Top == nil
		if e.Read(q, reply, &v); v.Parsed || len(v.Replies) == 2 || e.Remind == nil {
			return v, nil
		}
		messages = e.Remind(messages, reply.Text)
	}
}

// openClient opens the client of the judge.
func (e *benching) openClient() (err error) {
	if e.client == nil && e.Rule == nil {
		e.client, err = e.judge.Open(e.store, e.TopLogprobs, e.Reporter.Warn)
	}
	return err
}

// tryJudge sends the judge one test question before answers are generated, so that a wrong URL, model name or key does
// not show hours later. A reply in the cache is good enough.
func (e *benching) tryJudge(ctx context.Context) error {
	if !e.asksJudge() {
		return nil
	}
	if _, err := e.answers(); err == nil { // nothing will be generated
		return nil
	}
	if err := e.openClient(); err != nil {
		return err
	}
	_, err := e.client.Ask(ctx, cmp.Or(e.Trial, "Reply with the word yes and nothing else."))
	return err
}

// closeClient waits for the requests under way, and reports what the judge was asked for.
func (e *benching) closeClient() error {
	c := e.client
	if e.client = nil; c == nil {
		return nil
	}
	return e.judge.CloseNamed("judge", c, e.store, e.Reporter)
}
