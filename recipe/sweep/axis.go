package sweep

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// Flag is the flag that gives an axis.
const Flag = "--sweep"

// Axis is a key of the config with the numbers that it takes.
type Axis struct {
	Key    string
	Values []string // as the user wrote them: they name folders
}

const example = Flag + " reward.restricted_weight=0.5,1,2"

// ParseAxis reads key=number,number. The error is a fault.Fault.
func ParseAxis(text string) (Axis, error) {
	key, list, found := strings.Cut(text, "=")
	a := Axis{Key: strings.TrimSpace(key)}
	if !found || a.Key == "" {
		return a, wrong(text, "want a key and its numbers, such as %s", example)
	}
	if strings.TrimSpace(list) == "" {
		return a, wrong(text, "there are no values: want numbers with commas between, such as %s", example)
	}
	for _, value := range strings.Split(list, ",") {
		if err := a.add(strings.TrimSpace(value), text); err != nil {
			return a, err
		}
	}
	return a, nil
}

// add adds a value that is a number, and not there yet.
func (a *Axis) add(value, text string) error {
	x, ok := new(big.Rat).SetString(value)
	if !ok || !json.Valid([]byte(value)) { // the table has the numbers as JSON
		return wrong(text, "%q is not a number: want numbers with commas between, such as %s", value, example)
	}
	for _, other := range a.Values {
		if y, _ := new(big.Rat).SetString(other); y.Cmp(x) == 0 {
			return wrong(text, "%s is there twice (%s): want each value once", value, other)
		}
	}
	a.Values = append(a.Values, value)
	return nil
}

// wrong is what is wrong with an axis.
func wrong(text, format string, args ...any) error {
	return fault.Fault{Key: Flag, Value: text, Problem: fmt.Sprintf(format, args...)}
}

// String is what ParseAxis reads.
func (a Axis) String() string { return a.Key + "=" + strings.Join(a.Values, ",") }

// parseAxes reads axes, whose keys are all different.
func parseAxes(texts []string) (axes []Axis, err error) {
	seen := map[string]bool{}
	for _, text := range texts {
		a, err := ParseAxis(text)
		if err != nil {
			return nil, err
		}
		if seen[a.Key] {
			return nil, wrong(text, "another %s has this key: want all its values in one", Flag)
		}
		seen[a.Key] = true
		axes = append(axes, a)
	}
	return axes, nil
}

// Point is a value of each axis.
type Point []config.Override

// Grid is all combinations of values, those of the last axis changing fastest.
func Grid(axes []Axis) []Point {
	points := []Point{nil}
	for _, a := range axes {
		var longer []Point
		for _, p := range points {
			for _, v := range a.Values {
				longer = append(longer, append(p[:len(p):len(p)], config.Override{Flag: Flag, Key: a.Key, Value: v}))
			}
		}
		points = longer
	}
	return points
}

// Name names the folder of the point's run: key=value,key=value.
func (p Point) Name() string {
	parts := make([]string, len(p))
	for i, o := range p {
		parts[i] = o.Key + "=" + o.Value
	}
	return strings.Join(parts, ",")
}
