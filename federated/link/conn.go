package link

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
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

// put stores a blob as an object of NATS's object store, in a new place: an older object of that name keeps its chunks.
// It is not jetstream.ObjectStore.Put, which makes a connection's state anew for each object and may leave a goroutine.
func put(ctx context.Context, js jetstream.JetStream, bucket, name string, blob []byte) (*object, error) {
	place, sum := NewRunID(), sha256.Sum256(blob)
	var sent []jetstream.PubAckFuture
	publish := func(m *nats.Msg) error {
		f, err := js.PublishMsgAsync(m)
		sent = append(sent, f)
		return err
	}
	for piece := range slices.Chunk(blob, chunk) {
		if err := publish(&nats.Msg{Subject: chunksOf(bucket, place), Data: piece}); err != nil {
			return nil, err
		}
	}
	info := jetstream.ObjectInfo{Bucket: bucket, NUID: place, Size: uint64(len(blob)), Chunks: uint32(len(sent)),
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunk}},
		Digest:     "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])}
	text, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	about := nats.NewMsg("$O." + bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name)))
	about.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	about.Data = text
	if err := publish(about); err != nil {
		return nil, err
	}
	o := &object{Name: name, Place: place, Size: len(blob), SHA256: hex.EncodeToString(sum[:])}
	return o, stored(ctx, sent)
}

// chunksOf is the subject of an object's chunks; place "*" is all objects'.
func chunksOf(bucket, place string) string { return "$O." + bucket + ".C." + place }

// stored waits until all is on the broker's disk.
func stored(ctx context.Context, sent []jetstream.PubAckFuture) error {
	for _, f := range sent {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// patience bounds the transfer of size bytes, of which pieces may be missing, on a slow connection.
func patience(size int) time.Duration {
	return 10*time.Second + time.Duration(size/(64<<10))*time.Second
}

// fetched is how many chunks are asked for at once.
const fetched = 64

// get reads an object of at most that many bytes. One that is not what its letter says is damaged. It asks the stream
// itself, so that a chunk which is missing is known at once and a reader needs no consumer, whose messages could go to
// any subject.
func get(ctx context.Context, nc *nats.Conn, bucket string, o *object, most int) ([]byte, error) {
	if o.Size < 0 || o.Size > most || CheckName(o.Place) != nil {
		return nil, fmt.Errorf("%w: object %q of %d bytes, want at most %d", ErrDamaged, o.Place, o.Size, most)
	}
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe()
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	blob := make([]byte, 0, o.Size)
	for next := uint64(1); len(blob) < o.Size; {
		request := fmt.Sprintf(`{"seq":%d,"next_by_subj":%q,"batch":%d}`, next, chunksOf(bucket, o.Place), fetched)
		if err := nc.PublishRequest("$JS.API.DIRECT.GET.OBJ_"+bucket, sub.Subject, []byte(request)); err != nil {
			return nil, err
		}
		had := len(blob)
		if blob, next, err = collect(ctx, sub, blob, o.Size); err != nil {
			return nil, err
		}
		if len(blob) == had {
			return nil, fmt.Errorf("%w: object %s is cut short after %d of %d bytes", ErrDamaged, o.Name, had, o.Size)
		}
	}
	if sum := sha256.Sum256(blob); len(blob) != o.Size || hex.EncodeToString(sum[:]) != o.SHA256 {
		return nil, fmt.Errorf("%w: object %s has another length or SHA-256 than its letter says", ErrDamaged, o.Name)
	}
	return blob, nil
}

// collect appends the chunks of one answer to blob, and returns where the next one begins.
func collect(ctx context.Context, sub *nats.Subscription, blob []byte, size int) ([]byte, uint64, error) {
	for next := uint64(1); ; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, 0, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404": // the end; no more
			return blob, next, nil
		default:
			return nil, 0, fmt.Errorf("object store: status %s %s", status, m.Header.Get("Description"))
		}
		at, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
		if err != nil || len(m.Data) > size-len(blob) {
			return nil, 0, fmt.Errorf("%w: more chunks than the object has", ErrDamaged)
		}
		blob, next = append(blob, m.Data...), at+1
	}
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
