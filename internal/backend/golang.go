package backend

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
)

// openGo opens the pure Go engine with an unbounded worker pool. In a bounded pool, the library's default, all workers
// can end up in nested matrix products that wait for a free worker.
func openGo() (*Engine, error) {
	b, err := gobackend.New("")
	if err != nil {
		return nil, fmt.Errorf("backend go: %w", err)
	}
	if err := unboundWorkers(b); err != nil {
		return nil, err
	}
	chooseKernels()
	wants := Wants{SharedMemory: true, HostRows: true, Collected: true, Tokens: 1024, Overhead: 16, LiveGraphs: 64}
	return &Engine{Backend: b, owner: b, Name: "go", Wants: wants, hint: goHint}, nil
}

// unboundWorkers does what the configuration "parallelism=-1" does, without the line that this prints on standard
// output. It uses reflection since the engine's type is internal, while its field Workers is exported.
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
	return errors.New("backend go: this version of github.com/gomlx/compute hides its worker pool, which deadlocks " +
		"unless it is unbounded")
}

func statusGo() Status {
	detail := fmt.Sprintf("pure Go, %d threads, slow", runtime.GOMAXPROCS(0))
	if goHint != "" {
		detail += "; " + goHint
	}
	return Status{Name: "go", Present: true, Detail: detail}
}
