package link

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// chunk is the size of an object's pieces. A blob that is not longer travels in its letter.
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

// put stores a blob as an object.
func put(ctx context.Context, b jetstream.ObjectStore, name string, blob []byte) (*object, error) {
	sum := sha256.Sum256(blob)
	if _, err := b.Put(ctx, jetstream.ObjectMeta{Name: name}, bytes.NewReader(blob)); err != nil {
		return nil, err
	}
	return &object{Name: name, Size: len(blob), SHA256: hex.EncodeToString(sum[:])}, nil
}

// patience bounds the transfer of so many bytes, of which pieces may be missing, on a slow connection.
func patience(size int) time.Duration {
	return 10*time.Second + time.Duration(size/(64<<10))*time.Second
}

// whole checks that all chunks of an object are there, as a reader would wait for one that is missing.
func whole(ctx context.Context, b jetstream.ObjectStore, stream jetstream.Stream, o *object) error {
	info, err := b.GetInfo(ctx, o.Name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("%w: object %s is missing", errDamaged, o.Name)
	}
	if err != nil {
		return err
	}
	chunks := "$O." + info.Bucket + ".C." + info.NUID
	state, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunks))
	if err != nil {
		return err
	}
	if n := state.State.Subjects[chunks]; n != uint64(info.Chunks) {
		return fmt.Errorf("%w: object %s is cut short: it has %d of %d chunks", errDamaged, o.Name, n, info.Chunks)
	}
	return nil
}

// get reads an object of at most that many bytes. One that is not what its letter says is damaged.
func get(ctx context.Context, b jetstream.ObjectStore, o *object, most int) ([]byte, error) {
	if o.Size < 0 || o.Size > most {
		return nil, fmt.Errorf("%w: object of %d bytes, want at most %d", errDamaged, o.Size, most)
	}
	r, err := b.Get(ctx, o.Name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("%w: object %s is missing", errDamaged, o.Name)
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if info, err := r.Info(); err == nil && info.Size != uint64(o.Size) {
		return nil, fmt.Errorf("%w: object %s has %d bytes, want %d", errDamaged, o.Name, info.Size, o.Size)
	}
	blob := make([]byte, o.Size)
	if n, err := io.ReadFull(r, blob); err != nil {
		return nil, fmt.Errorf("%w: object %s is cut short after %d of %d bytes", errDamaged, o.Name, n, o.Size)
	}
	if sum := sha256.Sum256(blob); hex.EncodeToString(sum[:]) != o.SHA256 {
		return nil, fmt.Errorf("%w: object %s has another SHA-256 than its letter says", errDamaged, o.Name)
	}
	return blob, nil
}

const wantCredentials = "--credentials FILE (posttrain federated invite writes it)"

// checkURL refuses an address that is not loopback and has no TLS; how says what gives it.
func checkURL(server string, secure bool, how string) error {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
		return fmt.Errorf("server %q: want a URL such as nats://127.0.0.1:4222, or tls://host:4222", server)
	}
	if u.User != nil {
		return errors.New("server: the URL has a name or password in it: want credentials in a file")
	}
	if !secure && !isLoopback(u.Hostname()) {
		return fmt.Errorf("server %s: an address of another machine needs TLS: want %s", server, how)
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
		return fmt.Errorf("server %s has no TLS or keys, but the credentials of agent %q want them: is it another server?",
			server, agent), true
	}
	return fmt.Errorf("server %s: %s", server, strings.TrimPrefix(err.Error(), "nats: ")), false
}
