package backend

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// PanicError is a panic of a library or of a function that builds a graph, turned into an error.
type PanicError struct {
	Value any    // what was panicked with; an error is unwrapped
	Stack []byte // where, for developers
}

func (p *PanicError) Error() string { return oneLine(fmt.Sprint(p.Value)) }

func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// recovered turns a panic into *err, which says what was being done.
func recovered(err *error, doing string) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("backend: %s: %w", doing, &PanicError{Value: v, Stack: debug.Stack()})
	}
}

// oneLine joins the lines of a library's message.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
