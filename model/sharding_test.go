package model

import (
	"testing"

	"github.com/gomlx/compute/distributed"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestStateIsCut: what an update needs of a weight is cut along its first axis that the devices divide.
func TestStateIsCut(t *testing.T) {
	mesh := expect.Must(distributed.NewDeviceMesh([]int{8}, []string{"data"}))(t)
	for _, c := range []struct {
		shape []int
		want  string
	}{
		{[]int{64, 16}, "S(data)"}, {[]int{16}, "S(data)"}, {[]int{3, 24}, "R, S(data)"}, {[]int{4}, ""}, {[]int{4, 12}, ""},
	} {
		got, want := "", c.want
		if spec := CutState(mesh, c.shape); spec != nil {
			got, want = spec.String(), "ShardingSpec{mesh=mesh, axes=["+want+"]}"
		}
		if got != want {
			t.Errorf("%v: %s, want %s", c.shape, got, want)
		}
	}
	if CutState(nil, []int{64, 16}) != nil || CutCache(mesh, 12) != nil || CutCache(mesh, 16) == nil {
		t.Error("want no spec without a mesh, and none of prompts that the devices do not divide")
	}
}
