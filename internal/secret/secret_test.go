package secret

import "testing"

// TestKeyHidesOnlyItself: a key is found whole, in pieces and escaped; texts without it stay.
func TestKeyHidesOnlyItself(t *testing.T) {
	key := New("sk-a/b+c0123456789\n")
	for text, want := range map[string]string{
		"": "", "sk-a/b+c012345678": "sk-a/b+c012345678",
		" sk-a/b+c0123456789 ": " *** ", "sk-sk-a/b+c0123456789sk-a/b+c0123456789.": "sk-******.",
		`sk-a\/b\u002Bc0123456789`: "***", "sk-a%2Fb%2bc0123456789": "***", "s\nk-a/b+c01234\xff56789!": "***",
	} {
		if got := key.Hide(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if text := "as it is"; New("").Hide(text) != text {
		t.Error("a text changed without a key")
	}
}

// TestHideUsers: names and passwords of addresses go, hosts and other signs stay.
func TestHideUsers(t *testing.T) {
	for text, want := range map[string]string{
		"http://u:pass@host:1/a and https://token@host": "http://…@host:1/a and https://…@host",
		"http://host/a@b, me@host, //x y@z":             "http://host/a@b, me@host, //x y@z",
		"http://u:p@ss@host":                            "http://…@host",
		"http://u:p/s?s#@host/a":                        "http://…@host/a",
		"http://host:80/a@b http://h/c:d@e":             "http://host:80/a@b http://h/c:d@e",
	} {
		if got := HideUsers(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
