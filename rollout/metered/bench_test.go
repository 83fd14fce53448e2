package metered

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout/remote"
)

// BenchmarkJudge asks the questions of PrivacyLens's 493 cases, with prompts of their length, of a judge that answers
// in 200 ms, 32 at a time: how much longer it takes than the judge alone would, and how much the heap grows from the
// 200th question to its largest. The test's server is in the same heap.
//
//	go test ./rollout/metered -run '^$' -bench Judge -benchtime 1x
func BenchmarkJudge(b *testing.B) {
	const n, parallel, delay = leakage + helpfulness, 32, 200 * time.Millisecond
	const ideal = (n + parallel - 1) / parallel * delay
	long := strings.Repeat("what the agent knows and does ", 150)
	s := testkit.StartJudge(b, testkit.JudgeOptions{Delay: delay})
	var slowest float64
	var grown int64
	for b.Loop() {
		c := open(b, s, func(o *Options) { o.Parallel, o.Cache = parallel, filepath.Join(b.TempDir(), "judge.jsonl") })
		var mu sync.Mutex
		var done int
		var early, most int64
		begin := time.Now()
		err := remote.InParallel(b.Context(), parallel, n, func(ctx context.Context, i int) error {
			_, err := c.Ask(ctx, long+question(i))
			mu.Lock()
			defer mu.Unlock()
			switch done++; {
			case done == 200:
				early = heap()
			case done > 200 && done%100 == 0:
				most = max(most, heap())
			}
			return err
		})
		expect.OK(b, err)
		slowest = max(slowest, float64(time.Since(begin))/float64(ideal))
		grown = max(grown, most-early)
		c.Close()
	}
	b.ReportMetric(slowest, "x-ideal")
	b.ReportMetric(float64(grown)/1024, "heap-growth-KiB")
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
