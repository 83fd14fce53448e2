package link

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"

	"github.com/posttrain/posttrain/federated/protocol"
)

// Format is what the server and the agents of a run know of all its messages.
type Format struct {
	Run  string // its id
	Type Type   // of parameters and updates
	D    int    // length of θ
}

// Check names what is wrong with a form.
func (f Format) Check() error {
	if f.Type != Float32 && f.Type != Float64 {
		return fmt.Errorf("wire: %q: want float32 or float64", f.Type)
	}
	if f.D < 1 {
		return fmt.Errorf("wire: %d parameters: want 1 or more", f.D)
	}
	return nil
}

// What a message may have.
const (
	maxHeader  = 256 << 10 // bytes of the header of a task or update
	maxNumbers = 64        // numbers of an update beside its vectors
	maxReturn  = 1e100     // so that sums of returns stay finite
	maxItems   = 1 << 40   // of a validation; steps and episodes
	maxMeans   = 16        // of a validation
)

// MaxBytes is the largest number of bytes that a task or an update of the run can have. A reader reads no more.
func (f Format) MaxBytes() int { return maxHeader + 8*2*(f.D+maxNumbers) }

// decode reads a task or an update.
func (f Format) decode(b []byte, message string, facts any, most map[section]int) ([]part, error) {
	if n := bytes.IndexByte(b, '\n'); len(b) > f.MaxBytes() || n > maxHeader {
		return nil, fmt.Errorf("%s: %w: %d bytes, %d in its header, want at most %d, and %d", message, ErrLength, len(b),
			n, f.MaxBytes(), maxHeader)
	}
	return decode(b, message, f.Run, facts, most)
}

// EncodeTask writes a task.
func (f Format) EncodeTask(t protocol.Task) ([]byte, error) {
	var parts []part
	if t.Params != nil {
		parts = append(parts, floats("params", f.Type, t.Params))
	}
	if t.Direction != nil {
		parts = append(parts, floats("direction", f.Type, t.Direction))
	}
	return encode("task", f.Run, t, parts)
}

// DecodeTask reads a task. Its vectors have d numbers or are nil.
func (f Format) DecodeTask(b []byte) (t protocol.Task, err error) {
	parts, err := f.decode(b, "task", &t, map[section]int{{"params", f.Type, f.D}: 1, {"direction", f.Type, f.D}: 1})
	for _, p := range parts {
		if p.Count != f.D {
			return t, fmt.Errorf("task: %w: %d numbers as %q, want %d", ErrLength, p.Count, p.Name, f.D)
		}
		if p.Name == "params" {
			t.Params = p.floats
		} else {
			t.Direction = p.floats
		}
	}
	return t, err
}

// EncodeUpdate writes an update, of whatever lengths.
func (f Format) EncodeUpdate(u protocol.Update) ([]byte, error) {
	var parts []part
	for _, v := range u.Vectors {
		parts = append(parts, floats("vector", f.Type, v))
	}
	if u.Numbers != nil {
		parts = append(parts, floats("numbers", f.Type, u.Numbers))
		u.Numbers = nil
	}
	if u.Masked != nil {
		parts = append(parts, part{section: section{"masked", masked, len(u.Masked)}, sums: u.Masked})
	}
	return encode("update", f.Run, u, parts)
}

// DecodeUpdate reads an update. One with more numbers than any kind has is an [ErrLength]; one with others than its
// kind has is for the server to refuse.
func (f Format) DecodeUpdate(b []byte) (u protocol.Update, err error) {
	parts, err := f.decode(b, "update", &u, map[section]int{{"vector", f.Type, f.D}: 2,
		{"numbers", f.Type, maxNumbers}: 1, {"masked", masked, 2*f.D + maxNumbers}: 1})
	if err != nil {
		return u, err
	}
	if u.Numbers = nil; !u.Kind.Known() {
		return u, fmt.Errorf("update: %w: a kind of %.20q", ErrDamaged, u.Kind)
	}
	for _, p := range parts {
		switch p.Name {
		case "vector":
			u.Vectors = append(u.Vectors, p.floats)
		case "numbers":
			u.Numbers = p.floats
		case "masked":
			u.Masked = p.sums
		}
	}
	for _, n := range []int{u.Agent, u.Version, u.Step, u.Attempt, u.Stats.Steps, u.Stats.Episodes} {
		if n < 0 || n > maxItems {
			return u, fmt.Errorf("update: %w: a count of %d, want 0 to %d", ErrDamaged, n, maxItems)
		}
	}
	if r := u.Stats.Return; math.Abs(r) > maxReturn {
		return u, fmt.Errorf("update: %w: a mean return of %v, want at most %v", ErrDamaged, r, maxReturn)
	}
	return u, checkValidation(u.Stats.Validation)
}

// checkValidation wants items, and few means, which every step's metrics repeat.
func checkValidation(v *protocol.Validation) error {
	if v == nil {
		return nil
	}
	if v.Count < 1 || v.Count > maxItems || len(v.Means) > maxMeans {
		return fmt.Errorf("update: %w: a validation of %d items with %d means, want 1 to %d, and at most %d", ErrDamaged,
			v.Count, len(v.Means), maxItems, maxMeans)
	}
	for name, x := range v.Means {
		if math.Abs(x) > maxReturn || !meanName.MatchString(name) {
			return fmt.Errorf("update: %w: a validation with %.50q %v: want a name of small letters and _, and at most %v",
				ErrDamaged, name, x, maxReturn)
		}
	}
	return nil
}

var meanName = regexp.MustCompile(`^[a-z_]{1,40}$`)

// EncodeState writes a snapshot of a server or an agent, always in float64. Equal states have equal bytes.
func EncodeState(run string, s protocol.State) ([]byte, error) {
	var parts []part
	for _, name := range slices.Sorted(maps.Keys(s.Vectors)) {
		parts = append(parts, floats(name, Float64, s.Vectors[name]))
	}
	return encode("state", run, s.Head, parts)
}

// DecodeState reads a snapshot.
func DecodeState(run string, b []byte) (s protocol.State, err error) {
	parts, err := decode(b, "state", run, &s.Head, nil)
	s.Vectors = make(map[string][]float64, len(parts))
	for _, p := range parts {
		s.Vectors[p.Name] = p.floats
	}
	return s, err
}
