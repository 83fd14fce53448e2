package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/journal"
	"github.com/posttrain/posttrain/rollout"
)

// runAnswers asks the model under test for the answers that are not there yet, turn by turn.
func (e *benching) runAnswers(ctx context.Context) error {
	if e.none {
		return nil // the options need no answers
	}
	settings, asking, err := e.settingsOfAnswers(ctx)
	if err != nil {
		return err
	}
	s, err := Begin[Answer](e.store, StageAnswers, AnswersName, settings, e.Progress("answer", e.subject.Values), nil)
	if err != nil {
		return err
	}
	done, err := byItem(e.Items, s.Rows)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.Path(), err), s.Close())
	}
	turns := 0
	for i := range e.Items {
		n := e.Items[i].turns()
		turns = max(turns, n)
		s.Now.Total += n
	}
	s.Now.Done = len(s.Rows)
	return s.Run(ctx, func() error {
		for turn := range turns {
			if err := e.answerTurn(ctx, asking, s, done, turn); err != nil {
				return err
			}
		}
		return nil
	})
}

// settingsOfAnswers are what the answers depend on, besides the items.
func (e *benching) settingsOfAnswers(ctx context.Context) (settings map[string]string, a Asking, err error) {
	if e.Recorded != nil {
		return map[string]string{"kind": Recorded, "contents": hashRecorded(e.Items, e.Recorded)}, a, nil
	}
	if err := e.tryJudge(ctx); err != nil {
		return nil, a, err
	}
	if settings, err = e.o.Agent.identify(e.o.Seed); err != nil {
		return nil, a, err
	}
	maps.Copy(settings, e.Settings)
	_, missing := e.answers()
	return settings, e.subject.Asking(e.o.Seed), e.subject.Weigh(e.store, StageAnswers, settings, missing != nil)
}

// answerTurn gets the answers of a turn, counted from 0, that are not there yet, and adds them to done.
func (e *benching) answerTurn(ctx context.Context, a Asking, s *Stage[Answer], done map[string][]Answer,
	turn int) error {
	var todo []*Item
	before := map[string][]string{}
	for i := range e.Items {
		item := &e.Items[i]
		if turn >= item.turns() || len(done[item.ID]) > turn {
			continue
		}
		todo = append(todo, item)
		for _, a := range done[item.ID] {
			before[item.ID] = append(before[item.ID], e.text(a))
		}
	}
	add := func(row Answer) error {
		return s.Note(row, func(p *Progress) { p.Done++; done[row.ID] = append(done[row.ID], row) })
	}
	if e.Recorded != nil {
		for _, item := range todo {
			if err := add(Answer{ID: item.ID, Turn: turn + 1, Output: e.Recorded[item.ID][turn]}); err != nil {
				return err
			}
		}
		return nil
	}
	note := func(item *Item, talk rollout.Conversation, answer *rollout.Answer) (err error) {
		row := Answer{ID: item.ID, Turn: turn + 1, Prompt: hashMessages(talk.Messages), Reason: TooLong}
		if answer != nil {
			row.Output, row.Reason, row.Tokens = answer.Text, answer.Reason, answer.Tokens
			row.Opened, err = a.BeginsInside(talk)
		}
		return cmp.Or(err, add(row))
	}
	return Ask(ctx, a, todo, func(item *Item) (rollout.Conversation, error) {
		return e.conversation(item, before[item.ID]), nil
	}, note)
}

// byItem sorts answers by item, and refuses those of other items or in a wrong order.
func byItem(items []Item, rows []Answer) (map[string][]Answer, error) {
	turns, all := map[string]int{}, map[string][]Answer{}
	for _, item := range items {
		turns[item.ID] = item.turns()
	}
	for i, a := range rows {
		if a.Turn != len(all[a.ID])+1 || a.Turn > turns[a.ID] {
			return nil, fmt.Errorf("row %d: turn %d of %q is out of order or is there twice", i+1, a.Turn, a.ID)
		}
		all[a.ID] = append(all[a.ID], a)
	}
	return all, nil
}

// answers are those in the folder, which must be complete.
func (e *benching) answers() (map[string][]Answer, error) {
	if e.none {
		return nil, nil
	}
	rows, err := journal.Read[Answer](e.store.Path(AnswersName))
	if err != nil {
		return nil, err
	}
	settings, err := ReadSettings(e.store.Dir)
	if err == nil {
		err = e.store.SameCases(settings, StageAnswers)
	}
	if err != nil {
		return nil, err
	}
	all, err := byItem(e.Items, rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.store.Path(AnswersName), err)
	}
	for _, item := range e.Items {
		if len(all[item.ID]) < item.turns() {
			return nil, fmt.Errorf("%s: %d of %d questions are answered (first without: %s): the stage answers adds "+
				"the others", e.store.Path(AnswersName), len(all), len(e.Items), item.ID)
		}
	}
	return all, nil
}

// hashMessages names messages.
func hashMessages(messages []data.Message) string {
	if len(messages) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, m := range messages {
		fmt.Fprintf(sum, "%s\x00%s\x00", m.Role, m.Content)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// hashRecorded names the recorded answers to items.
func hashRecorded(items []Item, recorded map[string][]string) string {
	sum := sha256.New()
	for _, item := range items {
		fmt.Fprintf(sum, "%q", recorded[item.ID])
	}
	return fmt.Sprintf("sha256 %x", sum.Sum(nil)[:8])
}

// ReadAnswers reads recorded answers of one turn by id: lines of id and output, such as answers.jsonl of a run.
func ReadAnswers(path string) (map[string][]string, error) {
	all := map[string][]string{}
	err := data.ReadLines(path, func(line int, r struct {
		ID     string
		Output *string
		Opened bool `json:"think_opened"`
	}) error {
		if _, twice := all[r.ID]; twice || r.ID == "" || r.Output == nil {
			return fmt.Errorf("%s:%d: id %q is there twice or empty, or output is missing: want {\"id\": "+
				"\"3/control/17/1\", \"output\": TEXT}", path, line, r.ID)
		}
		all[r.ID] = []string{Answer{Output: *r.Output, Opened: r.Opened}.Whole()}
		return nil
	})
	return all, err
}
