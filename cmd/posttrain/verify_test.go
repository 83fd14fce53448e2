package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
	"testing"
)

// TestVerify: a finished run is as its receipt says, also signed and repeated; each fault is one line.
func TestVerify(t *testing.T) {
	work(t, "qwen2-newer")
	must(t, tinyMappo(3, "--out", "r")...)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	open, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	write(t, "public.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: open})))

	if o := must(t, "verify", "r", "--replay", "9"); strings.Count(o.out, " repeated: the same bits") != 1 ||
		!strings.Contains(o.out, "r: steps 1 to 3 repeated") {
		t.Error(o.out)
	}
	must(t, "verify", "r", "--sign", "key.pem")
	must(t, "verify", "r", "--key", "public.pem")
	for want, args := range map[string][]string{
		"--replay -1: want 0 or more":              {"--replay", "-1"},
		"--seed: it draws what --replay repeats":   {"--seed", "1"},
		"key.pem: a block PRIVATE KEY: want an Ed": {"--key", "key.pem"},
		"none.pem cannot be read":                  {"--sign", "none.pem"},
	} {
		if o := cli(t, append([]string{"verify", "r"}, args...)...); o.code == 0 || !strings.Contains(o.err, want) ||
			strings.Count(o.err, "\n") != 1 {
			t.Errorf("%v: code %d, %q: want %q", args, o.code, o.err, want)
		}
	}
	config, err := os.ReadFile("r/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, "r/config.yaml", strings.Replace(string(config), "seed: ", "seed: 1", 1))
	if o := cli(t, "verify", "r"); o.code != 1 || !strings.Contains(o.out, "r/config.yaml: seed: ") {
		t.Errorf("code %d, %q, %q", o.code, o.out, o.err)
	}
}
