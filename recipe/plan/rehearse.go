package plan

import (
	"context"
	"errors"
	"fmt"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
)

// examined is the number of rows whose tokens are examined.
const examined = 1000

// bare says that the row is text without a prompt.
func (r row) bare() bool { return r.demo.Prompt.Empty() && !r.demo.Completion.IsChat() }

// open reads what makes tokens, without the weights.
func open(p *recipe.Rehearsal) (*examiner, error) {
	m, t, err := local.LoadWeightless(p.Model)
	if err != nil {
		return nil, err
	}
	if err := p.Chat.Apply(t, p.Adapter); err != nil {
		return nil, err
	}
	return &examiner{Rehearsal: p, config: m.Config, tokenizer: t}, nil
}

// Rehearsal says what one found.
type Rehearsal struct {
	Examined int       `json:"examined"` // rows whose tokens were looked at
	Findings []Finding `json:"findings"`
}

// Rehearse examines the tokens of a run's rows. The error is about what could not be read; what is wrong with rows is a
// finding.
func Rehearse(ctx context.Context, p *recipe.Rehearsal) (*Rehearsal, error) {
	if p.Limits.Truncate == "" {
		p.Limits = batch.Defaults()
	}
	if len(p.Rows) == 0 {
		return nil, errors.New("the data have no answer that is to be learnt")
	}
	x, err := open(p)
	if err != nil {
		return nil, err
	}
	rows, err := x.encode(spread(p.Rows))
	if err != nil {
		return nil, err
	}
	for _, one := range rows {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: nothing was written", recipe.ErrInterrupted)
		}
		x.examine(one)
	}
	return &Rehearsal{Examined: len(rows), Findings: x.findings}, nil
}

// spread takes the rows that are examined, from all over the data.
func spread(rows []data.Demonstration) []data.Demonstration {
	n := min(len(rows), examined)
	some := make([]data.Demonstration, n)
	for i := range some {
		some[i] = rows[i*len(rows)/n]
	}
	return some
}

// Err is an error where faults were found; nil: none.
func (r *Rehearsal) Err() error {
	if len(r.Findings) == 0 {
		return nil
	}
	return fmt.Errorf("the rehearsal found %s, listed above", recipe.Count(len(r.Findings), "fault"))
}

// String is the result in words.
func (r *Rehearsal) String() string {
	if len(r.Findings) == 0 {
		return fmt.Sprintf("The tokens of %s are right.\n", recipe.Count(r.Examined, "row"))
	}
	text := ""
	for _, f := range r.Findings {
		text += "fault: " + f.String() + "\n"
	}
	return text
}
