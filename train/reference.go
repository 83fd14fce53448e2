package train

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
)

// CachedPairSums returns the summed log-probs of every pair under the learner's present weights: measured, and
// written to the file at path, or read from there if an earlier start of the same run has left them. A file of other
// weights, groups, layout or engine is an error: the run would continue with another reference than it began with.
//
// What is measured is kept in the file that [run.PartOf] names, every so often (0: never) and when tick ends the
// measurement, so that the next start measures the rest alone. The result has the same bits.
func CachedPairSums(path string, l *Learner, groups []Group, layout batch.Layout, every time.Duration,
	tick func(done int) error) (sums [][2]float32, cached bool, err error) {
	key, err := l.fingerprint(groups, layout)
	if err != nil {
		return nil, false, err
	}
	part := run.PartOf(path)
	if sums, err = readSums(path, key, len(groups)); !errors.Is(err, fs.ErrNotExist) {
		return sums, true, cmp.Or(err, removePart(part)) // a kill may have come before it
	}
	if sums, err = readSums(part, key, len(groups)); errors.Is(err, fs.ErrNotExist) {
		sums, err = unmeasured(len(groups)), nil
	}
	if err != nil {
		return nil, false, err
	}
	saved := time.Now()
	err = measureSums(l, groups, layout, sums, func(done int) error {
		err := tick(done)
		if err == nil && (every == 0 || time.Since(saved) < every) {
			return nil
		}
		saved = time.Now()
		return cmp.Or(writeSums(part, key, sums), err)
	})
	if err == nil {
		err = cmp.Or(writeSums(path, key, sums), removePart(part))
	}
	return sums, false, err
}

func removePart(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s cannot be removed: %w", path, run.Cause(err))
	}
	return nil
}

// PairSums measures the summed log-probs of every pair under the learner's present weights. layout comes from
// [Learner.Layout], or for the pairs of a run from [Dataset.Layout]. tick, which may be nil, is called after every
// pass; its error ends the measurement.
func PairSums(l *Learner, groups []Group, layout batch.Layout, tick func(done int) error) ([][2]float32, error) {
	sums := unmeasured(len(groups))
	if tick == nil {
		tick = func(int) error { return nil }
	}
	return sums, measureSums(l, groups, layout, sums, tick)
}

// unmeasured are sums of n pairs that measureSums measures: NaN.
func unmeasured(n int) [][2]float32 {
	nan := float32(math.NaN())
	return slices.Repeat([][2]float32{{nan, nan}}, n)
}

// measureSums measures the pairs whose sums are NaN. A pair goes through the model with others that are measured
// already, if it did so at first: the bits may depend on them.
func measureSums(l *Learner, groups []Group, layout batch.Layout, sums [][2]float32, tick func(done int) error) error {
	done := 0
	for members, p := range splitGroups(groups, layout) {
		if slices.ContainsFunc(members, func(e int) bool { return sums[e] != sums[e] }) {
			measured, err := l.Sums(p)
			if err != nil {
				return fmt.Errorf("log-probs of pairs %v: %w", members, err)
			}
			for i, e := range members {
				chosen, rejected := measured[2*i], measured[2*i+1]
				if !float.IsFinite(float64(chosen)) || !float.IsFinite(float64(rejected)) {
					return fmt.Errorf("log-probs of pair %d: found %v and %v, want finite numbers: the model's weights "+
						"are broken, or too large for the type it computes in", e+1, chosen, rejected)
				}
				sums[e] = [2]float32{chosen, rejected}
			}
		}
		done += len(members)
		if err := tick(done); err != nil {
			return err
		}
	}
	return nil
}

const (
	sumsName = "reference_logps" // [pairs, 2], chosen and rejected
	sumsKey  = "key"
)

// ReadPairSums reads what [CachedPairSums] left of n pairs, whose weights have changed since.
func ReadPairSums(path string, n int) ([][2]float32, error) { return readSums(path, "", n) }

