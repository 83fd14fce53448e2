package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Replay is the kind of judge whose verdicts are recorded.
const Replay = "replay"

// replay are recorded verdicts in the place of a judge's.
type replay struct {
	path     string
	released bool // in the form of the benchmark's authors, with their prompts
	rows     []Verdict
	verdicts map[[2]string]Verdict // by id and key
}

// IsVerdicts says whether a file begins as verdicts.jsonl of a run does.
func IsVerdicts(path string) bool {
	var row struct{ ID, Key *string }
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return json.NewDecoder(file).Decode(&row) == nil && row.ID != nil && row.Key != nil
}

// readReplay reads recorded verdicts in the place of a judge: verdicts.jsonl of a run, or what Released reads. Where the
// run is of the first questions, verdicts on the others are left out.
func (e *evaluation) readReplay(path string) (err error) {
	r := &replay{path: path, released: e.Released != nil && !IsVerdicts(path)}
	read := readVerdicts
	if r.released {
		read = e.Released
	}
	if r.rows, err = read(path); err != nil {
		return err
	}
	if r.verdicts, err = byKey(r.rows); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	strange := slices.IndexFunc(r.rows, func(v Verdict) bool {
		return !slices.ContainsFunc(e.Items, func(item Item) bool { return item.ID == v.ID })
	})
	if strange >= 0 && e.o.First == 0 {
		return fmt.Errorf("%s: a verdict on %q, which is no item of the data: want verdicts on the same data", path,
			r.rows[strange].ID)
	}
	e.replay, e.Rule, e.Kind = r, r.rule, Replay
	return nil
}

// readVerdicts reads verdicts of a run.
func readVerdicts(path string) (rows []Verdict, err error) {
	err = data.ReadLines(path, func(line int, v Verdict) error {
		if rows = append(rows, v); v.ID == "" {
			return fmt.Errorf("%s:%d: id is missing: want id, key, verdict, score and parsed, as verdicts.jsonl of a "+
				"run has them", path, line)
		}
		return nil
	})
	return rows, err
}

// CheckName wants a name that released judgements have to be the run's, where both have one.
func CheckName(key, found, want string) error {
	if found == "" || want == "" || found == want {
		return nil
	}
	return fmt.Errorf("%s is %q: want judgements with %q, which this run is of", key, found, want)
}

// check wants a verdict on each question, which was given to the same answers, if there are answers.
func (r *replay) check(questions []Question, outputs func(id string) []string) error {
	var missing []Question
	for _, q := range questions {
		v, found := r.verdicts[[2]string{q.ID, q.Key}]
		texts := outputs(q.ID)
		switch {
		case !found:
			missing = append(missing, q)
		case texts != nil && len(v.Prompt) > 0 && !r.sees(v, q, texts):
			return fmt.Errorf("%s: the verdict on %s was given to another prompt or answer: want the answers, and the "+
				"judge's prompts, that belong to it", r.path, q.ID)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: %d of %d questions have no verdict (first: %s): want one on each", r.path, len(missing),
			len(questions), strings.TrimSuffix(missing[0].ID+", "+missing[0].Key, ", "))
	}
	return nil
}

// sees says whether a verdict was given to the question. Of a released one the prompt, if the file has it, has an answer.
func (r *replay) sees(v Verdict, q Question, outputs []string) bool {
	asked := v.Prompt[len(v.Prompt)-1].Content
	return asked == "" || slices.Equal(v.Prompt, q.Messages) || r.released && slices.ContainsFunc(outputs,
		func(text string) bool { return strings.Contains(asked, strings.TrimSpace(text)) })
}

// rule gives the recorded verdict.
func (r *replay) rule(q Question, v *Verdict) {
	*v = r.verdicts[[2]string{q.ID, q.Key}]
	v.Prompt = q.Messages
}
