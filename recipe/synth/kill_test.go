package synth

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestMain(m *testing.M) {
	testkit.Main(m, func(args []string) error {
		var skip int
		fmt.Sscan(args[2], &skip)
		_, err := Run(context.Background(), ofChild(args[0], args[1]), steps{skip})
		return err
	})
}

// ofChild asks one question at a time.
func ofChild(url, out string) Options {
	o := Spec.Defaults()
	o.N, o.PerSeed, o.Out = 9, []int{2, 2}, out
	o.Writer.BaseURL, o.Writer.Model, o.Writer.Parallel = url, "m", 1
	return o
}

// steps prints a line for each seed that is done beyond those that the process before had done.
type steps struct{ skip int }

func (steps) Say(string, ...any)                  {}
func (steps) Warn(string, ...any)                 {}
func (s steps) Progress(string, int, int) run.Bar { return s }
func (s steps) Step(done int, _ map[string]float64) {
	if done > s.skip {
		fmt.Println(done)
	}
}
func (steps) Part(run.Part) {}
func (steps) Notice(string) {}
func (steps) Close()        {}

// TestKilled kills the process again and again, at any point. Each kill costs the question under way, no
// other is asked twice, and the items are an undisturbed run's.
func TestKilled(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	var mu sync.Mutex
	asked := map[string]int{}
	s := testkit.StartJudge(t, testkit.JudgeOptions{Converse: func(messages []string, _ bool) string {
		mu.Lock()
		defer mu.Unlock()
		asked[strings.Join(messages, "\n")]++
		return speaker(messages[0])
	}})
	whole, broken := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "broken")
	if _, err := Run(t.Context(), ofChild(s.URL, whole), nil); err != nil {
		t.Fatal(err)
	}
	clear(asked)
	kills := testkit.UntilDone(t, 60, func() bool {
		mu.Lock()
		n := len(asked)
		mu.Unlock()
		_, killed := testkit.Child(t, 1, time.Duration(n%4)*time.Millisecond, s.URL, broken, fmt.Sprint(n/3))
		return killed
	})
	again := 0
	for _, n := range asked {
		again += n - 1
	}
	if len(asked) != 27 || again > kills || kills < 3 {
		t.Errorf("%d kills, %d questions, %d of them again: want 27, and one again for each kill at most", kills,
			len(asked), again)
	}
	for _, name := range []string{SeedsName, ItemsName, RejectedName, "summary.json"} {
		want := expect.Read(t, filepath.Join(whole, name))
		if got, err := os.ReadFile(filepath.Join(broken, name)); err != nil || string(got) != want {
			t.Errorf("%s differs: %v", name, err)
		}
	}
}
