package privacylens

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/journal"
	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/rollout"
)

// actionOptions say how the model under test is asked for its actions. One whose prompt does not fit is no action.
type actionOptions struct {
	bench.Asking
	rollout.Sampling // the published runs: temperature 0.7, 7000 new tokens

	Prompts agentPrompter
	Reading reading
	Prefill string // how answers begin; not with a server
}

// Conversation puts a case to the model. The seed of its draws depends on the case's name, not on its place.
func (o *actionOptions) Conversation(c *lens.Case) (rollout.Conversation, error) {
	text, err := o.Prompts(c)
	return rollout.Conversation{
		Messages: []data.Message{{Role: "user", Content: text}}, Prefill: o.Prefill,
		Sampling: o.Sampling, Seed: bench.SeedOf(o.Seed, c.Name),
	}, err
}

// Actions asks the model under test for the actions that are not there yet.
func (r *store) Actions(ctx context.Context, o actionOptions) error {
	s, err := r.beginActions(o.Settings, o.Tick)
	if err != nil {
		return err
	}
	todo, n := r.casesWithout(s.Rows), len(r.Cases)
	s.Now = bench.Progress{Done: n - len(todo), Total: n, Calls: n - len(todo), TotalCalls: n}
	note := func(c *lens.Case, talk rollout.Conversation, answer *rollout.Answer) error {
		row := ActionRow{Name: c.Name, Prompt: Hash(talk.Messages[0].Content), Reason: TooLong}
		if answer != nil {
			row.Output, row.Reason = answer.Text, answer.Reason
			inside, err := o.BeginsInside(talk)
			if err != nil {
				return err
			}
			final, closed := o.Reading.Final(row.Output, inside)
			row.FinalAction, row.Unclosed = final, !closed
		}
		return s.Note(row, func(p *bench.Progress) { p.Done++; p.Calls++ })
	}
	return s.Run(ctx, func() error { return bench.Ask(ctx, o.Asking, todo, o.Conversation, note) })
}

// pending is the number of cases without an action.
func (r *store) pending() (int, error) {
	rows, err := journal.Read[ActionRow](r.Path(actionsName))
	return len(r.casesWithout(rows)), err
}

// casesWithActions lists the cases that have an action in a run's folder, in which no action may be missing.
func casesWithActions(dir string, cases []lens.Case) ([]lens.Case, error) {
	rows, err := journal.Read[ActionRow](filepath.Join(dir, actionsName))
	settings, settingsErr := bench.ReadSettings(dir)
	if err := cmp.Or(err, settingsErr); err != nil {
		return nil, err
	}
	wanted := 1
	fmt.Sscanf(settings[StageActions]["cases"], "%d,", &wanted) // 1 where it does not say
	if len(rows) < wanted {
		return nil, fmt.Errorf("%s: %d of %d actions are there: the stage actions adds the others",
			filepath.Join(dir, actionsName), len(rows), wanted)
	}
	there := map[string]string{}
	for _, row := range rows {
		there[row.Name] = row.FinalAction
	}
	return withActions(cases, there), nil
}

// casesWithout lists the cases that have no row.
func (r *store) casesWithout(rows []ActionRow) (todo []*lens.Case) {
	done := map[string]bool{}
	for _, row := range rows {
		done[row.Name] = true
	}
	for i := range r.Cases {
		if !done[r.Cases[i].Name] {
			todo = append(todo, &r.Cases[i])
		}
	}
	return todo
}
