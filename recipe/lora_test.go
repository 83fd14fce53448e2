package recipe

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestAlphaByDefault: alpha 0 is twice the rank, as its help says, also where it is given. A scale of 0 learns nothing.
func TestAlphaByDefault(t *testing.T) {
	for text, want := range map[string]float64{"rank: 4": 8, "rank: 4, alpha: 0": 8, "rank: 4, alpha: 2": 2} {
		spec := config.Spec[Adapting]{Command: "x"}
		a, err := spec.Parse("x.yaml", []byte("command: x\nlora: {"+text+"}\n"), config.Input{})
		if err != nil || a.LoRA.Alpha != want {
			t.Errorf("%s: %+v, %v: want alpha %v", text, a, err, want)
		}
	}
}

// TestDropoutOfAnAdapter: an adapter that peft trained with dropout is trained further without it, and the run says so.
func TestDropoutOfAnAdapter(t *testing.T) {
	a := Adapting{Adapter: t.TempDir()}
	for text, want := range map[string]string{
		`{"lora_dropout": 0.05}`: a.Adapter + ": its lora_dropout is 0.05, and it is trained further with 0: dropout of " +
			"an adapter's input is not supported",
		`{"lora_dropout": 0.0}`: "", `{}`: ""} {
		expect.Write(t, filepath.Join(a.Adapter, "adapter_config.json"), text)
		if got := a.adviseDropout(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := (Adapting{}).adviseDropout(); got != "" {
		t.Error(got)
	}
}

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
