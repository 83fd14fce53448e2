package train

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/model"
)

// CachedPairSums returns the summed log-probs of every pair under the learner's present weights from the file at path
// where it holds those of the same weights, groups, layout and engine; otherwise it measures them and writes the file.
func CachedPairSums(path string, l *Learner, groups []batch.Group, layout batch.Layout, tick func(done int) error) (sums [][2]float32, cached bool, err error) {
	key, err := l.fingerprint(groups, layout)
	if err != nil {
		return nil, false, err
	}
	if sums, err = readSums(path, key, len(groups)); err == nil {
		return sums, true, nil
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errOtherSums) {
		return nil, false, err
	}
	if sums, err = PairSums(l, groups, layout, tick); err != nil {
		return nil, false, err
	}
	return sums, false, writeSums(path, key, sums)
}

// errOtherSums says that a file of reference log-probs belongs to another model or other data.
var errOtherSums = errors.New("reference log-probs of another model or other data")

const (
	sumsName = "reference_logps" // [pairs, 2], chosen and rejected
	sumsKey  = "key"
)

func readSums(path, key string, n int) ([][2]float32, error) {
	tensors, meta, err := model.ReadTensors(path)
	if err != nil {
		return nil, err
	}
	if len(tensors) != 1 || meta[sumsKey] != key || len(tensors[0].Floats) != 2*n {
		return nil, fmt.Errorf("%s: %w", path, errOtherSums)
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
func (l *Learner) fingerprint(groups []batch.Group, layout batch.Layout) (string, error) {
	t, err := l.store.read()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %+v %+v %d\n", l.engine.Name, l.graph, layout, len(groups))
	for i, w := range t.Weights {
		fmt.Fprintln(h, l.model.Params[i].Name)
		hashNumbers(h, w)
	}
	for _, g := range groups {
		hashNumbers(h, g.Prompt)
		for _, a := range g.Answers {
			fmt.Fprintln(h, len(a))
			hashNumbers(h, a)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func hashNumbers[T float32 | int32](h hash.Hash, x []T) {
	w := bufio.NewWriterSize(h, 1<<16)
	binary.Write(w, binary.LittleEndian, x) // a hash never fails
	w.Flush()
}
