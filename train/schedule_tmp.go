package train

// RateAt is a placeholder until the schedule lands.
func (o Options) RateAt(step, total int) float64 { return o.LearningRate }
