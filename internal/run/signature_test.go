package run

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// keyPair writes an Ed25519 key and its public half as openssl does.
func keyPair(t *testing.T, dir, name string) (private, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret, first := x509.MarshalPKCS8PrivateKey(key)
	open, second := x509.MarshalPKIXPublicKey(pub)
	private, public = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".pub.pem")
	err = errors.Join(first, second,
		os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
		os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: open}), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return private, public
}

// TestSignature: the signer's key fits, another does not, nor does a receipt that was changed; bad keys are one line.
func TestSignature(t *testing.T) {
	dir, keys := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, receiptName)
	if err := os.WriteFile(path, []byte(`{"seed": 1}`), 0o666); err != nil {
		t.Fatal(err)
	}
	private, public := keyPair(t, keys, "a")
	_, other := keyPair(t, keys, "b")
	wantError(t, CheckSignature(dir, public), "the receipt is not signed")
	if err := SignReceipt(dir, private); err != nil {
		t.Fatal(err)
	}
	if err := CheckSignature(dir, public); err != nil {
		t.Error(err)
	}
	wantError(t, CheckSignature(dir, other), "did not sign this receipt.json")
	if err := os.WriteFile(path, []byte(`{"seed": 2}`), 0o666); err != nil {
		t.Fatal(err)
	}
	wantError(t, CheckSignature(dir, public), "did not sign this receipt.json")
	wantError(t, SignReceipt(dir, public), "want an Ed25519 private key")
	wantError(t, CheckSignature(dir, private), "want an Ed25519 public key")
	wantError(t, SignReceipt(dir, path), "no PEM block")
	wantError(t, SignReceipt(dir, filepath.Join(keys, "none")), "cannot be read")
	wantError(t, SignReceipt(keys, private), "there is no receipt.json")
}
