package link

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// chunk is the size of the pieces in which a long blob travels. One that is not longer travels in its envelope.
const chunk = 512 << 10

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

// outbox is a blob that the other side reads in chunks, when it likes. It is safe for concurrent use.
type outbox struct {
	replyPrefix string // of the subjects of answers: who asks names one, and has fewer rights than who answers
	mu          sync.Mutex
	sum         string
	blob        []byte
}

// put offers a blob instead of the one before, which nobody needs any more.
func (o *outbox) put(blob []byte) *object {
	sum := sumOf(blob)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sum, o.blob = sum, blob
	return &object{Size: len(blob), SHA256: sum}
}

// serveChunk sends the chunk that a request names: the blob's hash and where the chunk begins. What is not there has no
// bytes.
func (o *outbox) serveChunk(m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, o.replyPrefix) {
		return
	}
	sum, text, _ := strings.Cut(string(m.Data), " ")
	from, err := strconv.Atoi(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	var piece []byte
	if err == nil && sum == o.sum && from >= 0 && from < len(o.blob) {
		piece = o.blob[from:min(from+chunk, len(o.blob))]
	}
	m.Respond(piece) // an error: the connection is lost, and the other side asks again
}

// chunkTimeout is how long a chunk may take.
const chunkTimeout = 15 * time.Second

// pull reads an object of at most that many bytes from who answers on a subject, while the connection lives. One that
// is not what its envelope says is damaged.
func pull(ctx context.Context, nc *nats.Conn, subject string, o *object, most int) ([]byte, error) {
	if o.Size < 1 || o.Size > most {
		return nil, fmt.Errorf("%w: an object of %d bytes, want 1 to %d", ErrDamaged, o.Size, most)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lost := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(lost)
	go func() {
		select {
		case <-lost:
			stop()
		case <-ctx.Done():
		}
	}()
	blob := make([]byte, 0, o.Size)
	for len(blob) < o.Size {
		limited, end := context.WithTimeout(ctx, chunkTimeout)
		m, err := nc.RequestWithContext(limited, subject, fmt.Appendf(nil, "%s %d", o.SHA256, len(blob)))
		end()
		if err != nil {
			return nil, err
		}
		if len(m.Data) != min(chunk, o.Size-len(blob)) {
			return nil, fmt.Errorf("%w: the chunk at %d has %d bytes", ErrDamaged, len(blob), len(m.Data))
		}
		blob = append(blob, m.Data...)
	}
	if sumOf(blob) != o.SHA256 {
		return nil, fmt.Errorf("%w: an object has another SHA-256 than its message says", ErrDamaged)
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
	refused := errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthRevoked) ||
		strings.Contains(err.Error(), "Authorization Violation")
	untrusted := errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(x509.HostnameError))
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
