package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout/metered"
	"github.com/posttrain/posttrain/rollout/remote"
)

// UsageName is the file that says what all calls of the command have asked the judge for, by the judge's name.
const UsageName = "usage.json"

// questions are those about all items, in the items' order.
func (e *evaluation) questions(answers map[string][]Answer) (all []Question, err error) {
	if e.Protocol.Questions == nil {
		return nil, nil
	}
	found := Found{Answers: answers, text: e.text}
	for i, item := range e.Items {
		some, err := e.Protocol.Questions(i, found.Outputs(item.ID))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item.ID, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// runJudge asks for the verdicts that are not there yet.
func (e *evaluation) runJudge(ctx context.Context) error {
	answers, err := e.answers()
	if err != nil {
		return err
	}
	questions, err := e.questions(answers)
	if err == nil && e.replay != nil {
		err = e.replay.check(questions, (&Found{Answers: answers, text: e.text}).Outputs)
	}
	if err = cmp.Or(err, e.openClient()); err != nil {
		return err
	}
	err = e.judgeAll(ctx, questions)
	e.closeBar() // before the usage is printed
	return cmp.Or(err, e.closeClient())
}

// settingsOfJudge are what the verdicts depend on, besides the answers and the prompts.
func (e *evaluation) settingsOfJudge() map[string]string {
	settings := map[string]string{"kind": e.Kind}
	if e.replay != nil {
		settings["verdicts"] = HashCases(e.replay.rows)
	}
	if j := e.judge; e.Rule == nil {
		settings = map[string]string{"kind": "model", "model": j.Model, "base_url": strings.TrimRight(j.BaseURL, "/"),
			"max_new_tokens": fmt.Sprint(j.MaxNew)}
		if j.ThinkOpened {
			settings["think_opened"] = "true"
		}
	}
	maps.Copy(settings, e.Identity)
	return settings
}

// nameOfJudge are the settings by which a report says who has judged; none where the options name no judge.
func (e *evaluation) nameOfJudge() map[string]string {
	if e.Rule == nil && e.judge.Model == "" {
		return nil
	}
	all := e.settingsOfJudge()
	maps.DeleteFunc(all, func(key, _ string) bool { return !slices.Contains([]string{"kind", "model", "verdicts"}, key) })
	return all
}

func (e *evaluation) judgeAll(ctx context.Context, questions []Question) error {
	s, err := begin(e, StageJudge, VerdictsName, e.settingsOfJudge(), e.progress("verdict", e.usage),
		func(v Verdict) bool { return v.Parsed })
	if err != nil {
		return err
	}
	asked := replies{form: e.Form}
	count := func(p *Progress, v Verdict) {
		if p.Done++; !v.Parsed {
			p.Unparsed++
		}
		if n := len(v.Replies); n > 0 {
			asked.count(v.Replies[n-1], v.Parsed)
		}
	}
	s.Now.Total = len(questions)
	todo, err := unanswered(questions, s.Rows, func(v Verdict) { count(&s.Now, v) })
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.Path(), err), s.Close())
	}
	parallel := 1
	if e.Rule == nil { // the client sends about half as many: the others wait for a slow disk
		parallel = 2*e.judge.Parallel - 1
	}
	return s.run(ctx, func() error {
		err := asked.check(patience)
		if err == nil {
			err = remote.InParallel(ctx, parallel, len(todo), func(ctx context.Context, i int) (fault error) {
				v, err := e.ask(ctx, todo[i])
				if err == nil {
					err = s.note(v, func(p *Progress) { count(p, v); fault = asked.check(patience) })
				}
				return cmp.Or(err, fault)
			})
		}
		return cmp.Or(err, asked.check(1)) // at the end, a single reply without a verdict is enough
	})
}

// patience is the number of replies without a single verdict that stops a judge's stage.
const patience = 10

// replies counts a judge's replies, with the replies of earlier calls.
type replies struct {
	form          string // such as "Answer: Yes", for the error
	all, unparsed int
	strange       string // the last reply without a verdict
}

func (r *replies) count(reply string, parsed bool) {
	r.all++
	if !parsed {
		r.unparsed++
		r.strange = reply
	}
}

