package protocol

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/federated"
)

// maskedSum is a sum that the agent has masked vectors for. The same masks over other vectors would show the server
// their difference.
type maskedSum struct {
	Attempt int    `json:"attempt"`
	Digest  string `json:"digest"` // of the vectors
}

// maxSums is how many sums an agent remembers. It makes none that is older.
const maxSums = 16

// checkOnce refuses to mask other vectors for a sum that the agent has taken part in.
func (a *Agent) checkOnce(t Task) error {
	h := sha256.New()
	for _, v := range append([][]float64{{t.Scale}}, a.Made.Vectors...) {
		for _, x := range v {
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)))
		}
	}
	this := maskedSum{t.Attempt, hex.EncodeToString(h.Sum(nil))}
	known := slices.IndexFunc(a.Summed, func(o maskedSum) bool { return o.Attempt == t.Attempt })
	switch {
	case known >= 0 && a.Summed[known] == this:
		return nil
	case known >= 0, len(a.Summed) == maxSums && t.Attempt < a.Summed[0].Attempt:
		return fmt.Errorf("sum %d of the run was made before, with other numbers, whose masks must not be used twice: "+
			"want a new state folder of this agent", t.Attempt)
	}
	a.Summed = append(a.Summed, this)
	slices.SortFunc(a.Summed, func(a, b maskedSum) int { return cmp.Compare(a.Attempt, b.Attempt) })
	a.Summed = a.Summed[max(0, len(a.Summed)-maxSums):]
	return nil
}

// Secure gives the agent what secure sums need: the run's id, and a secret of 32 random bytes for this run, which its
// owner keeps over a kill. With another secret it takes part all the same; a sum under way begins again.
func (a *Agent) Secure(secret []byte, run string) {
	if a.secret != nil && !bytes.Equal(a.secret, secret) {
		a.Summed = nil // other masks
	}
	a.secret, a.run, a.Made = secret, run, nil
}

// holdBack holds back an update's vectors, and gives the server the key of their sum instead.
func (a *Agent) holdBack(u Update) (Update, error) {
	if a.secret == nil {
		return u, fmt.Errorf("secure: agent %d has no secret", a.number)
	}
	key, err := federated.SumKey(a.secret, a.run, u.Version)
	if err != nil {
		return u, err
	}
	made := u
	a.Made = &made
	u.Vectors, u.Key = nil, key.PublicKey().Bytes()
	return u, nil
}

// maskVectors masks the vectors that wait.
func (a *Agent) maskVectors(t Task) (Update, error) {
	if a.Made == nil || a.Made.Kind != t.Kind || a.Made.Step != t.Step {
		return Update{}, fmt.Errorf("a sum of %s, step %d: this agent has no vectors for it: join again", t.Kind,
			t.Step)
	}
	if err := a.checkOnce(t); err != nil {
		return Update{}, err
	}
	key, err := federated.SumKey(a.secret, a.run, a.Made.Version)
	if err != nil {
		return Update{}, err
	}
	sum := federated.Sum{Run: a.run, Kind: string(t.Kind), Round: t.Version, Step: t.Step, Attempt: t.Attempt,
		Present: t.Present, Keys: t.Keys}
	u := Update{Agent: a.number, Kind: t.Kind, Version: t.Version, Step: t.Step, Attempt: t.Attempt,
		Stats: a.Made.Stats}
	if u.Masked, err = a.encode(sum, t.Scale); err != nil {
		return u, err
	}
	return u, sum.Mask(a.number, key, u.Masked)
}

// encode shortens the vectors that wait, adds noise, scales them and writes them in fixed point.
func (a *Agent) encode(sum federated.Sum, scale float64) (joined []uint64, err error) {
	noise, err := federated.NoiseSource(a.secret, sum)
	if err != nil {
		return nil, err
	}
	for _, v := range a.Made.Vectors {
		if p := a.o.Privacy; p.Clip > 0 {
			v = p.Protect(v, len(sum.Present), noise)
		}
		fixed, err := federated.ToFixed(federated.Scaled(scale, v), len(sum.Present))
		if err != nil {
			return nil, err
		}
		joined = append(joined, fixed...)
	}
	return joined, nil
}
