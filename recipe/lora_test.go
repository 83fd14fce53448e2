package recipe

import (
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
)

// TestFewBitsThatSaveNothing: where an engine keeps what it unpacks, the start of a run says so.
func TestFewBitsThatSaveNothing(t *testing.T) {
	keeps := &backend.Engine{Name: "onnx", Wants: backend.Wants{KeepsUnpacked: true}}
	const want = "quantize nf4: engine onnx takes more memory for these weights than for float32 ones"
	if got := (Adapting{Quantize: "nf4"}).advise(keeps); !strings.HasPrefix(got, want) {
		t.Errorf("%q: want %s", got, want)
	}
	for _, a := range []Adapting{{}, {Quantize: "none"}} {
		if got := a.advise(keeps); got != "" {
			t.Error(got)
		}
	}
	if got := (Adapting{Quantize: "nf4"}).advise(&backend.Engine{Name: "xla"}); got != "" {
		t.Error(got)
	}
}
