package expect

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// NoLeaks runs the tests of a package for its TestMain. It fails if they leave a goroutine or, on Linux, an open file
// behind.
func NoLeaks(m *testing.M) (code int) {
	before := left(nil)
	if code = m.Run(); code != 0 {
		return code
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		leaks := left(before)
		if len(leaks) == 0 {
			return 0
		}
		if time.Now().After(end) {
			for _, what := range leaks {
				fmt.Printf("left by the tests: %s\n", what)
			}
			return 1
		}
	}
}

// left are the goroutines and files that are open now but were not before, described by their names in this process.
func left(before map[string]string) map[string]string {
	now := map[string]string{}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for s := range strings.SplitSeq(string(stacks), "\n\n") {
		// the loop of package os/signal ends with the process
		if name, _, _ := strings.Cut(s, " ["); !strings.Contains(s, "expect.left(") && !strings.Contains(s, "os/signal.loop(") {
			now[name] = s
		}
	}
	files, _ := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		name := "/proc/self/fd/" + f.Name()
		target, err := os.Readlink(name)
		if err == nil && !strings.HasPrefix(target, "anon_inode:[event") { // the runtime's poller has these
			now[name+" "+target] = name + " " + target
		}
	}
	for name := range before {
		delete(now, name)
	}
	return now
}
