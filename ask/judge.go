package ask

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/reward"
)

// Score is what an answer is worth.
type Score struct {
	Value   float64            `json:"value"`             // finite
	Each    []float64          `json:"parts,omitempty"`   // of several judges: the value of each, without its weight
	Without []int              `json:"without,omitempty"` // of several judges: those that the answer is not for
	Missing string             `json:"why,omitempty"`     // why there is no value; "": there is one
	Fault   string             `json:"fault,omitempty"`   // how the answer breaks the format; "": it is right
	Parts   map[string]float64 `json:"numbers,omitempty"` // what is logged beside the value, by name
}

// NotItsOwn is why a reward has no value where it says that an answer is not for it.
const NotItsOwn = "the reward is null: the answer is not for it"

// Skips says that the answer is not for judge k of several.
func (s Score) Skips(k int) bool { return slices.Contains(s.Without, k) }

// Judge scores answers. The same answer has the same score.
type Judge interface {
	// Score gives a score for each answer [n], of which To is set. Its error says in one line what is wrong with the
	// judge.
	Score(ctx context.Context, answers []Answer) ([]Score, error)
	// Batch is how many answers one call should have.
	Batch() int
	Close() error
}

// Rule is a judge that is a function of the question and the answer's text. It costs nothing.
type Rule func(q *Question, text string) Score

// Batch is large.
func (Rule) Batch() int   { return 4096 }
func (Rule) Close() error { return nil }

func (r Rule) Score(_ context.Context, answers []Answer) ([]Score, error) {
	scores := make([]Score, len(answers))
	for i := range answers {
		scores[i] = r(answers[i].To, answers[i].Text)
	}
	return scores, nil
}

// Keywords is the contextual-integrity reward R, in [-1, 1] with weights of 1.
func Keywords(o reward.Options) Rule {
	return func(q *Question, text string) Score {
		if q.Item == nil {
			return Score{Missing: "the reward ci scores answers to contextual-integrity items alone, and the prompt " +
				"has no item"}
		}
		s := reward.Evaluate(reward.Of(q.Item), text, q.Thinks(), o)
		return Score{Value: s.Reward, Fault: s.Fault, Parts: s.Parts()}
	}
}

// Judged asks a judge for the scores of answers [n], as many in a call as it wants, and refuses scores that nothing can
// be learnt from.
func Judged(ctx context.Context, j Judge, answers []Answer) (scores []Score, err error) {
	for part := range slices.Chunk(answers, j.Batch()) {
		some, err := j.Score(ctx, part)
		if err == nil {
			err = checkScores(part, some)
		}
		if err != nil {
			return nil, err
		}
		scores = append(scores, some...)
	}
	return scores, nil
}

// checkScores refuses scores that nothing can be learnt from.
func checkScores(answers []Answer, scores []Score) error {
	if len(scores) != len(answers) {
		return fmt.Errorf("the reward gave %d scores for %d answers from %s on", len(scores), len(answers),
			answers[0].To.Source)
	}
	for i, s := range scores {
		for _, x := range append([]float64{s.Value}, s.Each...) {
			if wide := float64(float32(x)); math.IsNaN(wide) || math.IsInf(wide, 0) {
				return fmt.Errorf("the reward of a completion of %s is %v: want a finite number of float32; the "+
					"completion begins %q", answers[i].To.Source, x, fault.Beginning(answers[i].Text, 200))
			}
		}
	}
	return nil
}

// LeftOut counts the values that are left out of sums, as the answers are not for their judges.
func LeftOut(scores []Score) (n int) {
	for _, s := range scores {
		n += len(s.Without)
	}
	return n
}

// Unscored counts the scores without a value, and says why the last of them has none.
func Unscored(scores []Score) (n int, why string) {
	for _, s := range scores {
		if s.Missing != "" {
			n, why = n+1, s.Missing
		}
	}
	return n, why
}

// Lost is Unscored of what a judge should have scored: without the answers that are not for it.
func Lost(scores []Score) (n int, why string) {
	return Unscored(slices.DeleteFunc(slices.Clone(scores), func(s Score) bool { return s.Missing == NotItsOwn }))
}
