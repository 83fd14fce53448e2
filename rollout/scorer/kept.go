package scorer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/posttrain/posttrain/data/journal"
	"github.com/posttrain/posttrain/rollout/local"
)

// Kept are the scores of a list of answers, in a file that grows with each call of the source: what an interrupted
// process has scored, the next one takes.
type Kept struct {
	Scores []Score // of the first answers

	answers  []Answer
	together int
	file     *journal.Journal[keptRow]
	unscored int
	why      string // the last answer without a score has none
}

// keptRow is a line of the file: first what the scores are of, then those of the answers of a call.
type keptRow struct {
	Of     string  `json:"of,omitempty"`
	Scores []Score `json:"scores,omitempty"`
}

// Keep opens the file of the scores that a source of these options gives to answers, and takes those that are there.
// So many answers as together says, such as the two of a pair, are always in one call.
func Keep(path string, o Options, answers []Answer, together int) (*Kept, error) {
	file, rows, err := journal.Open[keptRow](path)
	if err != nil {
		return nil, err
	}
	k := &Kept{answers: answers, together: max(1, together), file: file}
	if err := k.open(o.identify(answers), rows); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return k, nil
}

func (k *Kept) open(of string, rows []keptRow) error {
	if len(rows) == 0 {
		return k.file.Add(keptRow{Of: of})
	}
	if rows[0].Of != of {
		return fmt.Errorf("%s has the scores of an interrupted run with other answers or another reward: remove it, "+
			"or name another --out", k.file.Path())
	}
	for _, row := range rows[1:] {
		if len(k.Scores)+len(row.Scores) > len(k.answers) {
			return fmt.Errorf("%s has more scores than there are answers: remove it", k.file.Path())
		}
		k.take(row.Scores)
	}
	return nil
}

// identify is a hash of what scores depend on.
func (o Options) identify(answers []Answer) string {
	h, j := sha256.New(), o.Judge
	enc := json.NewEncoder(h)
	_ = enc.Encode([]any{o.Kind, o.Command, j.BaseURL, j.APIVersion, j.Model, rubricText(j.Rubric), j.Range, j.MaxNew,
		o.CI, o.Model.Folder, weightsOf(o.Model.Folder)})
	for _, a := range answers {
		_ = enc.Encode([]any{a.Prompt, a.Response, a.Prefilled})
		if more := append(a.Prompt.Unwritten(), a.Response.Unwritten()...); more != nil {
			_ = enc.Encode(more)
		}
		if a.Item != nil {
			_ = enc.Encode([][]string{a.Item.Required(), a.Item.Restricted()})
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// rubricText is the text of a rubric, which may change under its name.
func rubricText(path string) string {
	if path == "" {
		return builtIn
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return path // readRubric has an error for it
	}
	return string(text)
}

// weightsOf is the hash of a reward model, which may be trained again in its folder; "" without one.
func weightsOf(folder string) string {
	if folder == "" {
		return ""
	}
	m, _, err := local.LoadReward(folder)
	if err != nil {
		return "" // openModel has an error for it
	}
	defer m.Release()
	hash, err := m.Hash()
	if err != nil {
		return ""
	}
	return hash
}

func (k *Kept) take(scores []Score) {
	k.Scores = append(k.Scores, scores...)
	for _, s := range scores {
		if s.Why != "" {
			k.unscored, k.why = k.unscored+1, s.Why
		}
	}
}

// Unscored counts the answers without a score, and says why the last of them has none.
func (k *Kept) Unscored() (n int, why string) { return k.unscored, k.why }

// Path is the file's.
func (k *Kept) Path() string { return k.file.Path() }

// Score asks a source for the scores that are missing. A call's scores are in the file before tick hears how many
// answers are done. More than half of the answers without a score are an error; where the context has ended, the error
// is its cause.
func (k *Kept) Score(ctx context.Context, s Source, tick func(done int)) error {
	for done := len(k.Scores); done < len(k.answers); done = len(k.Scores) {
		n := min(max(k.together, s.Batch()/k.together*k.together), len(k.answers)-done)
		scores, err := s.Score(ctx, k.answers[done:][:n])
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			err = check(k.answers[done:][:n], scores)
		}
		if err == nil {
			err = k.file.Add(keptRow{Scores: scores})
		}
		if err != nil {
			return err
		}
		if k.take(scores); 2*k.unscored > len(k.Scores) {
			return fmt.Errorf("%d of the first %d answers have no score: %s", k.unscored, len(k.Scores), k.why)
		}
		tick(len(k.Scores))
	}
	return nil
}

// check refuses scores that no pair can be made with.
func check(answers []Answer, scores []Score) error {
	if len(scores) != len(answers) {
		return fmt.Errorf("the reward gave %d scores for %d answers from %s on", len(scores), len(answers),
			answers[0].Source)
	}
	for i, s := range scores {
		if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
			return fmt.Errorf("the reward gave the score %v to an answer of %s: want a finite number", s.Value,
				answers[i].Source)
		}
	}
	return nil
}

// Close makes the scores durable.
func (k *Kept) Close() error { return k.file.Close() }

// Remove removes the file.
func (k *Kept) Remove() error { return os.Remove(k.file.Path()) }
