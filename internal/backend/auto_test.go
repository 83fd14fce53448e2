package backend

import (
	"slices"
	"testing"
)

// TestAutoFollowsItsRules: the engines that auto tries, in their order, by job and machine.
func TestAutoFollowsItsRules(t *testing.T) {
	all, none := machine{gpu: true, amx: true, onnx: true, cpu: true}, machine{}
	large, small := Job{BFloat16: true, Parameters: 135e6}, Job{BFloat16: true, Parameters: 800e3}
	sampled := large
	sampled.Sampling = true
	for _, c := range []struct {
		job     Job
		machine machine
		want    []string
	}{
		{Job{}, none, []string{"go"}},
		{large, none, []string{"go"}},
		{Job{}, machine{onnx: true}, []string{"onnx", "go"}},
		{Job{}, machine{amx: true}, []string{"xla:amx", "go"}},
		{large, machine{amx: true}, []string{"xla:amx", "go"}},
		{Job{}, machine{cpu: true}, []string{"xla:cpu", "go"}},
		{Job{Parameters: 135e6}, machine{amx: true, onnx: true, cpu: true}, []string{"onnx", "xla:cpu", "go"}},
		{large, machine{amx: true, onnx: true}, []string{"xla:amx", "onnx", "go"}},
		{small, machine{amx: true, onnx: true}, []string{"onnx", "go"}},
		{sampled, machine{amx: true, onnx: true}, []string{"onnx", "go"}},
		{Job{Must: true, Sampling: true}, machine{amx: true, onnx: true}, []string{"xla:amx", "onnx", "go"}},
		{Job{Must: true}, machine{onnx: true, cpu: true}, []string{"xla:cpu", "onnx", "go"}},
		{Job{}, all, []string{"xla:cuda", "onnx", "xla:cpu", "go"}},
		{large, all, []string{"xla:cuda", "xla:amx", "onnx", "xla:cpu", "go"}},
	} {
		var got []string
		for _, x := range choose(c.job, c.machine) {
			if got = append(got, x.spec); x.why == "" {
				t.Errorf("%s has no reason", x.spec)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v on %+v: %v, want %v", c.job, c.machine, got, c.want)
		}
	}
}
