package tokenizer

import (
	"fmt"
	"time"
)

// Bounds on what a tokenizer.json may do to a text.
const (
	maxGrowth    = 64                    // times the length of a text
	matchPerByte = 10 * time.Microsecond // more time for longer texts; usual expressions take a twentieth
)

// matchTime is how long a regular expression may look for a match, and for all matches of a short text.
var matchTime = 5 * time.Second

// A fault is what the package panics with; [Tokenizer.catch] makes it an error.
type fault struct{ error }

// catch turns a panic into an error of tokenizer.json. regexp2 can panic, too.
func (t *Tokenizer) catch(err *error) {
	if p := recover(); p != nil {
		*err = t.fault("tokenizer.json", fmt.Errorf("%v", p))
	}
}

// A deadline is when the regular expressions for a text must be done.
type deadline struct{ time.Time }

func deadlineOf(text string) deadline {
	return deadline{time.Now().Add(matchTime + time.Duration(len(text))*matchPerByte)}
}

// check ends with a fault after the deadline; at is the expression's place.
func (d deadline) check(at string) {
	if time.Now().After(d.Time) {
		panic(tooSlow(at))
	}
}

func tooSlow(at string) fault {
	return fault{fmt.Errorf("%s: this regular expression takes more than %v for a text: want one that matches in "+
		"linear time", at, matchTime)}
}

// growth is how many times as long the steps of tokenizer.json can make a text. Normal forms are left out: repeated,
// they change nothing.
type growth struct{ factor float64 }

// by counts a step; it is an error if the text could become too long. at is the step's place.
func (g *growth) by(factor float64, at string) error {
	g.factor = max(1, g.factor) * max(1, factor)
	if g.factor > maxGrowth {
		return fmt.Errorf("%s: up to this step a text can become %.3g times as long, want at most %d", at, g.factor,
			maxGrowth)
	}
	return nil
}
