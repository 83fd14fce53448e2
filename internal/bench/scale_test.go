package main

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
)

// TestSentBy compares with sums by hand.
func TestSentBy(t *testing.T) {
	for line, want := range map[string]float64{
		"%a = f32[10,3]{1,0} all-reduce(%x), channel_id=5, replica_groups=[4,2]<=[8], to_apply=%add":          120,
		"%a = f32[10,3]{1,0} all-reduce(%x), replica_groups={{0,2,4,6},{1,3,5,7}}, to_apply=%add_promoted":    90,
		"%a = (f32[8]{0}, bf16[4]{0}) all-reduce(%x, %y), replica_groups={{0,1}}, to_apply=%add":              40,
		"%a = s32[8,1]{1,0} all-gather(%x), replica_groups=[2,4]<=[2,2,2]T(2,1,0), dimensions={0}":            24,
		"%a = f32[2]{0} reduce-scatter(%x), replica_groups=[1,8]<=[8], dimensions={0}":                        56,
		"%a = pred[] collective-permute(%x), channel_id=238, source_target_pairs={{0,1},{1,0}}":               1,
		"%f = f32[10]{0} fusion(%all-reduce.6), kind=kLoop":                                                   0,
		"%g = f32[2048,1536]{1,0} get-tuple-element(%all-reduce.206), index=0, metadata={op_name=\"gather\"}": 0,
	} {
		if got := sentBy(line); got != want {
			t.Errorf("%s: %v bytes, want %v", line, got, want)
		}
	}
}

// TestDataParallelSendsGradientsAlone: a step on 4 devices that have rows alone sends the sum of the gradients, and
// nothing of the size of a batch's hidden states, which are three times as large. A device holds what a sum by hand
// says.
func TestDataParallelSendsGradientsAlone(t *testing.T) {
	const child = "POSTTRAIN_TEST_SCALE"
	c := qwenOf(64, 2, 4, 4, 96, 128)
	o := scaleOptions{tokens: 64, backend: "xla:cpu"}
	if dir := os.Getenv(child); dir != "" {
		f, err := o.compile(dir, c, layout{devices: 4})
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Append(nil, f.weights, f.gradients, f.gradientSent)
		if err := os.WriteFile(dir+".figures", text, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	backendtest.XLA(t)
	dump := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$") // XLA reads its flags once in a process
	cmd.Env = append(os.Environ(), child+"="+dump, "XLA_FLAGS="+scaleFlags+dump, "POSTTRAIN_XLA_CACHE=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(dump + ".figures")
	if err != nil {
		t.Fatal(err)
	}
	var weights, gradients, sent float64
	if _, err := fmt.Sscan(string(text), &weights, &gradients, &sent); err != nil {
		t.Fatal(err)
	}
	parameters := 4 * float64(c.ParamCount())
	batch := 4.0 * 2 * 64 * 10 // a few int32 a token
	if gradients != parameters || weights < parameters || weights > parameters+batch {
		t.Errorf("weights %v and gradients %v, want %v each", weights, gradients, parameters)
	}
	if ring := 2 * 3. / 4 * parameters; sent < ring/2 || sent > 1.01*ring { // gradients of products are bfloat16
		t.Errorf("sent %v bytes, want from half of %v to all of it", sent, ring)
	}
}
