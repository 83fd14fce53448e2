package run

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/posttrain/posttrain/internal/float"
)

const stateName = "state.json"

// State is what a run must remember besides weights and moments so that it resumes bit for bit.
type State struct {
	Step       int    `json:"step"`     // updates done
	Epoch      int    `json:"epoch"`    // passes over the data completed
	Position   int    `json:"position"` // examples used in the current pass
	Seed       uint64 `json:"seed"`
	RNG        []byte `json:"rng,omitempty"` // MarshalBinary of a math/rand/v2 PCG
	ConfigHash string `json:"config_hash"`   // see [HashConfig]
	Engine     string `json:"engine"`        // another engine rounds differently
	Data       string `json:"data"`          // hash of the examples
	Best       *Best  `json:"best,omitempty"`
	Stale      int    `json:"stale,omitempty"`   // evaluations since the best
	Metrics    Values `json:"metrics,omitempty"` // tokens seen, sums of an unfinished logging interval, …
}

// Values are named numbers; NaN and infinities survive JSON as strings.
type Values map[string]float64

// MarshalJSON writes finite values as numbers, the others as "NaN", "+Inf", "-Inf".
func (v Values) MarshalJSON() ([]byte, error) {
	out := make(map[string]any, len(v))
	for name, x := range v {
		if float.IsFinite(x) {
			out[name] = x
		} else {
			out[name] = fmt.Sprint(x)
		}
	}
	return json.Marshal(out) // encoding/json sorts the names
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Values) UnmarshalJSON(b []byte) error {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*v = make(Values, len(in))
	for name, raw := range in {
		x, err := stateNumber(raw)
		if err != nil {
			return fmt.Errorf("metrics %q: %s: want a number", name, raw)
		}
		(*v)[name] = x
	}
	return nil
}

func stateNumber(raw json.RawMessage) (x float64, err error) {
	var word string
	if json.Unmarshal(raw, &word) == nil {
		_, err = fmt.Sscan(word, &x)
		return x, err
	}
	err = json.Unmarshal(raw, &x)
	return x, err
}

// Write stores the state in an unfinished checkpoint's folder.
func (s State) Write(dir string) error {
	return writeJSON(filepath.Join(dir, stateName), s)
}

// ReadState reads the state of a checkpoint.
func ReadState(dir string) (s State, err error) {
	return s, readJSON(filepath.Join(dir, stateName), "the state of a run", &s)
}
