//go:build unix

package link

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// childVar makes the test binary a server that is killed, or that runs out of disk.
const childVar = "POSTTRAIN_JOURNAL_TEST_CHILD"

func TestMain(m *testing.M) {
	how := os.Getenv(childVar)
	if how == "" {
		os.Exit(expect.NoLeaks(m))
	}
	if err := child(os.Args[1], how); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

const childUpdates = 60

// child continues the run of a folder. It prints each update that is acknowledged, after it is.
func child(dir, how string) error {
	folder, err := run.Open(dir)
	if err != nil {
		return err
	}
	if how == "full" {
		limit := syscall.Rlimit{Cur: 3000, Max: 3000}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
	}
	k, err := OpenJournal(folder, newFake(), JournalOptions{Format: format, Every: 7, Keep: 2})
	if err != nil {
		return err
	}
	w := &driver{agents: []int{-1, -1, -1}, acknowledged: map[[2]int]int{}, turn: k.Version()}
	for k.Version() < childUpdates {
		before := len(w.acknowledged)
		if err := w.step(k); err != nil {
			return err
		}
		if len(w.acknowledged) > before {
			fmt.Println("accepted", k.Version())
		}
	}
	fmt.Println("end", Hash(k.server.Params()))
	return nil
}

// runChild starts a server and kills it after that many acknowledgements; -1: never. It returns its output.
func runChild(t *testing.T, dir, how string, kill int) (lines []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), childVar+"="+how)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	expect.OK(t, err)
	for in := bufio.NewScanner(out); in.Scan(); {
		if lines = append(lines, in.Text()); len(lines) == kill {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	return lines
}

// TestKilledServers: servers that are killed at random moments lose no update that they have acknowledged, and end in
// the bits that the journal gives to an undisturbed server.
func TestKilledServers(t *testing.T) {
	w := newDriver(t, 7)
	rng := rand.New(rand.NewPCG(1, 2))
	acknowledged, kills := 0, 0
	for {
		lines := runChild(t, w.dir, "kill", 1+rng.IntN(6))
		last := ""
		for _, line := range lines {
			var version int
			if _, err := fmt.Sscanf(line, "accepted %d", &version); err == nil {
				acknowledged = max(acknowledged, version)
			}
			last = line
		}
		if end, ok := strings.CutPrefix(last, "end "); ok {
			if r := replay(t, w.dir); r.Params != end || !r.same() || len(r.Found) != 2 {
				t.Errorf("the server ended at %s, replay: %+v", end, r)
			}
			break
		}
		if strings.HasPrefix(last, "error") {
			t.Fatal(last)
		}
		kills++
		if r := replay(t, w.dir); r.Version < acknowledged || !r.same() {
			t.Fatalf("version %d was acknowledged, replay: %+v", acknowledged, r)
		}
	}
	if kills < 10 {
		t.Errorf("only %d kills", kills)
	}
}

// TestDiskFull: a journal that does not fit is one line that names it; nothing of it stays half written, and with room
// the run continues.
func TestDiskFull(t *testing.T) {
	w := newDriver(t, 7)
	lines := runChild(t, w.dir, "full", -1)
	want := "error: " + w.dir + "/" + JournalName + " cannot be written: file too large"
	if last := lines[len(lines)-1]; last != want {
		t.Errorf("found %q, want %q", last, want)
	}
	text, err := os.ReadFile(w.dir + "/" + JournalName)
	if err != nil || !bytes.HasSuffix(text, []byte("\n")) {
		t.Errorf("the journal ends with %.20q, error %v", text[max(0, len(text)-20):], err)
	}
	if lines = runChild(t, w.dir, "whole", -1); !strings.HasPrefix(lines[len(lines)-1], "end ") {
		t.Errorf("the run does not continue: %q", lines)
	}
}
