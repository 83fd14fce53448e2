package federated

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/recipe"
)

func TestMain(m *testing.M) { testkit.Main(m, simulateTiny) }

// simulateTiny starts or continues a small simulation of a method in a folder, and prints every step.
func simulateTiny(args []string) error {
	method, dir := args[0], args[1]
	o, err := Spec.Parse("a.yaml", []byte(`command: federated simulate
method: `+method+`
samples: 4000
agents: 3
control: {steps: 40, hidden: [4]}
compare: none
checkpoint_every: 1
`), config.Input{})
	if err != nil {
		return err
	}
	o.Dir.Out = dir
	if _, err := os.Stat(filepath.Join(dir, "config.yaml")); err == nil {
		o.Dir = recipe.RunDir{Resume: dir}
	}
	_, err = Run(context.Background(), *o, printer{run.Listen(nil)})
	return err
}

// printer is a reporter that prints every step.
type printer struct{ run.Reporter }

func (p printer) Progress(unit string, start, total int) run.Bar {
	return printerBar{p.Reporter.Progress(unit, start, total)}
}

type printerBar struct{ run.Bar }

func (b printerBar) Step(done int, values map[string]float64) { fmt.Println("step", done) }

// TestKilled kills simulations at random moments, over and over, and compares what they end in with undisturbed ones.
func TestKilled(t *testing.T) {
	for k, method := range []string{protocol.AFedPG, protocol.FedNPGADMM} {
		whole, broken := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "broken")
		testkit.Child(t, 0, 0, method, whole)
		r := rand.New(rand.NewPCG(uint64(k), 3))
		kills := testkit.UntilDone(t, 200, func() (killed bool) {
			_, killed = testkit.Child(t, 1+r.IntN(6), time.Duration(r.IntN(8000))*time.Microsecond, method, broken)
			return killed
		})
		t.Logf("%s: killed %d times", method, kills)
		if kills < 5 {
			t.Errorf("%s: killed %d times: want at least 5", method, kills)
		}
		want := contentsOf(t, whole)
		for name, text := range contentsOf(t, broken) {
			if text != want[name] {
				t.Errorf("%s: another %s", method, name)
			}
		}
	}
}
