package plan

import "github.com/posttrain/posttrain/recipe"

// Time is how long a run takes, in seconds.
type Time struct {
	Likely float64 `json:"likely_seconds"`
	Least  float64 `json:"least_seconds"`
	Most   float64 `json:"most_seconds"`
	Rate   float64 `json:"flops_per_second"` // of a matrix product of the model's shape, measured now
	Flops  float64 `json:"flops"`            // of the run's products, without sampling

	Sampling float64 `json:"sampling_seconds"` // of Likely
}

// Of the time that a plan expects, what runs took at least and at most; see docs/runs.md.
const (
	leastShare = 0.4
	mostShare  = 2.1
)

// timeOf measures a product of the model's shape and divides the run's operations by its rate. The rest of a step is
// reading and writing values.
func timeOf(d *recipe.DryRun, shapes []Shape) (t Time, err error) {
	rows, traffic, compiling := 1, 0.0, 0.0
	for _, s := range shapes {
		rows = max(rows, s.Rows*s.Len)
		t.Flops += s.Batches * s.Flops
		traffic += s.Batches * float64(s.Written)
		compiling += d.Engine.CompileSeconds(s.Nodes)
	}
	if t.Rate, err = productRate(d, rows); err != nil {
		return t, err
	}
	if s := d.Sampling; s != nil {
		// All answers are drawn at the rate of a product of as many rows as are drawn at once: two operations for each
		// weight and token.
		rate, err := productRate(d, s.Rows)
		if err != nil {
			return t, err
		}
		t.Sampling = drawOverhead * s.Answers * float64(s.New) * 2 * float64(d.Model.Config.ParamCount()) / rate
	}
	t.Likely = t.Sampling + t.Flops/t.Rate + traffic/d.Engine.ValueRate() + compiling
	t.Least, t.Most = leastShare*t.Likely, mostShare*t.Likely
	return t, nil
}

// drawOverhead is what a step of sampling takes beside its products; docs/speed.md has its parts.
const drawOverhead = 1.6

// productRate measures a product of rows by a matrix of the model's shape, cut to a size that takes milliseconds.
func productRate(d *recipe.DryRun, rows int) (float64, error) {
	const most = 1024
	c := d.Model.Config
	return d.Engine.ProductRate(min(rows, most/4), min(c.HiddenSize, most), min(max(c.IntermediateSize, c.HiddenSize),
		most), d.Graph.ComputeType())
}
