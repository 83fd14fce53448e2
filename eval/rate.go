package eval

import (
	"maps"
	"slices"
)

// Rate is a proportion of cases that come in clusters: the samples of one item, which resemble each other. The zero
// value is ready for use.
type Rate struct{ items map[int]Share }

// Add counts one more case of an item.
func (r *Rate) Add(item int, yes bool) {
	s := Share{Total: 1}
	if yes {
		s.Count = 1
	}
	r.addShare(item, s)
}

func (r *Rate) addShare(item int, s Share) {
	if r.items == nil {
		r.items = map[int]Share{}
	}
	old := r.items[item]
	r.items[item] = Share{old.Count + s.Count, old.Total + s.Total}
}

// Share is the proportion over all cases.
func (r Rate) Share() (all Share) {
	for _, s := range r.items {
		all.Count += s.Count
		all.Total += s.Total
	}
	return all
}

// Interval is the 95 % Wilson interval. With one case an item it is the Share's interval. With several, the cases
// count for fewer: their number is divided by the design effect (Kish 1965), the variance between items over the
// variance of independent cases, which is taken to be 1 at least, and the cases of an item at most.
func (r Rate) Interval() (low, high float64) {
	all := r.Share()
	if all.Total == 0 {
		return all.Wilson()
	}
	return wilson(all.Value(), float64(all.Total)/r.effect(all))
}

// effect is the design effect.
func (r Rate) effect(all Share) float64 {
	clusters := 0
	for _, s := range r.items {
		if s.Total > 0 {
			clusters++
		}
	}
	n, k, p := float64(all.Total), float64(clusters), all.Value()
	if clusters < 2 || all.Count == 0 || all.Count == all.Total {
		return n / k // nothing is known of how alike the cases of an item are: as alike as can be
	}
	between := 0.0
	for _, item := range slices.Sorted(maps.Keys(r.items)) { // a sum of floats depends on its order
		s := r.items[item]
		d := float64(s.Count) - p*float64(s.Total)
		between += d * d
	}
	return min(max(between*k/(k-1)/(n*p*(1-p)), 1), n/k)
}

// String prints the proportion with numerator, denominator and interval.
func (r Rate) String() string {
	all := r.Share()
	if all.Total == 0 {
		return all.String()
	}
	return all.words(r.Interval())
}

// MarshalJSON gives value, count, total, low and high; without any case value, low and high are null.
func (r Rate) MarshalJSON() ([]byte, error) {
	low, high := r.Interval()
	return r.Share().json(low, high)
}
