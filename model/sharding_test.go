package model

import (
	"testing"

	"github.com/gomlx/compute/distributed"
)

// TestWeightsAreCut: what is cut over a mesh of data 2 and tensor 4, by name, and what an update needs of it.
func TestWeightsAreCut(t *testing.T) {
	mesh, err := distributed.NewDeviceMesh([]int{2, 4}, []string{"data", "tensor"})
	if err != nil {
		t.Fatal(err)
	}
	const layer = "model.layers.3."
	for _, c := range []struct {
		name          string
		shape         []int
		weight, state string
	}{
		{embedName, []int{64, 16}, "S(tensor), R", "S(tensor), S(data)"},
		{headName, []int{64, 16}, "S(tensor), R", "S(tensor), S(data)"},
		{normName, []int{16}, "R", "S(data)"},
		{layer + "self_attn.q_proj.weight", []int{32, 16}, "S(tensor), R", "S(tensor), S(data)"},
		{layer + "self_attn.k_proj.bias", []int{16}, "S(tensor)", "S(tensor,data)"},
		{layer + "self_attn.v_proj.bias", []int{4}, "S(tensor)", "S(tensor)"}, // 8 devices do not divide it
		{layer + "self_attn.o_proj.weight", []int{16, 32}, "R, S(tensor)", "S(data), S(tensor)"},
		{layer + "self_attn.o_proj.bias", []int{16}, "R", "S(data)"},
		{layer + "self_attn.q_norm.weight", []int{4}, "R", "S(data)"},
		{layer + "mlp.gate_proj.weight", []int{24, 16}, "S(tensor), R", "S(tensor), S(data)"},
		{layer + "mlp.down_proj.weight", []int{16, 24}, "R, S(tensor)", "S(data), S(tensor)"},
		{layer + "self_attn.q_proj" + loraA, []int{3, 16}, "R, R", "R, S(data)"},
		{layer + "self_attn.q_proj" + loraB, []int{32, 3}, "S(tensor), R", "S(tensor,data), R"},
		{layer + "mlp.down_proj" + loraA, []int{3, 24}, "R, S(tensor)", "R, S(tensor,data)"},
		{layer + "mlp.down_proj" + loraB, []int{16, 3}, "R, R", "S(data), R"},
	} {
		for got, want := range map[string]string{
			CutWeight(mesh, c.name, c.shape).String(): c.weight, CutState(mesh, c.name, c.shape).String(): c.state,
		} {
			if want = "ShardingSpec{mesh=mesh, axes=[" + want + "]}"; got != want {
				t.Errorf("%s: %s, want %s", c.name, got, want)
			}
		}
	}
	if CutWeight(nil, embedName, []int{64, 16}) != nil || CutState(nil, embedName, []int{64, 16}) != nil {
		t.Error("a spec without a mesh")
	}
}
