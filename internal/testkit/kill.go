package testkit

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// childVar is set in the environment of the processes that [Child] starts.
const childVar = "POSTTRAIN_TEST_CHILD"

// Main is the TestMain of a package whose tests start processes to kill. It runs the tests, or child in a process that
// [Child] started.
func Main(m *testing.M, child func(args []string) error) {
	if os.Getenv(childVar) == "" {
		os.Exit(m.Run())
	}
	if err := child(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Child starts the test binary as a process with these arguments, and kills it (SIGKILL) a delay after it has printed
// the given number of lines; after 0 lines it is never killed. It returns the lines, and whether the process was
// killed. If the process fails by itself, the test fails.
func Child(t testing.TB, after int, delay time.Duration, args ...string) (printed []string, killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVar+"=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	expect.OK(t, err)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if printed = append(printed, lines.Text()); len(printed) == after {
			time.AfterFunc(delay, func() { cmd.Process.Kill() })
		}
	}
	err = cmd.Wait()
	if err != nil && !strings.Contains(err.Error(), "killed") {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return printed, err != nil
}

// UntilDone repeats attempt until it is not killed, and returns the number of kills. More than most fail the test.
func UntilDone(t testing.TB, most int, attempt func() (killed bool)) (kills int) {
	t.Helper()
	for attempt() {
		if kills++; kills > most {
			t.Fatalf("killed %d times: it never ends", kills)
		}
	}
	return kills
}
