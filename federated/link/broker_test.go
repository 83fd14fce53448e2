package link

import (
	"errors"
	"fmt"
	"net"
	"testing"
)

// TestAddressTaken: a program that takes the address at the last moment is named as one that had it before.
func TestAddressTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, before := CheckListen(taken.Addr().String())
	_, after := StartBroker(BrokerOptions{Listen: taken.Addr().String(), Store: t.TempDir(), Run: "r"})
	if want := fmt.Sprintf("listen %s: address already in use: want another port, or end the program that has it",
		taken.Addr()); fmt.Sprint(before) != want || fmt.Sprint(after) != want {
		t.Errorf("%v; %v", before, after)
	}
}

// TestStoreLost: a broker that can no longer store messages ends the run once, with its first line about it.
func TestStoreLost(t *testing.T) {
	var warned []string
	var failed []error
	l := &brokerLog{warn: func(format string, args ...any) { warned = append(warned, fmt.Sprintf(format, args...)) },
		failed: func(err error) { failed = append(failed, err) }}
	full := errors.New("write msgs/5.blk: no space left on device")
	l.Errorf("something else")
	l.Errorf("Filestore [%s] Critical write error: %v", "S", full)
	l.Errorf("JetStream failed to store a msg on stream '%s > %s': %v", "$G", "S", full)
	l.Errorf("JetStream out of space, will be DISABLED")
	if fmt.Sprint(failed) != "[broker: Filestore [S] Critical write error: "+full.Error()+"]" ||
		fmt.Sprint(warned) != "[broker: something else]" || !l.died() {
		t.Errorf("failed %q, warned %q", failed, warned)
	}
}
