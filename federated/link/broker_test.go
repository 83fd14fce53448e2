package link

import (
	"fmt"
	"net"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestAddressTaken: a program that takes the address at the last moment is named as one that had it before.
func TestAddressTaken(t *testing.T) {
	taken := expect.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	_, before := CheckListen(taken.Addr().String())
	_, after := StartBroker(BrokerOptions{Listen: taken.Addr().String(), Run: "r"})
	if want := fmt.Sprintf("listen %s: address already in use: want another port, or end the program that has it",
		taken.Addr()); fmt.Sprint(before) != want || fmt.Sprint(after) != want {
		t.Errorf("%v; %v", before, after)
	}
}
