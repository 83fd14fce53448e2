package privacylens

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"testing"

	lens "github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/rollout"
)

// released are the hashes that scripts/privacylens/export_prompts.py --hashes writes, by file and kind.
type released map[string]map[string]struct {
	Prompts int
	SHA256  string
}

// TestReleasedPrompts: what is sent to agent, judge and model under probing with prompts released is byte for byte what
// the benchmark's and CI-RL's own scripts send, in every case. POSTTRAIN_PRIVACYLENS_PROMPTS names the folder of the
// cases of a checkout, where export_prompts.py has written its files.
func TestReleasedPrompts(t *testing.T) {
	dir := os.Getenv("POSTTRAIN_PRIVACYLENS_PROMPTS")
	if dir == "" {
		t.Skip("set POSTTRAIN_PRIVACYLENS_PROMPTS to the folder with PrivacyLens's cases and exported prompts")
	}
	var all released
	if err := json.Unmarshal([]byte(read(t, filepath.Join("testdata", "released-prompts.json"))), &all); err != nil {
		t.Fatal(err)
	}
	for name, want := range all {
		path := filepath.Join(dir, name)
		if name != mainData {
			path = filepath.Join(dir, "extensibility", name)
		}
		cases, _, err := ReadCases(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range cases {
			checkCase(t, &cases[i])
		}
		got := sentPrompts(t, path, cases)
		for kind, w := range want {
			if g := got[kind]; g == nil || g.n != w.Prompts || hex.EncodeToString(g.Sum(nil)) != w.SHA256 {
				t.Errorf("%s, %s: %+v, want %d prompts", name, kind, g, w.Prompts)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d kinds, want %d", name, len(got), len(want))
		}
	}
}

// hashed is the hash of prompts, with names, and their number.
type hashed struct {
	hash.Hash
	n int
}

// sentPrompts are all prompts of a file of cases by kind, as the stages send them.
func sentPrompts(t *testing.T, path string, cases []lens.Case) map[string]*hashed {
	t.Helper()
	// as the script has it
	const action = "GmailSendEmail\nAction Input: {\"to\": \"a@example.org\", \"body\": \"50 % {x}\"}"
	o := Defaults()
	o.Prompts, o.Data.Cases = Released, path
	from := must[promptSource](t)(must[*sources](t)(readSources(&o)).of(""))
	all := map[string]*hashed{}
	add := func(kind, name, prompt string) {
		if all[kind] == nil {
			all[kind] = &hashed{sha256.New(), 0}
		}
		fmt.Fprintf(all[kind], "%s\x00%s\x00", name, prompt)
		all[kind].n++
	}
	agents := map[string]actionOptions{}
	for _, kind := range Kinds {
		agents[kind] = actionOptions{Prompts: must[agentPrompter](t)(from.Agent(kind, cases))}
	}
	probes := map[string]probeOptions{}
	for kind, think := range map[string]bool{"": false, ", think": true} {
		probes[kind] = probeOptions{Prompts: must[probePrompter](t)(from.Probes(Levels, think, cases))}
	}
	judge := modelJudge{Prompts: must[judgePrompter](t)(from.Judge(cases))}
	for i := range cases {
		c := &cases[i]
		for kind, o := range agents {
			add(kind, c.Name, must[rollout.Conversation](t)(o.Conversation(c)).Messages[0].Content)
		}
		for item := range c.Trajectory.Items {
			judge.Model = &asker{say: func(prompt string) (string, error) {
				add(leakage, c.Name, prompt)
				return "Answer: No", nil
			}}
			must[Verdict](t)(judge.Leakage(t.Context(), c, action, item))
		}
		judge.Model = &asker{say: func(prompt string) (string, error) {
			add(helpfulness, c.Name, prompt)
			return "Answer: Good", nil
		}}
		must[Verdict](t)(judge.Helpfulness(t.Context(), c, action))
		for kind, o := range probes {
			for _, level := range Levels {
				q := probe{c, probeRow{Name: c.Name, Level: level, YesFirst: true}}
				add(probeKind+level+kind, c.Name, must[rollout.Conversation](t)(o.conversation(q)).Messages[0].Content)
			}
		}
	}
	return all
}
