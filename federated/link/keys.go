package link

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/posttrain/posttrain/internal/files"
)

// Names in the folder of keys. Files that hold a secret are readable by their owner alone.
const (
	certName     = "server.pem"
	certKeyName  = "server.key"  // secret
	seedName     = "server.seed" // secret
	registryName = "agents.json"
)

// commonName is the name on every run's certificate. An agent trusts that certificate alone, so that the name of the
// server's machine does not matter.
const commonName = "posttrain-federated"

// validity of certificates, before and after they are made. They end with the run, and agents trust them for what they
// are: no clock matters.
const validity = 10 * 365 * 24 * time.Hour

// Keys are the certificates and keys of a run's server, in a folder of their own.
type Keys struct {
	dir     string
	certPEM []byte // certificate, PEM
	cert    tls.Certificate
	signer  nkeys.KeyPair
	public  string
}

// HasKeys reports whether a run has been given keys.
func HasKeys(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, registryName))
	return err == nil
}

// OpenKeys reads the keys of a run, and makes them if the folder has none.
func OpenKeys(dir string) (*Keys, error) {
	if !HasKeys(dir) {
		if err := makeKeys(dir); err != nil {
			return nil, fmt.Errorf("keys %s cannot be made: %w", dir, files.Cause(err))
		}
	}
	k := &Keys{dir: dir}
	if err := k.read(); err != nil {
		return nil, fmt.Errorf("keys %s: %w", dir, files.Cause(err))
	}
	return k, nil
}

func (k *Keys) read() (err error) {
	if k.certPEM, err = os.ReadFile(filepath.Join(k.dir, certName)); err != nil {
		return err
	}
	k.cert, err = tls.LoadX509KeyPair(filepath.Join(k.dir, certName), filepath.Join(k.dir, certKeyName))
	if err != nil {
		return err
	}
	seed, err := os.ReadFile(filepath.Join(k.dir, seedName))
	if err != nil {
		return err
	}
	if k.signer, err = nkeys.FromSeed(seed); err != nil {
		return fmt.Errorf("%s is not an NKey seed", seedName)
	}
	k.public, err = k.signer.PublicKey()
	return err
}

// makeKeys writes a new folder of keys, the registry last: without it the folder counts as empty.
func makeKeys(dir string) error {
	cert, key, err := makeCertificate()
	if err != nil {
		return err
	}
	_, seed, err := newPair()
	if err != nil {
		return err
	}
	if err := files.MakeAll(dir, 0o700); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
		mode fs.FileMode
	}{{certName, cert, 0o644}, {certKeyName, key, 0o600}, {seedName, seed, 0o600},
		{registryName, []byte("{}\n"), 0o644}} {
		if err := files.Replace(filepath.Join(dir, f.name), f.data, f.mode); err != nil {
			return err
		}
	}
	return nil
}

// newPair makes an NKey.
func newPair() (public string, seed []byte, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", nil, err
	}
	public, err = pair.PublicKey()
	seed, fault := pair.Seed()
	return public, seed, errors.Join(err, fault)
}

// makeCertificate makes a certificate of the server that is signed by its own key: agents trust it and nobody else.
func makeCertificate() (cert, key []byte, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand never fails
	now := time.Now()
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: commonName},
		NotBefore: now.Add(-validity), NotAfter: now.Add(validity), DNSNames: []string{commonName},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &own.PublicKey, own)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(own)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), err
}

// serverTLS is what the embedded broker listens with.
func (k *Keys) serverTLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{k.cert}, MinVersion: tls.VersionTLS13}
}

// entry is an agent in the registry.
type entry struct {
	Key     string `json:"key"` // its public NKey
	Revoked bool   `json:"revoked,omitempty"`
}

// registry reads which agents are invited, by name.
func (k *Keys) registry() (map[string]entry, error) {
	path := filepath.Join(k.dir, registryName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	all := map[string]entry{}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: not a list of agents: %s", path, err)
	}
	return all, nil
}

