package link

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

var format = Format{Run: "r1", Type: Float32, D: 3}

func exampleUpdate() protocol.Update {
	return protocol.Update{Agent: 2, Kind: protocol.Solve, Version: 7, Step: 1,
		Stats: protocol.Stats{Steps: 9, Return: -1.5, Flat: true,
			Validation: &protocol.Validation{Count: 3, Means: map[string]float64{"reward": 0.5}}},
		Vectors: [][]float64{{1, 2, 0.5}, {math.Inf(1), -3, 0}},
		Numbers: []float64{0.125, math.Inf(-1)}}
}

// TestDamagedValidations: what metrics could not hold is damaged.
func TestDamagedValidations(t *testing.T) {
	many := map[string]float64{}
	for i := range 17 {
		many[strings.Repeat("a", i+1)] = 1
	}
	for _, v := range []*protocol.Validation{
		{Count: 0}, {Count: 1 << 50}, {Count: 1, Means: many}, {Count: 1, Means: map[string]float64{"reward": 1e300}},
		{Count: 1, Means: map[string]float64{"a/b\n": 1}}, {Count: 1, Means: map[string]float64{"": 1}},
	} {
		u := protocol.Update{Kind: protocol.Gradient, Stats: protocol.Stats{Validation: v}}
		if _, err := format.DecodeUpdate(expect.Must(format.EncodeUpdate(u))(t)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%.60v: %v", v, err)
		}
	}
}

// TestRoundTrip: what is written is read, with every bit that the type holds; the payload is the numbers alone.
func TestRoundTrip(t *testing.T) {
	u := exampleUpdate()
	b := expect.Must(format.EncodeUpdate(u))(t)
	if got := expect.Must(format.DecodeUpdate(b))(t); !reflect.DeepEqual(got, u) {
		t.Errorf("found %+v, want %+v", got, u)
	}
	masked := protocol.Update{Kind: protocol.Gradient, Masked: []uint64{1 << 63, 5}}
	b = expect.Must(format.EncodeUpdate(masked))(t)
	if got := expect.Must(format.DecodeUpdate(b))(t); !reflect.DeepEqual(got, masked) {
		t.Errorf("found %+v, want %+v", got, masked)
	}
	task := protocol.Task{Kind: protocol.Solve, Version: 4, Accepted: -1, Scale: 0.1, Present: []int{0, 2},
		Params: []float64{1, 2, 3}, Direction: []float64{0, -1, 0.25}}
	b = expect.Must(format.EncodeTask(task))(t)
	if got := expect.Must(format.DecodeTask(b))(t); !reflect.DeepEqual(got, task) {
		t.Errorf("found %+v, want %+v", got, task)
	}
	task = protocol.Task{Kind: protocol.Stop}
	b = expect.Must(format.EncodeTask(task))(t)
	if got := expect.Must(format.DecodeTask(b))(t); !reflect.DeepEqual(got, task) {
		t.Errorf("found %+v, want %+v", got, task)
	}
	s := protocol.State{Head: json.RawMessage(`{"k":1}`), Vectors: map[string][]float64{"θ": {0.1, math.Pi}, "d": {}}}
	b = expect.Must(EncodeState("r1", s))(t)
	if got := expect.Must(DecodeState("r1", b))(t); !reflect.DeepEqual(got, s) {
		t.Errorf("found %+v, want %+v", got, s)
	}
}

// TestNaN: the server's guard refuses it, so it must arrive.
func TestNaN(t *testing.T) {
	b := expect.Must(format.EncodeUpdate(protocol.Update{Kind: protocol.Gradient,
		Vectors: [][]float64{{math.NaN(), 1e300, 0}}}))(t)
	v := expect.Must(format.DecodeUpdate(b))(t).Vectors[0]
	if !math.IsNaN(v[0]) || !math.IsInf(v[1], 1) {
		t.Error(v)
	}
	u := protocol.Update{Kind: protocol.Gradient, Stats: protocol.Stats{Return: math.NaN()}}
	if _, err := format.EncodeUpdate(u); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a return of NaN: error %v", err)
	}
}

