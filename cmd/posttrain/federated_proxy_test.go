//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy is between clients and server and knows where NATS messages begin and end. What it does to them is drawn
// from its seed.
type proxy struct {
	to     string
	l      net.Listener
	harm   harm
	mu     sync.Mutex
	rng    *rand.Rand
	did    map[string]int // faults, by name
	left   int            // faults that may still come
	conns  map[net.Conn]bool
	closed bool
	raw    int // > 0: messages cannot be read, and one in raw pieces of bytes is damaged or cut
}

// harm are the shares of messages that something happens to.
type harm struct {
	flip, double, swap, cut, delay float64
	most                           int // faults in all, so that a run ends
}

func newProxy(t *testing.T, to string, seed uint64, h harm) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: to, l: l, harm: h, rng: rand.New(rand.NewPCG(seed, 14)), did: map[string]int{}, left: h.most,
		conns: map[net.Conn]bool{}}
	go p.accept()
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.l.Addr().String() }

func (p *proxy) close() {
	p.l.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			client.Close() // the server is away: the client tries again
			continue
		}
		if !p.keep(client, server) {
			return
		}
		go p.carry(server, client)
		go p.carry(client, server)
	}
}

// keep remembers connections, to close them at the end.
func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.conns[c] = true; p.closed {
			c.Close()
		}
	}
	return !p.closed
}

var errCut = errors.New("cut")

// carry copies messages one way until an end breaks.
func (p *proxy) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	in := bufio.NewReaderSize(from, 64<<10)
	if p.raw > 0 {
		p.carryRaw(to, in)
		return
	}
	line := &lane{to: to}
	for {
		frame, body, err := readFrame(in)
		if err != nil {
			return
		}
		out, hold := frame, false
		if body > 0 {
			if out, hold, err = p.treat(frame, body); err == errCut {
				line.write(out)
				return
			}
		}
		if hold {
			line.hold(out)
		} else if err := line.write(out); err != nil {
			return
		}
	}
}

// lane writes one way. A message that is held back follows the next one, or comes by itself a little later.
type lane struct {
	to   net.Conn
	mu   sync.Mutex
	held []byte
}

func (l *lane) hold(frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, frame...)
	time.AfterFunc(20*time.Millisecond, func() { l.write(nil) })
}

func (l *lane) write(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b = append(bytes.Clone(b), l.held...)
	l.held = nil
	_, err := l.to.Write(b)
	return err
}

// carryRaw copies bytes one way, as of a connection with TLS.
func (p *proxy) carryRaw(to net.Conn, in io.Reader) {
	piece := make([]byte, 4096)
	for {
		n, err := in.Read(piece)
		if err != nil {
			return
		}
		p.mu.Lock()
		if n > 5 && p.rng.IntN(p.raw) == 0 { // not in a record's length, where the reader would wait for more
			p.did["flip"]++
			piece[5+p.rng.IntN(n-5)] ^= 4
		}
		p.mu.Unlock()
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}

// readFrame reads a line of the protocol with what belongs to it. body is where the data of a message begins, 0 for
// other lines.
func readFrame(in *bufio.Reader) (frame []byte, body int, err error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, 0, err
	}
	f := strings.Fields(string(line))
	if len(f) == 0 {
		return line, 0, nil
	}
	headers := 0
	switch strings.ToUpper(f[0]) {
	case "HPUB", "HMSG":
		headers, err = strconv.Atoi(f[len(f)-2])
		if err != nil {
			return line, 0, nil
		}
	case "PUB", "MSG":
	default:
		return line, 0, nil
	}
	size, err := strconv.Atoi(f[len(f)-1])
	if err != nil {
		return line, 0, nil
	}
	frame = append(line, make([]byte, size+2)...)
	_, err = io.ReadFull(in, frame[len(line):])
	return frame, len(line) + headers, err
}

// treat decides what happens to a message: bytes to write, now or after the next one.
func (p *proxy) treat(frame []byte, body int) (out []byte, hold bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := len(frame) - 2 - body
	name := strings.Fields(string(frame[:bytes.IndexByte(frame, '\n')]))[1]
	update := strings.Contains(name, ".up.")
	draw, part := p.rng.Float64(), 0.0
	is := func(name string, share float64) bool {
		part += share
		if p.left == 0 || draw >= part {
			return false
		}
		draw = 2
		p.left--
		p.did[name]++
		return true
	}
	switch {
	case update && size > 0 && is("flip", p.harm.flip):
		frame = bytes.Clone(frame)
		frame[body+p.rng.IntN(size)] ^= 1 << p.rng.IntN(8)
	case update && is("double", p.harm.double):
		return append(bytes.Clone(frame), frame...), false, nil
	case update && is("swap", p.harm.swap):
		return frame, true, nil
	case is("cut", p.harm.cut):
		return frame[:p.rng.IntN(len(frame))], false, errCut
	case is("delay", p.harm.delay):
		time.Sleep(time.Duration(p.rng.IntN(20)) * time.Millisecond)
	}
	return frame, false, nil
}

func (p *proxy) counts() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.did)
}

func (p *proxy) count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.did[name]
}