// readSums reads the sums of n pairs that a key identifies, "" any.
func readSums(path, key string, n int) ([][2]float32, error) {
	tensors, meta, err := model.ReadTensors(path)
	if err != nil {
		return nil, err
	}
	if len(tensors) != 1 || key != "" && meta[sumsKey] != key || len(tensors[0].Floats) != 2*n {
		return nil, fmt.Errorf("%s: reference log-probs of another model, other data or another engine: something "+
			"has changed since the run was started; start a new run with --out DIR", path)
	}
	flat, sums := tensors[0].Floats, make([][2]float32, n)
	for i := range sums {
		sums[i] = [2]float32{flat[2*i], flat[2*i+1]}
	}
	return sums, nil
}

func writeSums(path, key string, sums [][2]float32) error {
	flat := make([]float32, 0, 2*len(sums))
	for _, s := range sums {
		flat = append(flat, s[0], s[1])
	}
	t := model.Tensor{Name: sumsName, Shape: []int{len(sums), 2}, Floats: flat}
	return model.WriteTensors(path, []model.Tensor{t}, map[string]string{sumsKey: key})
}

// fingerprint identifies everything that the sums depend on.
func (l *Learner) fingerprint(groups []Group, layout batch.Layout) (string, error) {
	config, err := l.model.Config.JSON("float32")
	if err != nil {
		return "", err
	}
	one := l.oneDevice(layout) // a run may resume on another mesh
	rows := fmt.Sprintf("{Share:%v Pad:%v Tokens:%v Slots:%v Few:%v Shapes:%+v}", one.Share, one.Pad, one.Tokens,
		one.Slots, one.Few, one.Shapes)
	first := fmt.Sprintf("%s %+v %s %s\n", l.engine.Name, l.graph, rows, config)
	if a := l.model.Config.LoRA; a != nil {
		first += fmt.Sprintf("%d %v %v %v\n", a.Rank, a.Scale(), a.Modules, a.Base)
		if a.Quantization != "" {
			first += a.Quantization + "\n"
		}
	}
	h, err := l.hashWeights(first)
	if err != nil {
		return "", err
	}
	hashGroups(h, groups)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashWeights hashes a first line and the weights; where the first line has the hash of an adapter's base, the adapter
// alone. It remembers the last hash, since weights may be many.
func (l *Learner) hashWeights(first string) (hash.Hash, error) {
	h := sha256.New()
	if l.hashed.first == first {
		return h, h.(encoding.BinaryUnmarshaler).UnmarshalBinary(l.hashed.state)
	}
	io.WriteString(h, first)
	frozen := l.frozen
	if a := l.model.Config.LoRA; a != nil && a.Base != "" {
		frozen = nil
	}
	for i, b := range frozen {
		w, err := backend.Floats(b)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(h, l.model.Params[i].Name)
		hashNumbers(h, w)
	}
	for i, p := range l.model.Trained() {
		w, err := l.weight(i)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(h, p.Name)
		hashNumbers(h, w)
	}
	state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	l.hashed = hashed{first, state}
	return h, err
}

// hashed is the state of a hash behind its first line and the weights. The zero value is of no weights.
type hashed struct {
	first string
	state []byte
}

func hashGroups(h hash.Hash, groups []Group) {
	fmt.Fprintln(h, len(groups))
	for _, g := range groups {
		fmt.Fprintln(h, len(g.Prompt), len(g.Answers))
		hashNumbers(h, g.Prompt)
		for _, a := range g.Answers {
			fmt.Fprintln(h, len(a))
			hashNumbers(h, a)
		}
		if g.Trained != nil {
			fmt.Fprintln(h, g.Trained)
		}
	}
}

func hashNumbers[T float32 | int32](h hash.Hash, x []T) {
	w := bufio.NewWriterSize(h, 1<<16)
	binary.Write(w, binary.LittleEndian, x) // a hash never fails
	w.Flush()
}
