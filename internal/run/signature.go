package run

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// signatureName is the Ed25519 signature of receipt.json: 64 bytes, which openssl pkeyutl -verify -rawin takes too.
const signatureName = "receipt.sig"

// SignReceipt signs the receipt of a finished run with a private key, a PEM file in PKCS #8.
func SignReceipt(dir, keyPath string) error {
	const want = "an Ed25519 private key in PEM (openssl genpkey -algorithm ed25519)"
	key, err := readKey(keyPath, want, x509.ParsePKCS8PrivateKey)
	if err != nil {
		return err
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return fmt.Errorf("%s: %T: want %s", keyPath, key, want)
	}
	text, err := receiptText(dir)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, signatureName), ed25519.Sign(private, text))
}

// CheckSignature wants the receipt to be signed by the owner of a public key, a PEM file.
func CheckSignature(dir, keyPath string) error {
	const want = "an Ed25519 public key in PEM (openssl pkey -in KEY -pubout)"
	key, err := readKey(keyPath, want, x509.ParsePKIXPublicKey)
	if err != nil {
		return err
	}
	public, ok := key.(ed25519.PublicKey)
	if !ok {
		return fmt.Errorf("%s: %T: want %s", keyPath, key, want)
	}
	text, err := receiptText(dir)
	if err != nil {
		return err
	}
	signature, err := os.ReadFile(filepath.Join(dir, signatureName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s: the receipt is not signed: there is no %s", dir, signatureName)
	case err != nil:
		return fmt.Errorf("%s cannot be read: %w", filepath.Join(dir, signatureName), Cause(err))
	case !ed25519.Verify(public, text, signature):
		return fmt.Errorf("%s: the key %s did not sign this %s", dir, keyPath, receiptName)
	}
	return nil
}

func receiptText(dir string) ([]byte, error) {
	if _, err := ReadReceipt(dir); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, receiptName))
}

// readKey parses the first block of a PEM file. The error shows nothing of its content.
func readKey(path, want string, parse func([]byte) (any, error)) (any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, Cause(err))
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block: want %s", path, want)
	}
	key, err := parse(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: a block %s: want %s", path, block.Type, want)
	}
	return key, nil
}