// holder is the agent of a key, "" for the server's own.
func (k *Keys) holder(key string) (agent string, err error) {
	if key == "" {
		return "", errors.New("it has no key")
	}
	if key == k.public {
		return "", nil
	}
	all, err := k.registry()
	if err != nil {
		return "", err
	}
	return holder(all, key)
}

func holder(invited map[string]entry, key string) (agent string, err error) {
	for name, e := range invited {
		switch {
		case e.Key == key && e.Revoked:
			return "", fmt.Errorf("the key of agent %q is revoked", name)
		case e.Key == key:
			return name, nil
		}
	}
	return "", errors.New("its key belongs to no agent of this run")
}

// write replaces the registry.
func (k *Keys) write(all map[string]entry) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(filepath.Join(k.dir, registryName), append(text, '\n'), 0o644)
}

// Credentials are what an agent needs to take part in a run. The file holds a secret.
type Credentials struct {
	Run    string `json:"run"`
	Agent  string `json:"agent"`
	Server string `json:"server"` // URL
	CA     string `json:"ca"`     // the server's certificate, PEM
	Key    string `json:"key"`    // public NKey of the server, which signs its envelopes
	Seed   string `json:"seed"`   // secret: of the agent's NKey
}

// Invite makes a key for an agent, registers its public half, and returns the credentials. An agent that was invited
// before needs to be revoked first, so that nobody replaces a key by mistake.
func (k *Keys) Invite(run, agent, server string) (Credentials, error) {
	if err := cmp.Or(CheckName(agent), checkURL(server, true)); err != nil {
		return Credentials{}, err
	}
	all, err := k.registry()
	if err != nil {
		return Credentials{}, err
	}
	if e, ok := all[agent]; ok && !e.Revoked {
		return Credentials{}, fmt.Errorf("agent %q has been invited: revoke its key first "+
			"(posttrain federated server --revoke %s)", agent, agent)
	}
	public, seed, err := newPair()
	if err != nil {
		return Credentials{}, err
	}
	all[agent] = entry{Key: public}
	return Credentials{Run: run, Agent: agent, Server: server, CA: string(k.certPEM), Key: k.public,
		Seed: string(seed)}, k.write(all)
}

// Revoke takes an agent's rights away. A server that runs closes its connection within seconds.
func (k *Keys) Revoke(agent string) error {
	all, err := k.registry()
	if err != nil {
		return err
	}
	e, ok := all[agent]
	if !ok {
		return fmt.Errorf("agent %q has not been invited to this run", agent)
	}
	all[agent] = entry{e.Key, true}
	return k.write(all)
}

// Write stores credentials in a new file that its owner alone can read.
func (c Credentials) Write(path string) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: credentials are not overwritten; want another --out", path)
	}
	if err == nil {
		_, err = f.Write(append(text, '\n'))
		err = errors.Join(err, f.Sync(), f.Close(), files.SyncDir(filepath.Dir(path)))
	}
	if err != nil {
		return fmt.Errorf("credentials %s cannot be written: %w", path, files.Cause(err))
	}
	return nil
}

// maxCredentials is more than any file of credentials has.
const maxCredentials = 1 << 20

// ReadCredentials reads what Write wrote.
func ReadCredentials(path string) (*Credentials, error) {
	text, err := files.Read(os.DirFS(filepath.Dir(path)), filepath.Base(path), maxCredentials)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("credentials %s: %w", path, files.Cause(err))
	}
	c := new(Credentials)
	if err != nil || json.Unmarshal(text, c) != nil || !c.complete() { // the error could quote the seed
		return nil, fmt.Errorf("credentials %s: want the file that posttrain federated server --invite wrote", path)
	}
	return c, nil
}

func (c *Credentials) complete() bool {
	_, err := nkeys.FromSeed([]byte(c.Seed))
	return err == nil && CheckName(c.Agent) == nil && c.Run != "" && nkeys.IsValidPublicUserKey(c.Key) &&
		x509.NewCertPool().AppendCertsFromPEM([]byte(c.CA))
}

// clientTLS makes the TLS of a client, which trusts the run's certificate alone.
func clientTLS(ca string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca))
	return &tls.Config{ServerName: commonName, RootCAs: pool, MinVersion: tls.VersionTLS13}
}
