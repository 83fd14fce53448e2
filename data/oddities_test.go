package data

import (
	"slices"
	"testing"
)

func TestOddities(t *testing.T) {
	for text, want := range map[string][]string{
		`{"a":1,"b":{"a":2},"c":[{"a":3},{"a":4}]}`: nil,
		`{"a":1,"b":2,"a":3}`:                       {duplicateKey},
		`{"a":1, "\u0061" : 3}`:                     {duplicateKey},
		`{"x":[{"a":1,"a":2}]}`:                     {duplicateKey},
		`{"a":"\ud83d\ude00 \\ud800 \u00e9 \"\n"}`:  nil,
		`{"a":"\ud800"}`:                            {loneSurrogate},
		`{"a":"\udc00"}`:                            {loneSurrogate},
		`{"a":"\ud800x\udc00"}`:                     {loneSurrogate},
		`{"a":"\ud800\n"}`:                          {loneSurrogate},
		`{"a":"\ud800\ud83d\ude00"}`:                {loneSurrogate},
		`{"\ud800":1,"a":1,"a":1}`:                  {duplicateKey, loneSurrogate},
		`{"a":"a","b":["a","a"],"c":"b"}`:           nil,
		`{"a":"\u`:                                  nil,
		`{"a":"\`:                                   nil,
		`}}]"`:                                      nil,
	} {
		if got := oddities([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
