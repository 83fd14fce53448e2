package metered

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout/remote"
)

func TestMain(m *testing.M) {
	testkit.Main(m, func(args []string) error { return judgeChild(args[0], args[1]) })
}

// stall is how long clients wait for a reply: short, since some servers stall, and long enough for a busy machine.
const stall = 2 * time.Second

// judgeChild asks all questions and prints the number of each that is answered.
func judgeChild(url, path string) error {
	c, err := Open(Options{Server: remote.Server{BaseURL: url, Parallel: 32, Timeout: stall}, Model: "tiny", Cache: path,
		Wait: time.Millisecond, Retries: 8})
	if err != nil {
		return err
	}
	defer c.Close()
	var mu sync.Mutex
	return judgeAll(context.Background(), c, leakage+helpfulness, func(i int) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(i)
	})
}

// TestKilled kills the process at random points while a tenth of the requests fail: answered questions are in the
// cache, cached ones are never asked again, and in the end every reply is there once.
func TestKilled(t *testing.T) {
	const n = leakage + helpfulness
	var kept sync.Map // prompts that were in the cache when a process was killed
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: verdict, Delay: 2 * time.Millisecond, Faults: 0.1,
		Stall: time.Minute, Seed: 2, Watch: func(prompt string) {
			if _, ok := kept.Load(prompt); ok {
				t.Errorf("asked again: %q", prompt)
			}
		}})
	path := filepath.Join(t.TempDir(), "judge.jsonl")
	names := questionNames()
	r := rand.New(rand.NewPCG(3, 3))
	before := 0
	kills := testkit.UntilDone(t, 100, func() bool {
		answered, killed := testkit.Child(t, before+50+r.IntN(250), time.Duration(r.IntN(5000))*time.Microsecond, s.URL,
			path)
		inside := map[int]bool{}
		for _, e := range entries(t, path, !killed) {
			i, ok := names[e.Name]
			if !ok || inside[i] || e.Reply != verdict(question(i)) {
				t.Fatalf("%+v: of no question, there twice, or not its reply", e)
			}
			inside[i] = true
			kept.Store(question(i), true)
		}
		for _, line := range answered {
			if i, err := strconv.Atoi(line); err != nil || !inside[i] {
				t.Fatalf("question %s was answered and is not in the cache (%v)", line, err)
			}
		}
		before = len(inside)
		return killed
	})
	all, _ := s.Requests()
	t.Logf("killed %d times, %d requests for %d questions", kills, all, n)
	if got := len(entries(t, path, true)); got != n || kills < 3 {
		t.Errorf("%d replies after %d kills, want %d", got, kills, n)
	}
}

// questionNames maps the questions' names in the cache to their numbers.
func questionNames() map[string]int {
	c := newClient(Options{Model: "tiny", MaxNew: 400})
	names := map[string]int{}
	for i := range leakage + helpfulness {
		names[fmt.Sprintf("%x", c.name(chat{messages: []data.Message{{Role: "user", Content: question(i)}}}))] = i
	}
	return names
}

// entries returns the whole lines of a cache; with whole set, half a line at the end is an error.
func entries(t *testing.T, path string, whole bool) (all []entry) {
	t.Helper()
	b := expect.Read(t, path)
	lines := strings.SplitAfter(b, "\n")
	if whole && lines[len(lines)-1] != "" {
		t.Errorf("half a line at the end: %q", lines[len(lines)-1])
	}
	for _, line := range lines[1 : len(lines)-1] {
		var e entry
		expect.OK(t, json.Unmarshal([]byte(line), &e))
		all = append(all, e)
	}
	return all
}
