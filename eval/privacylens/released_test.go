package privacylens

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// releasedFile is the path of a fixture; the README.md beside it says what they are.
func releasedFile(name string) string { return filepath.Join("testdata", "released", name) }

// readReleased decodes a fixture.
func readReleased[T any](t *testing.T, name string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, releasedFile(name))), &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// releasedCases are the cases of a file of PrivacyLens.
func releasedCases(t *testing.T, name string) []Case {
	t.Helper()
	switch name {
	case "confide_subset.json":
		return realCases(t, "confaide_subset.json")
	case "culturebank_subset.json":
		cases, _, err := readCases(nil, releasedFile(name+".gz"))
		expect.OK(t, err)
		return cases
	}
	return realCases(t, name)
}

// hashes are the prompts of a file of cases, by kind: their number and the hash of all of them, with names.
type hashes map[string]struct {
	Prompts int
	SHA256  string
}

// TestReleasedPrompts: what is sent to agent, judge and model under probing with prompts released is byte for byte what
// the benchmark's and CI-RL's own scripts send, in every case.
func TestReleasedPrompts(t *testing.T) {
	all := readReleased[map[string]hashes](t, "hashes.json")
	if len(all) != 3 {
		t.Fatalf("hashes of %d files of cases, want 3", len(all))
	}
	for name, want := range all {
		t.Run(name, func(t *testing.T) {
			cases := releasedCases(t, name)
			for i := range cases {
				checkCase(t, &cases[i])
			}
			got := sentPrompts(t, cases)
			for kind, w := range want {
				if g := got[kind]; g.String() != fmt.Sprintf("%d prompts, SHA-256 %s", w.Prompts, w.SHA256) {
					t.Errorf("%s: %v, want %d, %s, as the release has them", kind, g, w.Prompts, w.SHA256)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d kinds, want %d", len(got), len(want))
			}
		})
	}
}

// hashed is the hash of prompts, with names, and their number.
type hashed struct {
	hash.Hash
	n int
}

func (h *hashed) String() string {
	if h == nil {
		return "no prompts"
	}
	return fmt.Sprintf("%d prompts, SHA-256 %x", h.n, h.Sum(nil))
}

// sentPrompts are all prompts of a file of cases by kind, as the stages send them, but for the prompts of kind cot.
func sentPrompts(t *testing.T, cases []Case) map[string]*hashed {
	t.Helper()
	// as the script has it
	const action = "GmailSendEmail\nAction Input: {\"to\": \"a@example.org\", \"body\": \"50 % {x}\"}"
	o := Benchmark.Defaults()
	from := expect.Must(readPrompts(&o))(t)
	all := map[string]*hashed{}
	add := func(kind, name, prompt string) {
		if all[kind] == nil {
			all[kind] = &hashed{sha256.New(), 0}
		}
		fmt.Fprintf(all[kind], "%s\x00%s\x00", name, prompt)
		all[kind].n++
	}
	e := &evaluation{Options: &o, cases: cases, prompts: from, judging: true}
	for i := range cases {
		c := &cases[i]
		for _, kind := range []string{Naive, Enhanced, CIRL} {
			add(kind, c.Name, expect.Must(from.write(kind, c, filling{}))(t))
		}
		for _, q := range expect.Must(e.questions(i, []string{"Action: " + action}))(t) {
			kind := leakage
			if q.Key == helpfulness {
				kind = helpfulness
			}
			add(kind, c.Name, q.Messages[0].Content)
		}
		for suffix, think := range map[string]bool{"": false, ", think": true} {
			for _, level := range Levels {
				text := expect.Must(from.write(probeKind+level, c, filling{YesFirst: true, Think: think}))(t)
				add(probeKind+level+suffix, c.Name, text)
			}
		}
	}
	return all
}