// check returns an error if there are enough replies, and no verdict among them.
func (r *replies) check(enough int) error {
	if r.all < enough || r.unparsed < r.all {
		return nil
	}
	return fmt.Errorf("the judge gives no verdicts: none of %d replies has a line such as %q (the last one: %.80q): "+
		"want another judge or other prompts", r.all, r.form, strings.Join(strings.Fields(r.strange), " "))
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

// ask asks once, and once more where the reply has no verdict. What the server's filter refuses has none.
func (e *evaluation) ask(ctx context.Context, q Question) (v Verdict, err error) {
	v = Verdict{ID: q.ID, Key: q.Key, Prompt: q.Messages}
	if e.Rule != nil {
		e.Rule(q, &v)
		return v, nil
	}
	for messages := q.Messages; ; {
		reply, err := e.client.Again(ctx, messages, q.Again)
		failed, ok := errors.AsType[*remote.Error](err)
		switch {
		case ok && failed.Kind == remote.Filtered:
			v.Refused = failed.Error()
			e.reporter.Warn("%s: %v: it has no verdict", q.ID, failed)
			return v, nil
		case ok && failed.Kind == remote.Refused:
			return v, fmt.Errorf("%s: %w", q.ID, err)
		case err != nil:
			return v, err
		}
		v.Replies, v.Top, v.Cut = append(v.Replies, reply.Text), reply.Top, reply.Cut && reply.Top == nil
		if e.Read(q, reply, &v); v.Parsed || len(v.Replies) == 2 || e.Remind == nil {
			return v, nil
		}
		messages = e.Remind(messages, reply.Text)
	}
}

// openClient opens the judge's client, with its cache in the run folder unless the options name another. The run's own
// has the replies of this server alone: the server may change as long as there is no verdict.
func (e *evaluation) openClient() (err error) {
	if e.client != nil || e.Rule != nil {
		return nil
	}
	o := e.judge
	o.Name, o.TopLogprobs, o.Warn = "judge", e.TopLogprobs, e.reporter.Warn
	o.Cache, o.OfServer = cmp.Or(o.Cache, e.path("judge-cache.jsonl")), o.Cache == ""
	e.client, err = metered.Open(o)
	return err
}

// tryJudge sends the judge one test question before answers are generated, so that a wrong URL, model name or key does
// not show hours later. A reply in the cache is good enough.
func (e *evaluation) tryJudge(ctx context.Context) error {
	if !e.asksJudge() {
		return nil
	}
	if _, err := e.answers(); err == nil { // nothing will be generated
		return nil
	}
	err := e.openClient()
	if err == nil {
		_, err = e.client.Ask(ctx, cmp.Or(e.Trial, "Reply with the word yes and nothing else."))
	}
	return err
}

// usage is what the progress bar shows of the judge: its requests and, if prices are set, the cost.
func (e *evaluation) usage(Progress) map[string]float64 {
	values := map[string]float64{}
	if e.client != nil {
		t := e.client.Stats()
		values["requests"] = float64(t.Requests)
		if e.judge.HasPrice() {
			values["cost"] = t.Cost
		}
	}
	return values
}

// closeClient waits for the requests under way, adds the usage of this call to the earlier calls' in usage.json, and
// reports both.
func (e *evaluation) closeClient() error {
	if e.client == nil {
		return nil
	}
	err, t := e.client.Close(), e.client.Stats()
	if e.client = nil; t.Replies+t.Requests == 0 {
		return err
	}
	var all map[string]metered.Stats
	path := e.path(UsageName)
	text, fault := os.ReadFile(path)
	if fault == nil {
		fault = json.Unmarshal(text, &all)
	}
	if fault != nil && !errors.Is(fault, fs.ErrNotExist) {
		e.reporter.Warn("%s cannot be read: a new one is begun", path)
	}
	if fault != nil || all == nil {
		all = map[string]metered.Stats{}
	}
	before := all[e.judge.Model]
	all[e.judge.Model] = before.Plus(t)
	e.reporter.Say("judge: %s", describe(e.judge, t))
	if before.Requests > 0 {
		e.reporter.Say("judge, with earlier calls: %s", describe(e.judge, all[e.judge.Model]))
	}
	return errors.Join(err, data.WriteJSON(path, all))
}

func describe(j metered.Options, t metered.Stats) string {
	cost := ""
	if j.HasPrice() {
		cost = fmt.Sprintf(", cost %.4g", t.Cost)
	}
	return fmt.Sprintf("%d replies, %d of them from the cache; %d requests, %d of them further tries; "+
		"%d tokens of prompts, %d of replies%s",
		t.Replies, t.Cached, t.Requests, t.Retried, t.PromptTokens, t.CompletionTokens, cost)
}
