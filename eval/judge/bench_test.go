package judge

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/eval/judge/judgetest"
)

// BenchmarkJudge asks the questions of PrivacyLens's 493 cases, with prompts of their length, of a judge that answers in
// 200 ms, 32 at a time: how much longer it takes than the judge alone would, and how much the heap grows from the 200th
// question to its largest. The test's server is in the same heap.
//
//	go test ./eval/judge -run '^$' -bench Judge -benchtime 1x
func BenchmarkJudge(b *testing.B) {
	const n, parallel, delay = leakage + helpfulness, 32, 200 * time.Millisecond
	const ideal = (n + parallel - 1) / parallel * delay
	long := strings.Repeat("what the agent knows and does ", 150)
	s := judgetest.Start(b, judgetest.Options{Delay: delay})
	var slowest float64
	var grown int64
	for b.Loop() {
		c := open(b, s, func(o *Options) { o.Parallel, o.Cache = parallel, filepath.Join(b.TempDir(), "judge.jsonl") })
		var early, most int64
		begin := time.Now()
		err := Run(b.Context(), n, parallel, func(ctx context.Context, i int) (string, error) { return c.Ask(ctx, long+question(i)) },
			func(i int, _ string) error {
				switch {
				case i == 200:
					early = heap()
				case i > 200 && i%100 == 0:
					most = max(most, heap())
				}
				return nil
			})
		if err != nil {
			b.Fatal(err)
		}
		slowest = max(slowest, float64(time.Since(begin))/float64(ideal))
		grown = max(grown, most-early)
		c.Close()
	}
	b.ReportMetric(slowest, "x-ideal")
	b.ReportMetric(float64(grown)/1024, "heap-growth-KiB")
}

// heap is what is in use after a collection, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
