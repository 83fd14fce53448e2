package run

import (
	"fmt"
	"math"
	"time"
)

// Part is how far a step is that takes long.
type Part struct {
	What        string    // is done: sampling
	Done, Total int       // of what is counted; Total 0: it is not known
	Share       float64   // of the work that is done; 0: Done of Total
	Tokens      int       // that were drawn; 0: none are
	Start       time.Time // of the part
}

// Left predicts the time that is left, from what was done until now.
func (p Part) Left(now time.Time) (left time.Duration, ok bool) {
	share := p.Share
	if share == 0 && p.Total > 0 {
		share = float64(p.Done) / float64(p.Total)
	}
	if !(share > 0 && share < 1) {
		return 0, false
	}
	return time.Duration(float64(now.Sub(p.Start)) * (1 - share) / share), true
}

// words are what is done, how much of it, the speed, and the time left; where that is not known, the time since when.
func (p Part) words(now time.Time) string {
	text, passed := p.What, now.Sub(p.Start)
	if p.Total > 0 {
		text += fmt.Sprintf(" %d/%d", p.Done, p.Total)
	}
	if speed := float64(p.Tokens) / passed.Seconds(); speed > 0 && !math.IsInf(speed, 0) {
		text += fmt.Sprintf("  %.0f tokens/s", speed)
	}
	if left, ok := p.Left(now); ok {
		return text + "  " + left.Round(time.Second).String() + " left"
	}
	if passed >= time.Second {
		text += "  for " + passed.Round(time.Second).String()
	}
	return text
}
