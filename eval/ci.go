package eval

import (
	"github.com/posttrain/posttrain/reward"
)

// CI tallies scored completions.
type CI struct {
	Format    Share // completions that keep the format
	Copied    Share // required keywords that stand in the answer, of all required keywords
	Integrity Share
	Utility   Share
	Complete  Share
	rewards   float64
}

// Add counts a completion's score; required is how many keywords its item requires.
func (c *CI) Add(s reward.Score, required int) {
	c.Format.Add(s.Format)
	c.Integrity.Add(s.Integrity())
	c.Utility.Add(s.Utility())
	c.Complete.Add(s.Integrity() && s.Utility())
	c.Copied.Total += required
	for _, m := range s.Required {
		if m.At >= 0 {
			c.Copied.Count++
		}
	}
	c.rewards += s.Reward
}

// Reward is the mean reward.
func (c *CI) Reward() float64 { return c.rewards / float64(c.Format.Total) }
