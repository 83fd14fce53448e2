package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/files"
)

// Rates are how fast engines multiply float32 matrices on a machine: operations a second by spec, for each of Widths.
type Rates struct {
	Machine string               `json:"machine"`
	Rates   map[string][]float64 `json:"rates"`
}

// Widths are those of the layers whose products are measured: [1024, width] by [width, 4·width].
var Widths = []int{256, 512}

// worthwhile is how much faster XLA's products must be than ONNX Runtime's, since its programs take longer to compile.
const worthwhile = 1.1

// Measure measures the engines that compute on this machine's processor, one after the other. It calls each with the
// rates of an engine, or with the reason why it has none.
func Measure(each func(spec string, rates []float64, err error)) Rates {
	all := Rates{machineName(), map[string][]float64{}}
	for _, spec := range []string{"go", "onnx", "xla:cpu"} {
		rates, err := measure(spec)
		if err == nil {
			all.Rates[spec] = rates
		}
		each(spec, rates, err)
	}
	return all
}

func measure(spec string) (rates []float64, err error) {
	e, err := tryOpen(spec)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	for _, width := range Widths {
		rate, err := e.ProductRate(1024, width, 4*width, dtypes.Float32)
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	return rates, nil
}

// ahead is how many times as fast as ONNX Runtime's the products of xla:cpu are in the layers of a model; 0: unknown.
func (r Rates) ahead(parameters int) float64 {
	i := 0
	if parameters >= largeModel {
		i = len(Widths) - 1
	}
	xla, onnx := r.Rates["xla:cpu"], r.Rates["onnx"]
	if parameters == 0 || len(xla) != len(Widths) || len(onnx) != len(Widths) || !(onnx[i] > 0) {
		return 0
	}
	return xla[i] / onnx[i]
}

// ratesPath is where rates are kept; "" without a folder for it.
func ratesPath() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "posttrain", "rates.json")
}

// Keep writes the rates where auto finds them, and returns the file.
func (r Rates) Keep() (path string, err error) {
	if path = ratesPath(); path == "" {
		return "", errors.New("no folder for what was measured: neither XDG_CACHE_HOME nor HOME is an absolute path")
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return path, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return path, err
	}
	return path, files.Replace(path, append(text, '\n'), 0o644)
}

// keptRates are those of this machine, none if nothing was measured on it. A file that cannot be read is an error.
func keptRates() (r Rates, err error) {
	path := ratesPath()
	text, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return Rates{}, fmt.Errorf("%s: %w: remove it, or run posttrain version --measure", path, err)
	}
	if r.Machine != machineName() {
		return Rates{}, nil
	}
	return r, nil
}
