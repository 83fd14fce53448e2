package link

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"

	"github.com/posttrain/posttrain/federated/protocol"
)

// Form is what the server and the agents of a run know of all its messages.
type Form struct {
	Run  string // its id
	Type Type   // of parameters and updates
	D    int    // length of θ
}

// Check names what is wrong with a form.
func (f Form) Check() error {
	if f.Type != Float32 && f.Type != Float64 {
		return fmt.Errorf("wire: %q: want float32 or float64", f.Type)
	}
	if f.D < 1 {
		return fmt.Errorf("wire: %d parameters: want 1 or more", f.D)
	}
	return nil
}

// vectorsOf is the number of vectors in an update of a kind.
var vectorsOf = map[protocol.Kind]int{protocol.Gradient: 1, protocol.Solve: 2, protocol.Product: 1,
	protocol.Search: 0, protocol.Train: 1}

// Most is the largest number of bytes that a task or an update of the run can have. A reader reads no more.
func (f Form) Most() int { return maxHeader + 8*2*(f.D+maxNumbers) }

// bound refuses a task or update that is too long, or whose header is.
func (f Form) bound(b []byte) error {
	if len(b) > f.Most() {
		return fmt.Errorf("%w: %d bytes, want at most %d", ErrLength, len(b), f.Most())
	}
	if n := bytes.IndexByte(b, '\n'); n > maxHeader {
		return fmt.Errorf("%w: a header of %d bytes, want at most %d", ErrLength, n, maxHeader)
	}
	return nil
}

// EncodeTask writes a task.
func (f Form) EncodeTask(t protocol.Task) ([]byte, error) {
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
func (f Form) DecodeTask(b []byte) (protocol.Task, error) {
	t, err := f.task(b)
	if err != nil {
		return protocol.Task{}, fmt.Errorf("task: %w", err)
	}
	return t, nil
}

func (f Form) task(b []byte) (t protocol.Task, err error) {
	if err := f.bound(b); err != nil {
		return t, err
	}
	h, numbers, err := decode(b, "task", f.Run, &t)
	if err != nil {
		return t, err
	}
	known := map[string]*[]float64{"params": &t.Params, "direction": &t.Direction}
	parts, err := h.parts(numbers, func(s section) error {
		if known[s.Name] == nil || s.Type != f.Type || s.Count != f.D {
			return fmt.Errorf("%w: %d numbers of type %s as %q, want %d of type %s as params or direction", ErrLength,
				s.Count, s.Type, s.Name, f.D, f.Type)
		}
		delete(known, s.Name)
		return nil
	})
	if err != nil {
		return t, err
	}
	for _, p := range parts {
		if p.Name == "params" {
			t.Params = p.floats
		} else {
			t.Direction = p.floats
		}
	}
	return t, notNegative(t.Version, t.Step, t.Attempt)
}

// EncodeUpdate writes an update, of whatever lengths.
func (f Form) EncodeUpdate(u protocol.Update) ([]byte, error) {
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

// DecodeUpdate reads an update. One with more numbers than its kind can have is an [ErrLength]; one with fewer is for
// the server to refuse.
func (f Form) DecodeUpdate(b []byte) (protocol.Update, error) {
	u, err := f.update(b)
	if err != nil {
		return protocol.Update{}, fmt.Errorf("update: %w", err)
	}
	return u, nil
}

func (f Form) update(b []byte) (u protocol.Update, err error) {
	if err := f.bound(b); err != nil {
		return u, err
	}
	h, numbers, err := decode(b, "update", f.Run, &u)
	if err != nil {
		return u, err
	}
	vectors, ok := vectorsOf[u.Kind]
	if !ok {
		return u, fmt.Errorf("%w: kind %q, want gradient, solve, product, search or train", ErrForeign, u.Kind)
	}
	left := map[section]int{{"vector", f.Type, f.D}: vectors, {"numbers", f.Type, maxNumbers}: 1,
		{"masked", masked, vectors*f.D + maxNumbers}: 1}
	parts, err := h.parts(numbers, func(s section) error { return allow(left, s) })
	if err != nil {
		return u, err
	}
	u.Numbers = nil
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
	if r := u.Stats.Return; math.Abs(r) > maxReturn {
		return u, fmt.Errorf("%w: a mean return of %v, want at most %v", ErrDamaged, r, maxReturn)
	}
	if err := checkValidation(u.Stats.Validation); err != nil {
		return u, err
	}
	if len(u.Key) > maxKey {
		return u, fmt.Errorf("%w: a key of %d bytes, want at most %d", ErrLength, len(u.Key), maxKey)
	}
	if most := max(u.Stats.Steps, u.Stats.Episodes); most > maxItems {
		return u, fmt.Errorf("%w: %d steps or episodes, want at most %d", ErrDamaged, most, maxItems)
	}
	return u, notNegative(u.Agent, u.Version, u.Step, u.Attempt, u.Stats.Steps, u.Stats.Episodes)
}

// checkValidation wants items, and few means, which every step's metrics repeat.
func checkValidation(v *protocol.Validation) error {
	if v == nil {
		return nil
	}
	if v.Count < 1 || v.Count > maxItems || len(v.Means) > maxMeans {
		return fmt.Errorf("%w: a validation of %d items with %d means, want 1 to %d, and at most %d", ErrDamaged,
			v.Count, len(v.Means), maxItems, maxMeans)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Means)) {
		if x := v.Means[name]; math.Abs(x) > maxReturn || !meanName.MatchString(name) {
			return fmt.Errorf("%w: a validation with %.50q %v: want a name of small letters and _, and at most %v",
				ErrDamaged, name, x, maxReturn)
		}
	}
	return nil
}

// What an update may say: items of a validation, steps and episodes; means of a validation; bytes of a public key.
const (
	maxItems = 1 << 40
	maxMeans = 16
	maxKey   = 64
)

var meanName = regexp.MustCompile(`^[a-z_]{1,40}$`)

// allow takes a section from those that are left; each has the largest count.
func allow(left map[section]int, s section) error {
	for most := range left {
		if most.Name == s.Name && most.Type == s.Type && s.Count <= most.Count && left[most] > 0 {
			left[most]--
			return nil
		}
	}
	return fmt.Errorf("%w: %d numbers of type %s as %q", ErrLength, s.Count, s.Type, s.Name)
}

func notNegative(counts ...int) error {
	if n := slices.Min(counts); n < 0 {
		return fmt.Errorf("%w: a count of %d, want 0 or more", ErrDamaged, n)
	}
	return nil
}

// EncodeState writes a snapshot of a server or an agent, always in float64. Equal states have equal bytes.
func EncodeState(run string, s protocol.State) ([]byte, error) {
	var parts []part
	for _, name := range slices.Sorted(maps.Keys(s.Vectors)) {
		parts = append(parts, floats(name, Float64, s.Vectors[name]))
	}
	head := s.Head
	if head == nil {
		head = json.RawMessage("null")
	}
	return encode("state", run, head, parts)
}

// DecodeState reads a snapshot.
func DecodeState(run string, b []byte) (s protocol.State, err error) {
	h, numbers, err := decode(b, "state", run, &s.Head)
	if err != nil {
		return s, fmt.Errorf("state: %w", err)
	}
	parts, err := h.parts(numbers, func(s section) error {
		if s.Type != Float64 {
			return fmt.Errorf("%w: %q has type %s, want float64", ErrDamaged, s.Name, s.Type)
		}
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("state: %w", err)
	}
	s.Vectors = make(map[string][]float64, len(parts))
	for _, p := range parts {
		s.Vectors[p.Name] = p.floats
	}
	return s, nil
}
