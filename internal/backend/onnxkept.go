package backend

import (
	"reflect"
	"sync"

	"github.com/gomlx/compute"
)

// dropOutputs frees what a program keeps of finalised outputs for its next run, which compute-onnx gives no other way
// to. For a gradient they are as large as the weights, for each shape of batches anew.
func (p *Program) dropOutputs() {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept, mu := keptOutputs(p.exec)
	if mu == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range kept.Len() {
		if b, is := kept.Index(i).Interface().(interface{ Destroy() error }); is {
			_ = b.Destroy() // it is gone either way
		}
	}
	kept.SetZero()
}

// keptOutputs is the list of them, with the lock that guards it; nil: the engine keeps none.
func keptOutputs(exec compute.Executable) (kept reflect.Value, mu *sync.Mutex) {
	v := reflect.ValueOf(exec)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return kept, nil
	}
	kept, lock := v.Elem().FieldByName("reusableWrappers"), v.Elem().FieldByName("mu")
	if !kept.IsValid() || kept.Kind() != reflect.Slice || !lock.IsValid() {
		return kept, nil
	}
	mu, _ = reflect.NewAt(lock.Type(), lock.Addr().UnsafePointer()).Interface().(*sync.Mutex)
	return reflect.NewAt(kept.Type(), kept.Addr().UnsafePointer()).Elem(), mu
}
