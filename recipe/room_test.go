package recipe

import (
	"strings"
	"testing"
)

// TestWhatFitsIsNamed: by hand. Of the settings that fit, the one that changes least is named.
func TestWhatFitsIsNamed(t *testing.T) {
	for _, c := range []struct {
		room
		want string // "": it fits
	}{
		{room{There: 6e9, Kept: 6e9, Again: 4e9, Adapter: 3e9}, ""},
		{room{There: 5e9, Kept: 6e9, Again: 4e9, Adapter: 3e9}, "about 6.0 GB, and there are 5.0 GB: want " +
			"train.gradient_checkpointing: true, with which it takes 4.0 GB"},
		{room{There: 3.5e9, Kept: 6e9, Again: 4e9, Adapter: 3e9}, "want an adapter (lora.rank: 16), with which it " +
			"takes about 3.0 GB"},
		{room{There: 2e9, Kept: 6e9, Again: 4e9, Adapter: 3e9}, "want a smaller model"},
	} {
		switch err := c.err(); {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v, want %q", c.room, err, c.want)
		}
	}
}
