package link

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// BrokerOptions say where the broker listens.
type BrokerOptions struct {
	Listen string // address and port; port 0: a free one
	Run    string
	Keys   *Keys                            // nil: no TLS and no keys, which a loopback address alone allows
	Warn   func(format string, args ...any) // hears of connections that were refused
}

// Broker is a NATS server in this process. It stores nothing.
type Broker struct {
	BrokerOptions
	server *server.Server
	lines  limiter // about connections
}

const startTimeout = 20 * time.Second

// What one connection may take: the server subscribes to requests of each agent, of which a run has at most 4096; an
// agent needs three. A key has few connections, so that the newest processes of its agent always get in.
const (
	maxSubscriptions = 5000
	maxConnections   = 4
)

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
	if _, err := CheckListen(o.Listen); err != nil {
		return nil, err
	}
	s := &server.Options{
		ServerName: "posttrain-" + o.Run, Host: host, Port: port, NoSigs: true,
		AuthTimeout: 10, TLSTimeout: 10, PingInterval: 20 * time.Second, MaxPingsOut: 2,
		MaxPayload: 2 * chunk, MaxSubs: maxSubscriptions,
	}
	b := &Broker{BrokerOptions: o}
	if o.Keys != nil {
		s.TLS, s.TLSConfig, s.AlwaysEnableNonce, s.CustomClientAuthentication = true, o.Keys.serverTLS(), true, b
	}
	if b.server, err = server.NewServer(s); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	b.server.Start()
	if !b.server.ReadyForConnections(startTimeout) {
		b.Close()
		return nil, fmt.Errorf("broker: listen %s: it does not answer", o.Listen)
	}
	return b, nil
}

// Close ends the broker and everything that it runs. It may be called twice.
func (b *Broker) Close() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// URL is where agents connect.
func (b *Broker) URL() string {
	if b.Keys != nil {
		return "tls://" + b.server.Addr().String()
	}
	return "nats://" + b.server.Addr().String()
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

// Check implements server.Authentication: it lets in the server of the run and the invited agents, each with its own
// subjects and no other.
func (b *Broker) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	who, err := b.Keys.holder(o.Nkey)
	if err == nil && verify(o.Nkey, c.GetNonce(), o.Sig) != nil {
		err = fmt.Errorf("it does not hold the secret of agent %q's key", who)
	}
	if err != nil {
		b.lines.warn(b.Warn, "connection from %s refused: %s", c.RemoteAddress(), err)
		return false
	}
	if who == "" { // the server itself
		return true
	}
	own := func(what string) string { return subject(b.Run, what, who) }
	c.RegisterUser(&server.User{Username: o.Nkey, Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{own("up"), own("ask"), own("get")}},
		Subscribe: &server.SubjectPermission{Allow: []string{own("to") + ".>", own("get") + ".>",
			inboxPrefix(who) + ".>"}},
		Response: &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute},
	}})
	return true
}

// expel closes the connections of agents that are revoked, and the oldest ones of a key that has too many.
func (b *Broker) expel(invited map[string]entry) {
	all, err := b.server.Connz(&server.ConnzOptions{Username: true, Limit: 1 << 20})
	if err != nil {
		return // the broker ends
	}
	open := map[string]int{}
	for _, c := range slices.Backward(all.Conns) {
		key := c.AuthorizedUser
		if open[key]++; key == "" || key == b.Keys.public { // not let in yet, or the server
			continue
		}
		if _, err := holder(invited, key); err != nil || open[key] > maxConnections {
			b.server.DisconnectClientByID(c.Cid) // an error: it has gone by itself
		}
	}
}

// connect connects this process to its broker, without a socket.
func (b *Broker) connect() (*nats.Conn, error) {
	more := []nats.Option{nats.InProcessServer(b.server),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.lines.warn(b.Warn, "broker: %s", err) })}
	if b.Keys != nil {
		proof, err := withKey(b.Keys.signer)
		if err != nil {
			return nil, err
		}
		more = append(more, proof, nats.Secure(clientTLS(string(b.Keys.certPEM))))
	}
	return nats.Connect("", options("server", more...)...)
}
