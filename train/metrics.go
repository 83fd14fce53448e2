package train

// Metrics gathers weighted means by name. The names are TRL's, so that dashboards carry over.
type Metrics struct {
	Sums, Weights map[string]float64
}

// NewMetrics returns an empty collection.
func NewMetrics() *Metrics {
	return &Metrics{Sums: map[string]float64{}, Weights: map[string]float64{}}
}

// Add counts a value with a weight.
func (m *Metrics) Add(name string, value, weight float64) {
	m.Sums[name] += value * weight
	m.Weights[name] += weight
}

// Join adds everything that another collection has counted.
func (m *Metrics) Join(other *Metrics) {
	for name, sum := range other.Sums {
		m.Sums[name] += sum
		m.Weights[name] += other.Weights[name]
	}
}

// Means returns the weighted mean of every name, with a prefix.
func (m *Metrics) Means(prefix string) map[string]float64 {
	out := map[string]float64{}
	for name, sum := range m.Sums {
		if w := m.Weights[name]; w != 0 {
			out[prefix+name] = sum / w
		}
	}
	return out
}
