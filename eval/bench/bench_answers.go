package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/journal"
	"github.com/posttrain/posttrain/rollout"
)

// runAnswers asks the model under test for the answers that are not there yet, turn by turn.
func (e *benching) runAnswers(ctx context.Context) error {
	settings, asking := map[string]string{"kind": Recorded, "contents": hashRecorded(e.Items, e.Recorded)}, Asking{}
	if e.Recorded == nil {
		if err := e.tryJudge(ctx); err != nil {
			return err
		}
		var err error
		if settings, err = e.o.Agent.identify(e.o.Seed); err != nil {
			return err
		}
		asking = e.subject.Asking(e.o.Seed)
		_, missing := e.answers()
		if err := e.subject.Weigh(e.store, StageAnswers, settings, missing != nil); err != nil {
			return err
		}
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
		n := len(e.Items[i].Turns)
		turns = max(turns, n)
		s.Now.Total += n
	}
	s.Now.Done = len(s.Rows)
	s.Now.Calls, s.Now.TotalCalls = s.Now.Done, s.Now.Total
	return s.Run(ctx, func() error {
		for turn := range turns {
			if err := e.answerTurn(ctx, asking, s, done, turn); err != nil {
				return err
			}
		}
		return nil
	})
}

// answerTurn gets the answers of a turn, counted from 0, that are not there yet, and adds them to done.
func (e *benching) answerTurn(ctx context.Context, a Asking, s *Stage[Answer], done map[string][]Answer,
	turn int) error {
	var todo []*Item
	before := map[string][]string{}
	for i := range e.Items {
		item := &e.Items[i]
		if turn >= len(item.Turns) || len(done[item.ID]) > turn {
			continue
		}
		todo = append(todo, item)
		for _, a := range done[item.ID] {
			before[item.ID] = append(before[item.ID], a.Output)
		}
	}
	note := func(item *Item, talk rollout.Conversation, answer *rollout.Answer) error {
		row := Answer{ID: item.ID, Turn: turn + 1, Prompt: hashMessages(talk.Messages), Reason: TooLong}
		if answer != nil {
			row.Output, row.Reason = answer.Text, answer.Reason
		}
		if answer != nil && e.Recorded == nil {
			inside, err := a.BeginsInside(talk)
			if err != nil {
				return err
			}
			row.markThoughts(inside, e.Questions != nil)
		}
		return s.Note(row, func(p *Progress) {
			p.Done, p.Calls = p.Done+1, p.Calls+1
			done[item.ID] = append(done[item.ID], row)
		})
	}
	if e.Recorded == nil {
		return Ask(ctx, a, todo, func(item *Item) (rollout.Conversation, error) {
			return e.conversation(item, before[item.ID]), nil
		}, note)
	}
	for _, item := range todo {
		err := note(item, rollout.Conversation{}, &rollout.Answer{Text: e.Recorded[item.ID][turn]})
		if err != nil {
			return err
		}
	}
	return nil
}

// byItem sorts answers by item, and refuses those of other items or in a wrong order.
func byItem(items []Item, rows []Answer) (map[string][]Answer, error) {
	turns, all := map[string]int{}, map[string][]Answer{}
	for _, item := range items {
		turns[item.ID] = len(item.Turns)
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
		if len(all[item.ID]) < len(item.Turns) {
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
	}) error {
		if _, twice := all[r.ID]; twice || r.ID == "" || r.Output == nil {
			return fmt.Errorf("%s:%d: id %q is there twice or empty, or output is missing: want {\"id\": "+
				"\"3/control/17/1\", \"output\": TEXT}", path, line, r.ID)
		}
		all[r.ID] = []string{*r.Output}
		return nil
	})
	return all, err
}
