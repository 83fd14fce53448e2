package main

import (
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/rollout/metered/meteredtest"
)

// TestSynthFaults: bad input to data synth gives one line, and leaves nothing behind.
func TestSynthFaults(t *testing.T) {
	items := func(more ...string) []string {
		return append([]string{"data", "synth", "--form", "items", "--n", "40", "--out", "items"}, more...)
	}
	model := func(more ...string) []string {
		return append([]string{"data", "synth", "--base-url", "http://127.0.0.1:9/v1", "--api-model", "m", "--out",
			"items"}, more...)
	}
	refuseAll(t, func(t *testing.T) { t.Chdir(t.TempDir()) }, []faultCase{
		{"quotas above n", nil, items("--domains", "Work=30,Family=11,Finance"), 2, []string{"--domains",
			"the quotas cannot be met: up to Family they are 41 seeds, and n is 40"}, nil},
		{"quotas below n", nil, items("--principles", "Consent=3"), 2, []string{"--principles",
			"the quotas cannot be met: they are 3 seeds, and n is 40", "without a quota"}, nil},
		{"quotas that the templates do not have", nil, items("--domains", "Finance=39,Work", "--principles",
			"Consent=2,Proportionality"), 2, []string{"--principles", "the quotas cannot be met", "Consent: Work"}, nil},
		{"a domain of nobody", nil, items("--domains", "Space"), 2, []string{"--domains", `"Space"`,
			"the templates have no task", "a model that writes"}, nil},
		{"quota that is no number", nil, model("--scenarios", "email=half"), 2, []string{"--scenarios",
			`email has the quota "half"`, "a whole number"}, nil},
		{"per seed the wrong way round", nil, items("--per-seed", "5,3"), 2, []string{"--per-seed", "per_seed [5 3]",
			"such as 3,5"}, nil},
		{"flaws of items", nil, items("--leak", "0.1"), 2, []string{"--leak", "no effect with form items"}, nil},
		{"gates of demonstrations", nil, []string{"data", "synth", "--set", "near=0.5", "--out", "x.jsonl"}, 2,
			[]string{"near 0.5", "no effect with form demonstrations"}, nil},
		{"held-out of a model", nil, model("--held-out"), 2, []string{"--held-out", "engine model"}, nil},
		{"number of seeds of a file", withFile("s.json", "[]"), model("--seeds", "s.json", "--n", "5"), 2,
			[]string{"--n", "no effect with seeds s.json"}, nil},
		{"model without a name", nil, []string{"data", "synth", "--engine", "model", "--out", "items"}, 2,
			[]string{"--api-model", "writer.model is missing"}, nil},
		{"demonstrations of a model", nil, model("--form", "demonstrations", "--out", "x.jsonl"), 2,
			[]string{"--form", "only the engine templates writes them"}, nil},
		{"budget without prices", nil, model("--max-cost", "3"), 2, []string{"--max-cost", "without prices"}, nil},
		{"no scenarios", nil, items("--n", "0"), 2, []string{"--n", "n 0", "1 or more"}, nil},
		{"no key", nil, model("--api-key-env", "NO_SUCH_KEY"), 1, []string{"no key for the writer", "NO_SUCH_KEY",
			"writer.api_key_env"}, nil},
		{"no file of seeds", nil, model("--seeds", "no.json"), 1, []string{"no.json: no such file"}, nil},
		{"seeds of pairs", withFile("s.jsonl", `{"prompt":"a"}`), model("--seeds", "s.jsonl"), 1,
			[]string{"s.jsonl:1", "scenario is missing or empty", "scenario, domain and transmission_principle"}, nil},
	})
}

// TestSynthProse: a model that returns prose ends in one line; templates write what ci-rl's reader takes.
func TestSynthProse(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("OPENAI_API_KEY", "")
	s := meteredtest.Start(t, meteredtest.Options{Reply: func(string) string { return "Privacy is a fine thing." }})
	args := []string{"data", "synth", "--base-url", s.URL, "--api-model", "m", "--n", "2", "--out", "prose"}
	checkRefusal(t, cli(t, args...), faultCase{code: 1, says: []string{"the model writes no vignettes",
		"there is no JSON object in it", "Privacy is a fine thing.", "want another model"}})
	o := must(t, "data", "synth", "--form", "items", "--n", "6", "--seed", "2", "--out", "items")
	got, _, err := ci.Read("items/items.jsonl")
	if err != nil || len(got) < 18 || !strings.Contains(o.out, "items/items.jsonl: ") {
		t.Errorf("%d items, %v\n%s", len(got), err, o.out)
	}
	checkRefusal(t, cli(t, "data", "synth", "--form", "items", "--n", "7", "--seed", "2", "--out", "items"),
		faultCase{code: 1, says: []string{"items: it was begun with n", `"6", now it is "7"`,
			"name another --out DIR"}})
	if err := os.Mkdir("other", 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, "other/config.yaml", "command: ci-rl\n")
	checkRefusal(t, cli(t, "data", "synth", "--form", "items", "--out", "other"),
		faultCase{code: 1, says: []string{"out other: it has a run of posttrain ci-rl", "name another folder"}})
}