// TestEveryBit: no message with one flipped bit, and none that is cut short or longer, is read.
func TestEveryBit(t *testing.T) {
	b := expect.Must(format.EncodeUpdate(exampleUpdate()))(t)
	for i := range 8 * len(b) {
		flipped := bytes.Clone(b)
		flipped[i/8] ^= 1 << (i % 8)
		if _, err := format.DecodeUpdate(flipped); !errors.Is(err, ErrDamaged) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
	}
	for n := range b {
		if _, err := format.DecodeUpdate(b[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := format.DecodeUpdate(append(b, 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("one byte more: %v", err)
	}
}

// TestRefusals: every message that is whole but not one of the run is one line that names both values.
func TestRefusals(t *testing.T) {
	other := func(f Format, u protocol.Update) func() ([]byte, error) {
		return func() ([]byte, error) { return f.EncodeUpdate(u) }
	}
	u := exampleUpdate()
	negative, vectors, long, sums, samples, gain := u, u, u, u, u, u
	negative.Version = -1
	samples.Stats.Steps = -5
	gain.Stats.Return = 1e300
	vectors.Vectors = make([][]float64, 3)
	long.Vectors = [][]float64{make([]float64, 4)}
	sums.Masked = make([]uint64, 7+maxNumbers)
	for _, c := range []struct {
		make func() ([]byte, error)
		is   error
		says string
	}{
		{other(Format{"r2", Float32, 3}, u), ErrForeign, `found run "r2", want "r1"`},
		{other(Format{"r1", Float64, 3}, u), ErrLength, "3 numbers of type float64"},
		{other(format, negative), ErrDamaged, "-1, want 0 to"},
		{other(format, samples), ErrDamaged, "-5, want 0 to"},
		{other(format, gain), ErrDamaged, "return of 1e+300, want at most 1e+100"},
		{other(format, vectors), ErrLength, "0 numbers of type float32"},
		{other(format, long), ErrLength, "4 numbers of type float32"},
		{other(format, sums), ErrLength, "numbers of type uint64"},
		{func() ([]byte, error) { return format.EncodeTask(protocol.Task{}) }, ErrForeign, `found "task", want "update"`},
		{func() ([]byte, error) { return seal(`{"posttrain":"update","protocol":2}`, nil), nil }, ErrForeign,
			"found protocol version 2, want 1"},
		{func() ([]byte, error) { return seal(`{"posttrain":[]}`, nil), nil }, ErrDamaged, "header is not JSON"},
	} {
		_, err := format.DecodeUpdate(expect.Must(c.make())(t))
		if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("found %v, want %v with %q", err, c.is, c.says)
		}
	}
	b := expect.Must(format.EncodeTask(protocol.Task{Params: []float64{1}}))(t)
	if _, err := format.DecodeTask(b); !errors.Is(err, ErrLength) {
		t.Errorf("a task of another length: %v", err)
	}
}

// TestClaims: a header that claims a million times the numbers, and a message a million times too long, allocate
// nothing of that size.
func TestClaims(t *testing.T) {
	const claim = `{"posttrain":"update","protocol":1,"run":"r1","numbers":[{"name":"%s","type":"%s","count":%d}],` +
		`"facts":{"kind":"gradient"}}`
	messages := [][]byte{make([]byte, 50<<20)}
	for _, n := range []int{3, 1 << 40, math.MaxInt} {
		messages = append(messages, seal(fmt.Sprintf(claim, "vector", Float32, n), nil))
	}
	messages = append(messages, seal(`{"posttrain":"update","x":"`+strings.Repeat("x", maxHeader)+`"}`, nil))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, m := range messages {
		if _, err := format.DecodeUpdate(m); !errors.Is(err, ErrLength) && !errors.Is(err, ErrDamaged) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 4<<20 {
		t.Errorf("%d bytes were allocated", after.TotalAlloc-before.TotalAlloc)
	}
}

// seal gives a header its hash.
func seal(header string, numbers []byte) []byte {
	line := strings.TrimSuffix(header, "}")
	return append([]byte(line+hashKey+hashOf([]byte(line), numbers)+hashEnd), numbers...)
}

// FuzzMessages gives any header with its right hash, and any bytes, to every reader. What is read is written and read
// again.
func FuzzMessages(f *testing.F) {
	for _, make := range []func() ([]byte, error){
		func() ([]byte, error) { return format.EncodeUpdate(exampleUpdate()) },
		func() ([]byte, error) { return format.EncodeTask(protocol.Task{Params: []float64{1, 2, 3}}) },
		func() ([]byte, error) {
			return EncodeState("r1", protocol.State{Vectors: map[string][]float64{"a": {1}}})
		},
	} {
		b := expect.Must(make())(f)
		line, _, numbers, _ := split(b)
		f.Add(string(line)+"}", numbers, true)
		f.Add(string(b), numbers, false)
	}
	f.Fuzz(func(t *testing.T, header string, numbers []byte, sealed bool) {
		b := append([]byte(header), numbers...)
		if sealed {
			b = seal(header, numbers)
		}
		if u, err := format.DecodeUpdate(b); err == nil {
			again := expect.Must(format.EncodeUpdate(u))(t)
			checkSame(t, again, expect.Must(format.EncodeUpdate(expect.Must(format.DecodeUpdate(again))(t)))(t))
		} else if strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("an error of several lines: %q", err)
		}
		if task, err := format.DecodeTask(b); err == nil {
			again := expect.Must(format.EncodeTask(task))(t)
			checkSame(t, again, expect.Must(format.EncodeTask(expect.Must(format.DecodeTask(again))(t)))(t))
		}
		if s, err := DecodeState("", b); err == nil {
			again := expect.Must(EncodeState("", s))(t)
			checkSame(t, again, expect.Must(EncodeState("", expect.Must(DecodeState("", again))(t)))(t))
		}
	})
}

func checkSame(t *testing.T, a, b []byte) {
	t.Helper()
	if !bytes.Equal(a, b) {
		t.Errorf("%q became %q", a, b)
	}
}
