package link

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// BrokerOptions say where the broker listens.
type BrokerOptions struct {
	Listen string // address and port; port 0: a free one
	Run    string
	Keys   *Keys                            // nil: no TLS and no keys, which a loopback address alone allows
	Warn   func(format string, args ...any) // what the broker reports; may be nil
}

// Broker is a NATS server in this process. It stores nothing.
type Broker struct {
	server *server.Server
	gate   *gate
	stop   context.CancelFunc
	idle   sync.WaitGroup
	secure bool
	warn   func(format string, args ...any)
}

const startTimeout = 20 * time.Second

// StartBroker starts a broker.
func StartBroker(o BrokerOptions) (*Broker, error) {
	host, port, err := splitAddress(o.Listen)
	if err != nil {
		return nil, err
	}
	if o.Keys == nil && !isLoopback(host) {
		return nil, fmt.Errorf("listen %s: an address that other machines reach needs TLS: "+
			"want keys, or a loopback address such as 127.0.0.1:4222", o.Listen)
	}
	s := &server.Options{
		ServerName: "posttrain-" + o.Run, Host: host, Port: port, NoSigs: true,
		AuthTimeout: 10, TLSTimeout: 10, PingInterval: 20 * time.Second, MaxPingsOut: 2,
	}
	if o.Warn == nil {
		o.Warn = func(string, ...any) {}
	}
	b := &Broker{secure: o.Keys != nil, warn: o.Warn}
	if o.Keys != nil {
		b.gate = &gate{keys: o.Keys, run: o.Run, warn: o.Warn}
		s.TLS, s.TLSConfig, s.AlwaysEnableNonce = true, o.Keys.serverTLS(), true
		s.CustomClientAuthentication = b.gate
	}
	if b.server, err = server.NewServer(s); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	return b, b.start(o)
}

func (b *Broker) start(o BrokerOptions) error {
	heard := &brokerLog{warn: o.Warn}
	b.server.SetLoggerV2(heard, false, false, false)
	b.server.Start()
	ready := false
	for end := time.Now().Add(startTimeout); !ready && heard.fatal.Load() == nil && time.Now().Before(end); {
		ready = b.server.ReadyForConnections(50 * time.Millisecond)
	}
	if !ready {
		b.server.Shutdown()
		b.server.WaitForShutdown()
		if _, err := CheckListen(o.Listen); err != nil {
			return err // another program was quicker
		}
		return fmt.Errorf("broker: listen %s: it does not answer: %v", o.Listen, heard.fatal.Load())
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	if b.gate != nil {
		b.idle.Go(func() { b.gate.watch(ctx, b.server) })
	}
	return nil
}

// Close ends the broker and everything that it runs. It may be called twice.
func (b *Broker) Close() {
	b.stop()
	b.idle.Wait()
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// URL is where agents connect.
func (b *Broker) URL() string {
	scheme := "nats"
	if b.secure {
		scheme = "tls"
	}
	return scheme + "://" + b.server.Addr().String()
}

// CheckListen refuses an address that no server can listen on, or that is taken. local says that only this machine
// reaches it.
func CheckListen(listen string) (local bool, err error) {
	host, _, err := splitAddress(listen)
	if err != nil {
		return false, err
	}
	l, err := net.Listen("tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, fmt.Errorf("listen %s: address already in use: want another port, or end the program that has it",
			listen)
	}
	if err != nil {
		return false, fmt.Errorf("listen %s: %w", listen, errors.Unwrap(err))
	}
	return isLoopback(host), l.Close()
}

func splitAddress(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("listen %q: want an address and a port, such as 127.0.0.1:4222", listen)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return host, port, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// brokerLog hears what the broker reports. Its notices, which are many, are dropped.
type brokerLog struct {
	warn  func(format string, args ...any)
	fatal atomic.Value // the line with which the broker has given up
}

func (l *brokerLog) Noticef(string, ...any)            {}
func (l *brokerLog) Debugf(string, ...any)             {}
func (l *brokerLog) Tracef(string, ...any)             {}
func (l *brokerLog) Warnf(string, ...any)              {}
func (l *brokerLog) Fatalf(format string, args ...any) { l.fatal.Store(fmt.Sprintf(format, args...)) }

func (l *brokerLog) Errorf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if !strings.Contains(line, "authentication error") { // the gate has said it better
		l.warn("broker: %s", line)
	}
}

// gate lets in the server of the run and the invited agents, each with its own rights.
type gate struct {
	keys *Keys
	run  string
	warn func(format string, args ...any)
}

// Check implements server.Authentication.
func (g *gate) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	who, err := g.admit(o.Nkey, o.Sig, c.GetNonce())
	if err != nil {
		g.warn("connection from %s refused: %s", c.RemoteAddress(), err)
		return false
	}
	if who == "" { // the server itself
		return true
	}
	publish, subscribe := rightsOf(g.run, who)
	c.RegisterUser(&server.User{Username: o.Nkey, Permissions: &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: publish},
		Subscribe: &server.SubjectPermission{Allow: subscribe},
		Response:  &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute},
	}})
	return true
}

// admit finds the agent of a key, "" for the server's own, and checks that the client holds its secret half.
func (g *gate) admit(key, signature string, nonce []byte) (agent string, err error) {
	if key == "" {
		return "", errors.New("it has no key")
	}
	if agent, err = g.find(key); err != nil {
		return "", err
	}
	pair, err := nkeys.FromPublicKey(key)
	if err != nil {
		return "", errors.New("its key is not an NKey")
	}
	sig, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || pair.Verify(nonce, sig) != nil {
		return "", fmt.Errorf("it does not hold the secret of agent %q's key", agent)
	}
	return agent, nil
}

func (g *gate) find(key string) (agent string, err error) {
	if key == g.keys.public {
		return "", nil
	}
	all, err := g.keys.registry()
	if err != nil {
		return "", err
	}
	for name, e := range all {
		switch {
		case e.Key == key && e.Revoked:
			return "", fmt.Errorf("the key of agent %q is revoked", name)
		case e.Key == key:
			return name, nil
		}
	}
	return "", errors.New("its key belongs to no agent of this run")
}

// watchEvery is how soon a revoked agent loses its connection.
const watchEvery = time.Second

// watch closes the connections of agents that are revoked.
func (g *gate) watch(ctx context.Context, s *server.Server) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for seen := g.keys.changed(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := g.keys.changed(); !now.Equal(seen) {
			g.expel(s)
			seen = now
		}
	}
}

func (g *gate) expel(s *server.Server) {
	all, err := s.Connz(&server.ConnzOptions{Username: true, Limit: 1 << 20})
	if err != nil {
		return // the broker ends
	}
	for _, c := range all.Conns {
		if _, err := g.find(c.AuthorizedUser); c.AuthorizedUser != "" && err != nil {
			s.DisconnectClientByID(c.Cid) // an error: it has gone by itself
		}
	}
}

// Connect connects this process to its broker, without a socket.
func (b *Broker) Connect() (*nats.Conn, error) {
	more := []nats.Option{nats.InProcessServer(b.server),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.warn("broker: %s", err) })}
	if b.gate != nil {
		proof, err := withKey(b.gate.keys.signer)
		if err != nil {
			return nil, err
		}
		more = append(more, proof, nats.Secure(trusting(string(b.gate.keys.own))))
	}
	return nats.Connect("", options("server", more...)...)
}
