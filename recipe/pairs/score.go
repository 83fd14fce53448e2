package pairs

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// ScoreCommand is the command that runs Score.
const ScoreCommand = "data score"

// ScoreOptions say which pairs are scored, and by whom. Paths are relative to the working directory.
type ScoreOptions struct {
	Data    string         `yaml:"data" want:"given" hub:"data" words:"pairs: a .jsonl, .json, .parquet, .csv or .tsv file (also .gz)" flag:"data" help:"pairs: a .jsonl, .json, .parquet, .csv or .tsv file, each also with .gz, or org/name[@revision][:config][:split] on the hub"`
	Columns []string       `yaml:"columns,omitempty" words:"names such as prompt=question" flag:"columns" help:"columns by other names in the data, such as prompt=question,chosen=response_a"`
	Out     string         `yaml:"out" want:"given" words:"a file to write: .jsonl or .json (also .gz)" flag:"out" help:"file to write: .jsonl or .json, each also with .gz"`
	Reward  scorer.Options `yaml:"reward"`
}

// ScoreSpec says how a configuration becomes ScoreOptions.
var ScoreSpec = config.Register(&config.Spec[ScoreOptions]{
	Command: ScoreCommand,
	Without: []string{"reward.ci.format", "reward.ci.match"},
})

// Validate refuses a reward that pairs say nothing for.
func (o *ScoreOptions) Validate(g *config.Given) {
	if o.Reward.Has(scorer.CI) {
		g.Fault("reward.kind", "reward.kind ci: pairs say nothing of the items that this reward scores by: want "+
			"command or judge")
	}
	g.Take(data.CheckColumns(o.Columns)...)
	g.Take(recipe.CheckOut("out", o.Out)...)
}

// Score scores both answers of each pair, and writes the pairs with their scores to ScoreOptions.Out. Beside it, scores
// are kept until all are there: an interrupted run continues with the same options. A nil Reporter is silent.
func Score(ctx context.Context, o ScoreOptions, r run.Reporter) (*Result, error) {
	if err := ScoreSpec.Verify(&o); err != nil {
		return nil, err
	}
	r = run.Listen(r)
	pairs, report, err := data.ReadPreferences(o.Data, data.PreferenceOptions{Columns: o.Columns})
	if err != nil {
		return nil, err
	}
	report.Unread = nil // the reward gets all columns
	r.Say("%s", report)
	rows := data.ColumnsByPlace(o.Data, o.Columns...)
	source, err := scorer.Open(o.Reward, scorer.Caller{Cache: o.Out + ".replies", Warn: r.Warn, Say: r.Say})
	if err != nil {
		return nil, err
	}
	defer source.Close()
	var all []ask.Answer
	for _, p := range pairs {
		q := &ask.Question{Prompt: p.Prompt, Source: p.Source, Row: rows[p.Source]}
		for _, said := range []data.Text{p.Chosen, p.Rejected} {
			a := ask.Answer{To: q, Said: said}
			a.Text = said.Last()
			all = append(all, a)
		}
	}
	kept, err := score(ctx, r, source, o.Reward, o.Out, all, 2)
	if err != nil {
		return nil, err
	}
	for i := range pairs {
		p, chosen, rejected := &pairs[i], kept.Done[2*i], kept.Done[2*i+1]
		p.ChosenScore, p.RejectedScore = chosen.Value, rejected.Value
		p.Scored = chosen.Missing == "" && rejected.Missing == ""
	}
	if err := data.WriteAll(o.Out, pairs); err != nil {
		return nil, err
	}
	return &Result{Pairs: pairs, Summary: summarize(o.Out, pairs, kept.Done)}, kept.Remove()
}

// score lets a reward score answers, and keeps the scores in a file beside out; together is how many are of one prompt.
func score(ctx context.Context, r run.Reporter, source ask.Judge, o scorer.Options, out string,
	all []ask.Answer, together int) (*ask.Kept[ask.Score], error) {
	kept, err := o.Scores(ctx, r, out+".scores", source, all, together)
	if ctx.Err() != nil && kept != nil {
		err = fmt.Errorf("%w: %d of %d answers are scored; the same command continues", recipe.ErrInterrupted,
			len(kept.Done), len(all))
	}
	return kept, err
}

// leftOut says how many rewards were left out of sums.
func leftOut(scores []ask.Score) string {
	if n := ask.LeftOut(scores); n > 0 {
		return fmt.Sprintf("%d scores are null, and left out of the sums: the answers are not for these rewards\n", n)
	}
	return ""
}

// summarize says how many pairs have scores, and which.
func summarize(out string, pairs []data.Preference, scores []ask.Score) string {
	var scored []data.Preference
	higher, equal := 0, 0
	for _, p := range pairs {
		if !p.Scored {
			continue
		}
		scored = append(scored, p)
		if p.ChosenScore > p.RejectedScore {
			higher++
		} else if p.ChosenScore == p.RejectedScore {
			equal++
		}
	}
	text := fmt.Sprintf("%s: %d pairs, %d scored: chosen scores higher in %d, the same in %d, lower in %d\n", out,
		len(pairs), len(scored), higher, equal, len(scored)-higher-equal)
	return text + unscored(scores) + leftOut(scores) + gaps(scored)
}

// unscored says how many answers have no score, and why the last has none.
func unscored(scores []ask.Score) string {
	if n, why := ask.Unscored(scores); n > 0 {
		return fmt.Sprintf("%d answers have no score; the last: %s\n", n, why)
	}
	return ""
}
