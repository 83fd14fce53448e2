package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
)

// Cost is what the model under test took for a case, all of its turns together; 0: not known, or not asked.
type Cost struct {
	Requests     float64 `json:"requests"`
	PromptTokens float64 `json:"prompt_tokens,omitempty"`
	Tokens       float64 `json:"tokens,omitempty"` // that it wrote
	// of waiting for its answers, of which those that a local model gives together share their time
	Seconds float64 `json:"time/answers,omitempty"`
}

// readCost reads what a run of a number of cases has cost.
func readCost(dir string, cases int) (c Cost, err error) {
	answers, err := run.ReadJournal[Answer](filepath.Join(dir, AnswersName))
	for _, a := range answers {
		if a.Prompt != "" && a.Reason != TooLong {
			c.Requests, c.PromptTokens, c.Tokens = c.Requests+1, c.PromptTokens+float64(a.Asked), c.Tokens+float64(a.Tokens)
		}
	}
	if s := readSpent(dir); s.Answers > 0 {
		c.Seconds = s.Seconds / float64(s.Answers) * c.Requests
	}
	n := float64(cases)
	return Cost{c.Requests / n, c.PromptTokens / n, c.Tokens / n, c.Seconds / n}, err
}

// cells are the cells of a row of the table.
func (c Cost) cells() (cells string) {
	for _, x := range []float64{c.Requests, c.PromptTokens, c.Tokens, c.Seconds} {
		if cells += "\t-"; x > 0 {
			cells = fmt.Sprintf("%s%.1f", cells[:len(cells)-1], x)
		}
	}
	return cells
}

// spent is how long the model under test took for some of its answers: what a call took that was killed is not in it.
type spent struct {
	Answers int     `json:"answers"`
	Seconds float64 `json:"time/answers"`
}

// save adds what earlier calls took. The run does without it.
func (s *spent) save(dir string) {
	if before := readSpent(dir); s.Answers > 0 {
		_ = data.WriteJSON(filepath.Join(dir, timeName), spent{before.Answers + s.Answers, before.Seconds + s.Seconds})
	}
}

// readSpent reads what earlier calls have spent; a file that is missing or damaged says nothing.
func readSpent(dir string) (s spent) {
	text, err := os.ReadFile(filepath.Join(dir, timeName))
	if err != nil || json.Unmarshal(text, &s) != nil {
		return spent{}
	}
	return s
}
