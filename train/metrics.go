package train

import "math"

// Metrics gathers weighted means by name. The names are TRL's, so that dashboards carry over.
type Metrics struct {
	Sums, Weights map[string]float64

	extremes map[string]float64 // least or greatest values
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

// Least keeps a value if it is the least of its name. Of collections that are joined, the least values have a mean.
func (m *Metrics) Least(name string, value float64) { m.extreme(name, value, math.Min) }

// Most is Least for the greatest value.
func (m *Metrics) Most(name string, value float64) { m.extreme(name, value, math.Max) }

func (m *Metrics) extreme(name string, value float64, pick func(a, b float64) float64) {
	if m.extremes == nil {
		m.extremes = map[string]float64{}
	}
	if old, there := m.extremes[name]; there {
		value = pick(old, value)
	}
	m.extremes[name] = value
}

// Join adds everything that another collection has counted.
func (m *Metrics) Join(other *Metrics) {
	for name, sum := range other.Sums {
		m.Sums[name] += sum
		m.Weights[name] += other.Weights[name]
	}
	for name, x := range other.extremes {
		m.Add(name, x, 1)
	}
}

// Means returns the weighted mean of every name, or its extreme value, with a prefix.
func (m *Metrics) Means(prefix string) map[string]float64 {
	out := map[string]float64{}
	for name, sum := range m.Sums {
		if w := m.Weights[name]; w != 0 {
			out[prefix+name] = sum / w
		}
	}
	for name, x := range m.extremes {
		out[prefix+name] = x
	}
	return out
}
