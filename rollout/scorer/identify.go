package scorer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/local"
)

// Scores asks the judge of these options for the scores of answers, which are kept in a file, see [ask.Scores].
func (o Options) Scores(ctx context.Context, r run.Reporter, path string, j ask.Judge, answers []ask.Answer,
	together int) (*ask.Kept[ask.Score], error) {
	return ask.Scores(ctx, r, path, o.identify(answers), j, answers, together)
}

// identify is a hash of what scores depend on.
func (o Options) identify(answers []ask.Answer) string {
	h, j := sha256.New(), o.Judge
	enc := json.NewEncoder(h)
	_ = enc.Encode([]any{o.Kind, o.Command, j.BaseURL, j.APIVersion, j.Model, rubricText(j.Rubric), j.Range, j.MaxNew,
		o.CI, o.Model.Folder, weightsOf(o.Model.Folder)})
	if len(o.Weights) > 0 || o.Has(Exact) || o.Has(Pattern) {
		_ = enc.Encode([]any{o.Weights, o.FunctionOptions})
	}
	if o.Model.Plain == "text" {
		_ = enc.Encode(o.Model.Plain)
	}
	for i := range answers {
		q, response := answers[i].To, answers[i].Response()
		_ = enc.Encode([]any{q.Prompt, response, q.Opened})
		if more := append(q.Prompt.Unwritten(), response.Unwritten()...); more != nil {
			_ = enc.Encode(more)
		}
		if len(q.Row) > 0 {
			_ = enc.Encode(q.Row)
		}
		if q.Item != nil {
			_ = enc.Encode([][]string{q.Item.Required(), q.Item.Restricted()})
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

// weightsOf is the hash of a reward model, which may be trained again in its folder; "" without one, and where opening
// it will say what is wrong.
func weightsOf(folder string) (hash string) {
	if folder == "" {
		return ""
	}
	m, _, err := local.LoadReward(folder)
	if err == nil {
		defer m.Release()
		hash, _ = m.Hash()
	}
	return hash
}
