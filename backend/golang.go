package backend

import (
	"fmt"
	"reflect"
	"runtime"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
)

// openGo opens the pure Go engine with an unbounded worker pool. With a bounded one (the library's default) every
// worker can end up waiting in a nested matrix product for a worker that never comes free.
func openGo() (*Engine, error) {
	b, err := gobackend.New("")
	if err != nil {
		return nil, fmt.Errorf("backend go: %w", err)
	}
	if err := unboundWorkers(b); err != nil {
		return nil, err
	}
	return newEngine("go", b, b, Wants{HostUpdate: true, HostRows: true, Tokens: 1024, LiveGraphs: 64}), nil
}

// unboundWorkers does what the configuration "parallelism=-1" does, which also prints a line on standard output. The
// type lies in an internal package, its field Workers is exported.
func unboundWorkers(b compute.Backend) error {
	v := reflect.Indirect(reflect.ValueOf(b))
	if v.Kind() == reflect.Struct {
		if field := v.FieldByName("Workers"); field.IsValid() && field.CanInterface() {
			if pool, ok := field.Interface().(interface{ SetMaxParallelism(int) }); ok {
				pool.SetMaxParallelism(-1)
				return nil
			}
		}
	}
	return fmt.Errorf("backend go: this version of github.com/gomlx/compute hides its worker pool, which deadlocks unless it is unbounded")
}

func statusGo() Status {
	return Status{Name: "go", Present: true, Detail: fmt.Sprintf("pure Go, %d threads, slow", runtime.GOMAXPROCS(0))}
}
