package recipe

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestWeightsOfNames: a number behind the last colon is a weight, unless a file has that name; other colons stay.
func TestWeightsOfNames(t *testing.T) {
	t.Chdir(t.TempDir())
	expect.Write(t, "odd:2", "")
	for _, c := range []struct {
		names   config.Names
		weights []float64
		want    config.Names
		sum     []float64
	}{
		{config.Names{"a.jsonl:2", "b.csv"}, nil, config.Names{"a.jsonl", "b.csv"}, []float64{2, 1}},
		{config.Names{`C:\data\a.jsonl`, "org/name:default:train"}, nil, config.Names{`C:\data\a.jsonl`,
			"org/name:default:train"}, nil},
		{config.Names{`C:\a.jsonl:0.5`, "org/name:train:3"}, nil, config.Names{`C:\a.jsonl`, "org/name:train"},
			[]float64{0.5, 3}},
		{config.Names{"odd:2"}, nil, config.Names{"odd:2"}, nil},
		{config.Names{"a", "b:4"}, []float64{3, 1}, config.Names{"a", "b"}, []float64{3, 4}},
	} {
		f := Files{TrainFiles: c.names, Weights: c.weights}
		given := fmt.Sprint(c.names)
		f.Resolve(nil)
		if !reflect.DeepEqual(f.TrainFiles, c.want) || !reflect.DeepEqual(f.Weights, c.sum) ||
			fmt.Sprint(c.names) != given {
			t.Errorf("%v: %q, %v", given, f.TrainFiles, f.Weights)
		}
	}
}

// TestWeigh: whole weights repeat all rows, a fraction is a drawn share, the same each time; without weights all rows
// come once.
func TestWeigh(t *testing.T) {
	f := Files{TrainFiles: config.Names{"a", "b", "c"}, Weights: []float64{2, 0.5, 1.25}}
	from := []int{0, 0, 1, 1, 1, 1, 2, 2, 2, 2}
	count := map[int]int{}
	rows := f.Weigh(from)
	for _, row := range rows {
		count[row]++
	}
	of := func(file int) (sum int) {
		for row, n := range count {
			if from[row] == file {
				sum += n
			}
		}
		return sum
	}
	if of(0) != 4 || of(1) != 2 || of(2) != 5 || count[0] != 2 || count[6] == 0 ||
		!reflect.DeepEqual(rows, f.Weigh(from)) {
		t.Errorf("%v", rows)
	}
	f.Weights = nil
	if got := f.Weigh(from); !reflect.DeepEqual(got, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("without weights %v", got)
	}
	if f.Weights = []float64{2, 1, 1}; f.Names() != "a:2, b:1, c:1" {
		t.Error(f.Names())
	}
}
