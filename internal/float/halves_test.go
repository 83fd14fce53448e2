package float

import (
	"math"
	"testing"
)

func TestRounding(t *testing.T) {
	for _, k := range []struct {
		x       float32
		f16, bf uint16
	}{
		{0, 0, 0}, {1, 0x3c00, 0x3f80}, {-2, 0xc000, 0xc000}, {65504, 0x7bff, 0x4780}, {65519, 0x7bff, 0x4780},
		{65520, 0x7c00, 0x4780},
		{1 + 0x1p-11, 0x3c00, 0x3f80}, {1 + 0x3p-11, 0x3c02, 0x3f80}, // ties to even
		{1 + 0x1p-8, 0x3c04, 0x3f80}, {1 + 0x3p-8, 0x3c0c, 0x3f82},
		{0x1p-24, 1, 0x3380}, {0x1p-25, 0, 0x3300}, {0x1.8p-25, 1, 0x3340}, {0x1.ffep-15, 0x0400, 0x3880},
		{float32(math.Inf(-1)), 0xfc00, 0xff80}, {math.MaxFloat32, 0x7c00, 0x7f80},
	} {
		if got := Float16(k.x); got != k.f16 {
			t.Errorf("float16(%g) = %#x, want %#x", k.x, got, k.f16)
		}
		if got := BFloat16(k.x); got != k.bf {
			t.Errorf("bfloat16(%g) = %#x, want %#x", k.x, got, k.bf)
		}
	}
	nan := float32(math.NaN())
	if Float16(nan)&0x7fff <= 0x7c00 || BFloat16(nan)&0x7fff <= 0x7f80 {
		t.Error("a NaN becomes a number, want NaN")
	}
	for i := range 1 << 16 { // each float16 and bfloat16, decoded and encoded, is the same
		if v := FromFloat16(uint16(i)); v == v && Float16(v) != uint16(i) {
			t.Fatalf("float16 %#x became %#x", i, Float16(v))
		}
		if v := FromBFloat16(uint16(i)); v == v && BFloat16(v) != uint16(i) {
			t.Fatalf("bfloat16 %#x became %#x", i, BFloat16(v))
		}
	}
}
