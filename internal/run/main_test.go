package run

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// childVar makes the test binary do the work of a process that is killed, or that runs out of disk.
const childVar = "POSTTRAIN_RUN_TEST_CHILD"

func TestMain(m *testing.M) {
	children := map[string]func(dir string) error{"checkpoints": writeForever, "hold": holdLock, "full": fillDisk}
	child, ok := children[os.Getenv(childVar)]
	if !ok {
		os.Exit(expect.NoLeaks(m))
	}
	if err := child(os.Args[1]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// content is what the test checkpoints of a step hold under a name.
func content(step int, name string) []byte {
	rng := rand.New(rand.NewPCG(uint64(step), uint64(len(name))))
	b := make([]byte, 20_000+rng.IntN(60_000))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

var contentNames = []string{"weights.bin", "moments.bin", "nested/state.bin"}

func writeContent(step int) func(dir string) error {
	return func(dir string) error {
		if err := os.Mkdir(filepath.Join(dir, "nested"), 0o777); err != nil {
			return err
		}
		for _, name := range contentNames {
			if err := os.WriteFile(filepath.Join(dir, name), content(step, name), 0o666); err != nil {
				return err
			}
		}
		return nil
	}
}

// unhashed is for files whose SHA-256 is not computed while they are written.
func unhashed(write func(dir string) error) func(string, Wrote) error {
	return func(dir string, _ Wrote) error { return write(dir) }
}

func checkContent(step int) func(dir string) error {
	return func(dir string) error {
		for _, name := range contentNames {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			if !bytes.Equal(b, content(step, name)) {
				return fmt.Errorf("%s of step %d holds something else", name, step)
			}
		}
		return nil
	}
}

// writeForever continues from the latest checkpoint, prints the step of every checkpoint that is complete, and never
// ends by itself. Every third checkpoint is written twice, which replaces a folder.
func writeForever(dir string) error {
	f, err := Open(dir)
	if err != nil {
		return err
	}
	latest, _, err := f.Latest()
	if err != nil && latest.Step != 0 {
		return err
	}
	for step := latest.Step + 1; ; step++ {
		for range 1 + (step%3)/2 {
			if _, err := f.WriteCheckpoint(step, writeContent(step)); err != nil {
				return err
			}
			fmt.Println(step)
		}
		if step%4 == 0 {
			if err := f.WriteBest(step, unhashed(writeContent(step))); err != nil {
				return err
			}
			if err := f.MarkBest(step, "eval_loss", 1/float64(step)); err != nil {
				return err
			}
		}
		if err := f.Prune(2); err != nil {
			return err
		}
	}
}

// holdLock opens the folder and waits to be killed.
func holdLock(dir string) error {
	f, err := Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Println("held")
	_, err = os.Stdin.Read(make([]byte, 1)) // the parent never writes
	return err
}

// fillDisk logs a record, then forbids itself files over 200 bytes, logs another, and saves: the system's own refusal.
func fillDisk(dir string) error {
	f, err := Open(dir)
	if err != nil {
		return err
	}
	if _, err := f.WriteCheckpoint(1, func(string) error { return nil }); err != nil {
		return err
	}
	if err := f.Log(Record{Step: 1, Values: map[string]float64{"loss": 0.5}}); err != nil {
		return err
	}
	limit := syscall.Rlimit{Cur: 200, Max: 200}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	long := map[string]float64{}
	for i := range 40 {
		long[fmt.Sprint("metric", i)] = float64(i)
	}
	fmt.Println(f.Log(Record{Step: 2, Values: long}))
	_, err = f.WriteCheckpoint(2, writeContent(2))
	fmt.Println(err)
	_, err = f.WriteCheckpoint(3, writeMany) // only the manifest is too long
	fmt.Println(err)
	return nil
}

func writeMany(dir string) error {
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), nil, 0o666); err != nil {
			return err
		}
	}
	return nil
}
