package link

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// chunk is the size of the pieces in which a long blob travels. One that is not longer travels in its letter.
const chunk = 128 << 10

// Conn is a connection to a broker.
type Conn = nats.Conn

// Traffic counts bytes on sockets, with TLS and everything else that NATS sends.
type Traffic struct {
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
}

// meter dials and counts.
type meter struct{ sent, received atomic.Int64 }

// Dial implements nats.CustomDialer.
func (m *meter) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &metered{c, m}, nil
}

func (m *meter) traffic() Traffic { return Traffic{m.sent.Load(), m.received.Load()} }

type metered struct {
	net.Conn
	meter *meter
}

func (c *metered) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.meter.received.Add(int64(n))
	return n, err
}

func (c *metered) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.meter.sent.Add(int64(n))
	return n, err
}

// backoff grows to half a minute, with a random part so that agents do not all come back at once.
func backoff(attempt int) time.Duration {
	wait := min(100*time.Millisecond<<min(attempt, 10), 30*time.Second)
	return wait/2 + rand.N(wait/2)
}

// options are what every connection has: it never gives up, and keeps nothing that it could not send.
func options(name string, more ...nats.Option) []nats.Option {
	return append([]nats.Option{nats.Name(name), nats.MaxReconnects(-1), nats.CustomReconnectDelay(backoff),
		nats.ReconnectBufSize(-1), nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.IgnoreDiscoveredServers(), nats.Timeout(10 * time.Second)}, more...)
}

// withKey proves to the broker that the client holds a key.
func withKey(pair nkeys.KeyPair) (nats.Option, error) {
	public, err := pair.PublicKey()
	if err != nil {
		return nil, err
	}
	return nats.Nkey(public, pair.Sign), nil
}

// offer is a blob that the other side reads in chunks, when it likes. It is safe for concurrent use.
type offer struct {
	mu    sync.Mutex
	place string
	blob  []byte
}

// put offers a blob instead of the one before, which nobody needs any more. Equal blobs have equal places.
func (o *offer) put(blob []byte) *object {
	sum := sumOf(blob)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.place, o.blob = sum[:placeLength], blob
	return &object{Place: o.place, Size: len(blob), SHA256: sum}
}

const placeLength = 16

// answer sends the chunk that a request names: its place and number. What is not there has no bytes.
func (o *offer) answer(m *nats.Msg) {
	place, text, _ := strings.Cut(string(m.Data), " ")
	n, err := strconv.Atoi(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	var piece []byte
	if err == nil && place == o.place && n >= 0 && n < chunksOf(len(o.blob)) {
		piece = chunkOf(o.blob, n)
	}
	m.Respond(piece) // an error: the connection is lost, and the other side asks again
}

func chunksOf(size int) int { return (size + chunk - 1) / chunk }

func chunkOf(blob []byte, n int) []byte { return blob[n*chunk : min((n+1)*chunk, len(blob))] }

// patience bounds the transfer of size bytes, of which pieces may be missing, on a slow connection.
func patience(size int) time.Duration {
	return 10*time.Second + time.Duration(size/(64<<10))*time.Second
}

// ahead is how many chunks are asked for before the first of them is there.
const ahead = 16

// pull reads an object of at most that many bytes from who answers on a subject. One that is not what its letter says
// is damaged.
func pull(ctx context.Context, nc *nats.Conn, subject string, o *object, most int) ([]byte, error) {
	if o.Size < 1 || o.Size > most || CheckName(o.Place) != nil {
		return nil, fmt.Errorf("%w: object %q of %d bytes, want 1 to %d", ErrDamaged, o.Place, o.Size, most)
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox + ".*")
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe()
	blob, there := make([]byte, o.Size), make([]bool, chunksOf(o.Size))
	for asked, got := 0, 0; got < len(there); {
		for ; asked < min(len(there), got+ahead); asked++ {
			request := []byte(fmt.Sprintf("%s %d", o.Place, asked))
			if err := nc.PublishRequest(subject, fmt.Sprintf("%s.%d", inbox, asked), request); err != nil {
				return nil, err
			}
		}
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		if m.Header.Get("Status") != "" {
			return nil, nats.ErrNoResponders // who offers it is gone
		}
		n, err := strconv.Atoi(m.Subject[len(inbox)+1:])
		if err != nil || n < 0 || n >= asked || len(m.Data) != len(chunkOf(blob, n)) {
			return nil, fmt.Errorf("%w: object %s has not the chunk %s, or not whole", ErrDamaged, o.Place,
				m.Subject[len(inbox)+1:])
		}
		if !there[n] { // a network may double a message
			there[n], got = true, got+1
			copy(chunkOf(blob, n), m.Data)
		}
	}
	if sumOf(blob) != o.SHA256 {
		return nil, fmt.Errorf("%w: object %s has another SHA-256 than its letter says", ErrDamaged, o.Place)
	}
	return blob, nil
}

const wantCredentials = "--credentials FILE (posttrain federated server --invite writes it)"

// checkURL refuses an address that is not loopback and has no TLS.
func checkURL(server string, secure bool) error {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
		return fmt.Errorf("server %q: want a URL such as nats://127.0.0.1:4222, or tls://host:4222", server)
	}
	if u.User != nil {
		return errors.New("server: the URL has a name or password in it: want credentials in a file")
	}
	if !secure && !isLoopback(u.Hostname()) {
		return fmt.Errorf("server %s: an address of another machine needs TLS: want %s", server, wantCredentials)
	}
	return nil
}

// explain turns an error of connecting into a line for people. final is false where trying again may help. agent is ""
// where there are no credentials.
func explain(err error, server, agent string) (line error, final bool) {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	refused := errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthRevoked) ||
		strings.Contains(err.Error(), "Authorization Violation")
	untrusted := errors.As(err, &unknown) || errors.As(err, &host)
	switch {
	case agent == "" && (refused || untrusted || errors.Is(err, nats.ErrSecureConnRequired)):
		return fmt.Errorf("server %s wants TLS and credentials: want %s", server, wantCredentials), true
	case untrusted:
		return fmt.Errorf("server %s has a certificate of another run or authority than the credentials name: "+
			"want the server of the run that invited agent %q", server, agent), true
	case refused:
		return fmt.Errorf("server %s refuses the key of agent %q: it is revoked, or of another run; "+
			"ask for a new invitation", server, agent), true
	case errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrNkeysNotSupported):
		return fmt.Errorf("server %s has no TLS or keys, but the credentials of agent %q want them: "+
			"is it another server?", server, agent), true
	}
	return fmt.Errorf("server %s: %s", server, strings.TrimPrefix(err.Error(), "nats: ")), false
}
