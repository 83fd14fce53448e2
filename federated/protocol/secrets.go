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
	"github.com/posttrain/posttrain/federated/private"
)

// secrets are an agent's part in secure sums.
type secrets struct {
	secret []byte
	run    string
	made   *Update // the last update, with its vectors, which wait for a sum
	summed []summed
}

// summed is a sum that the agent has masked vectors for. The same masks over other vectors would show the server their
// difference.
type summed struct {
	Attempt int    `json:"attempt"`
	Digest  string `json:"digest"` // of the vectors
}

// mostSummed is how many sums an agent remembers. It makes none that is older.
const mostSummed = 16

// once refuses to mask other vectors for a sum that the agent has taken part in.
func (s *secrets) once(t Task) error {
	h := sha256.New()
	for _, v := range append([][]float64{{t.Scale}}, s.made.Vectors...) {
		for _, x := range v {
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)))
		}
	}
	this := summed{t.Attempt, hex.EncodeToString(h.Sum(nil))}
	known := slices.IndexFunc(s.summed, func(o summed) bool { return o.Attempt == t.Attempt })
	switch {
	case known >= 0 && s.summed[known] == this:
		return nil
	case known >= 0, len(s.summed) == mostSummed && t.Attempt < s.summed[0].Attempt:
		return fmt.Errorf("sum %d of the run was made before, with other numbers, whose masks must not be used twice: "+
			"want a new state folder of this agent", t.Attempt)
	}
	s.summed = append(s.summed, this)
	slices.SortFunc(s.summed, func(a, b summed) int { return cmp.Compare(a.Attempt, b.Attempt) })
	s.summed = s.summed[max(0, len(s.summed)-mostSummed):]
	return nil
}

// Secure gives the agent what secure sums need: the run's id, and a secret of 32 random bytes for this run, which its
// owner keeps over a kill. With another secret it takes part all the same; a sum under way begins again.
func (a *Agent) Secure(secret []byte, run string) {
	if a.secret != nil && !bytes.Equal(a.secret, secret) {
		a.summed = nil // other masks
	}
	a.secrets = secrets{secret: secret, run: run, summed: a.summed}
}

// keep holds back an update's vectors, and gives the server the key of their sum instead.
func (a *Agent) keep(u Update) (Update, error) {
	if a.secret == nil {
		return u, fmt.Errorf("secure: agent %d has no secret", a.number)
	}
	key, err := private.Key(a.secret, a.run, u.Version)
	if err != nil {
		return u, err
	}
	made := u
	a.made = &made
	u.Vectors, u.Key = nil, key.PublicKey().Bytes()
	return u, nil
}

// sum masks the vectors that wait.
func (a *Agent) sum(t Task) (Update, error) {
	if a.made == nil || a.made.Kind != t.Kind || a.made.Step != t.Step {
		return Update{}, fmt.Errorf("a sum of %s, step %d: this agent has no vectors for it: join again", t.Kind,
			t.Step)
	}
	if err := a.once(t); err != nil {
		return Update{}, err
	}
	key, err := private.Key(a.secret, a.run, a.made.Version)
	if err != nil {
		return Update{}, err
	}
	sum := private.Sum{Run: a.run, Kind: string(t.Kind), Round: t.Version, Step: t.Step, Attempt: t.Attempt,
		Present: t.Present, Keys: t.Keys}
	u := Update{Agent: a.number, Kind: t.Kind, Version: t.Version, Step: t.Step, Attempt: t.Attempt,
		Stats: a.made.Stats}
	if u.Masked, err = a.encode(sum, t.Scale); err != nil {
		return u, err
	}
	return u, sum.Mask(a.number, key, u.Masked)
}

// encode shortens the vectors that wait, adds noise, scales them and writes them in fixed point.
func (a *Agent) encode(sum private.Sum, scale float64) (joined []uint64, err error) {
	noise, err := private.Source(a.secret, sum)
	if err != nil {
		return nil, err
	}
	for _, v := range a.made.Vectors {
		if p := a.o.Privacy; p.Clip > 0 {
			v = private.Privacy{Clip: p.Clip, Noise: p.Noise}.Protect(v, len(sum.Present), noise)
		}
		fixed, err := private.Encode(federated.Scaled(scale, v), len(sum.Present))
		if err != nil {
			return nil, err
		}
		joined = append(joined, fixed...)
	}
	return joined, nil
}
