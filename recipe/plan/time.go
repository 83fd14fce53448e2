package plan

import (
	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/recipe"
)

// Time is how long a run takes, in seconds.
type Time struct {
	Likely float64 `json:"likely_seconds"`
	Least  float64 `json:"least_seconds"`
	Most   float64 `json:"most_seconds"`
	Rate   float64 `json:"flops_per_second"` // of a matrix product of the model's shape, measured now
	Flops  float64 `json:"flops"`            // of the run's products, those of sampling apart

	Sampling float64 `json:"sampling_seconds"` // of Likely
}

// Of the time that a plan expects, what runs took at least and at most; see docs/plan.md.
const (
	leastShare = 0.4
	mostShare  = 2.1
)

// time measures a product of the model's shape and divides the run's operations by its rate. The rest of a step is
// reading and writing values.
func (p *Plan) time(d *recipe.Draft, b *bench) (t Time, err error) {
	rows, traffic, compiling := 1, 0.0, 0.0
	for _, s := range p.Shapes {
		rows = max(rows, s.Rows*s.Len)
		t.Flops += s.Batches * s.Flops
		traffic += s.Batches * float64(s.Written)
		compiling += d.Engine.CompileSeconds(s.Nodes)
	}
	if t.Rate, err = b.productRate(d, rows); err != nil {
		return t, err
	}
	if s := d.Sampling; s != nil {
		if t.Sampling, err = p.sampling(d, b, s); err != nil {
			return t, err
		}
	}
	t.Likely = t.Sampling + t.Flops/t.Rate + traffic/d.Engine.ValueRate() + compiling
	t.Least, t.Most = leastShare*t.Likely, mostShare*t.Likely
	return t, nil
}

// sampling is the time in which all answers are drawn, at the rate of a product of as many rows as are drawn at once:
// two operations for each weight and token.
func (p *Plan) sampling(d *recipe.Draft, b *bench, s *recipe.Sampling) (float64, error) {
	rate, err := b.productRate(d, s.Rows)
	if err != nil {
		return 0, err
	}
	return drawOverhead * s.Answers * float64(s.New) * 2 * float64(d.Model.Config.ParamCount()) / rate, nil
}

// drawOverhead is what a step of sampling takes beside its products; docs/speed.md has its parts.
const drawOverhead = 1.6

// product is a product of rows by a matrix on an engine.
type product struct {
	engine        string
	rows, in, out int
	dtype         dtypes.DType
}

// productRate measures a product of rows by a matrix of the model's shape, cut to a size that takes milliseconds.
func (b *bench) productRate(d *recipe.Draft, rows int) (rate float64, err error) {
	const most = 1024
	c := d.Model.Config
	p := product{d.Engine.Name, min(rows, most/4), min(c.HiddenSize, most), min(max(c.IntermediateSize, c.HiddenSize),
		most), d.Graph.ComputeType()}
	if b.rates[p] == 0 {
		if rate, err = d.Engine.ProductRate(p.rows, p.in, p.out, p.dtype); err != nil {
			return 0, err
		}
		if b.rates == nil {
			b.rates = map[product]float64{}
		}
		b.rates[p] = rate
	}
	return b.rates[p], nil
}
