package federated

// Secure sums: each agent writes its vector in 64-bit fixed point ([ToFixed]) and adds a mask for every other agent of
// the sum ([Sum.Mask]). Two agents derive the same stream from an X25519 key agreement; the lower number adds it, the
// higher subtracts it. In the sum of all messages modulo 2^64 every mask cancels, so the server learns the exact sum of
// the fixed-point vectors, and each message alone is uniform whatever its vector is. A sum with an agent missing is
// noise: the server repeats it without that agent, with new masks.
//
// The server carries the public keys. It must be honest: one that hands out keys of its own sees every vector.
//
// Departures: the papers of both methods leave privacy to future work. Practical secure aggregation (Bonawitz et al.
// 2017) survives dropouts by secret sharing; here the sum is repeated, which is simpler and reveals more if the missing
// message arrives late (docs/federated.md).

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// FractionBits is the position of the point: a number is an integer times 2^-40, about 9e-13.
const FractionBits = 40

// KeySize is the length of a public key.
const KeySize = 32

// FixedLimit is the largest absolute number that a sum of agents can hold for each of them: 2^23/agents.
func FixedLimit(agents int) float64 { return math.Ldexp(1, 63-FractionBits) / float64(agents) }

// ToFixed writes v in fixed point, rounding to the nearest. A number above [FixedLimit] is an error, so no sum can wrap.
func ToFixed(v []float64, agents int) ([]uint64, error) {
	out := make([]uint64, len(v))
	for j, x := range v {
		if !(math.Abs(x) < FixedLimit(agents)) {
			return nil, fmt.Errorf("number %d is %g: a secure sum of %d agents needs each below %g", j, x, agents,
				FixedLimit(agents))
		}
		out[j] = uint64(int64(math.RoundToEven(math.Ldexp(x, FractionBits))))
	}
	return out, nil
}

// FromFixed reads a sum in fixed point.
func FromFixed(sums []uint64) []float64 {
	out := make([]float64, len(sums))
	for j, x := range sums {
		out[j] = math.Ldexp(float64(int64(x)), -FractionBits)
	}
	return out
}

// AddFixed adds b to a modulo 2^64, in place.
func AddFixed(a, b []uint64) {
	for j, x := range b {
		a[j] += x
	}
}

// SumKey is an agent's key pair of a round, derived from its secret: an agent that was killed has the same one again. The
// secret is 32 random bytes that never leave the agent.
func SumKey(secret []byte, run string, round int) (*ecdh.PrivateKey, error) {
	bytes, err := derive(secret, "key", run, round)
	if err != nil {
		return nil, err
	}
	return ecdh.X25519().NewPrivateKey(bytes)
}

// derive makes 32 bytes from a secret for one use. Facts are written with their lengths, so no two lists of facts
// agree.
func derive(secret []byte, use string, facts ...any) ([]byte, error) {
	info := "posttrain federated 1 " + use
	for _, f := range facts {
		text := fmt.Sprint(f)
		info += fmt.Sprintf(" %d:%s", len(text), text)
	}
	return hkdf.Key(sha256.New, secret, nil, info, 32)
}

// CheckSumKey refuses a public key that no agent can share a secret with: one of another length or of low order.
func CheckSumKey(public []byte) error {
	other, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return err
	}
	key, err := ecdh.X25519().NewPrivateKey(make([]byte, KeySize)) // any one shows it
	if err == nil {
		_, err = key.ECDH(other)
	}
	return err
}

// Sum names one secure sum. All that take part must see the same one: every fact of it is in the masks.
type Sum struct {
	Run     string // id of the run
	Kind    string // of the task
	Round   int
	Step    int
	Attempt int      // of this sum, from 1; each has new masks
	Present []int    // numbers of the agents in the sum, ascending
	Keys    [][]byte // their public keys of the round, in that order
}

// Check refuses a sum that would show the vector of the agent self.
func (s Sum) Check(self int) error {
	switch {
	case len(s.Present) < 2:
		return fmt.Errorf("a secure sum of %d agents: want at least 2", len(s.Present))
	case len(s.Keys) != len(s.Present):
		return fmt.Errorf("a secure sum with %d keys: want %d, one an agent", len(s.Keys), len(s.Present))
	case !slices.Contains(s.Present, self):
		return fmt.Errorf("a secure sum without agent %d, which is asked to join it", self)
	}
	for i := range s.Present[1:] {
		if s.Present[i] >= s.Present[i+1] {
			return fmt.Errorf("a secure sum of agents %v: want each once, in order", s.Present)
		}
	}
	return nil
}

// Mask adds the masks of agent self to its fixed-point vector, in place.
func (s Sum) Mask(self int, key *ecdh.PrivateKey, vector []uint64) error {
	if err := s.Check(self); err != nil {
		return err
	}
	if at := slices.Index(s.Present, self); !slices.Equal(s.Keys[at], key.PublicKey().Bytes()) {
		return errors.New("a secure sum with another key for this agent")
	}
	for i, other := range s.Present {
		if other == self {
			continue
		}
		stream, err := s.stream(key, s.Keys[i])
		if err != nil {
			return fmt.Errorf("the key of agent %d: %w", other, err)
		}
		apply(stream, vector, self > other)
	}
	return nil
}

// stream is what two agents share for this sum.
func (s Sum) stream(key *ecdh.PrivateKey, other []byte) (cipher.Stream, error) {
	public, err := ecdh.X25519().NewPublicKey(other)
	if err != nil {
		return nil, err
	}
	shared, err := key.ECDH(public)
	if err != nil {
		return nil, err
	}
	seed, err := derive(shared, "mask", s.Run, s.Kind, s.Round, s.Step, s.Attempt, s.Present, s.Keys)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(seed)
	if err != nil {
		return nil, err
	}
	return cipher.NewCTR(block, make([]byte, aes.BlockSize)), nil // each seed has one stream
}

// apply adds or subtracts a stream's numbers.
func apply(stream cipher.Stream, vector []uint64, subtract bool) {
	block := make([]byte, 8*512)
	for len(vector) > 0 {
		n := min(len(vector), len(block)/8)
		clear(block)
		stream.XORKeyStream(block[:8*n], block[:8*n])
		for j := range n {
			x := binary.LittleEndian.Uint64(block[8*j:])
			if subtract {
				x = -x
			}
			vector[j] += x
		}
		vector = vector[n:]
	}
}
