package main

import (
	"os"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"
)

// TestSynthFaults: bad input to data synth gives one line, and leaves nothing behind.
func TestSynthFaults(t *testing.T) {
	model := func(more ...string) []string {
		return append([]string{"data", "synth", "--base-url", "http://127.0.0.1:9/v1", "--api-model", "m", "--out",
			"items"}, more...)
	}
	refuseAll(t, func(t *testing.T) { t.Chdir(t.TempDir()) }, []faultCase{
		{"a principle of nobody", nil, model("--principles", "Secrecy"), 2, []string{"--principles",
			"some of Confidentiality, Proportionality and Consent"}, nil},
		{"per seed the wrong way round", nil, model("--per-seed", "5,3"), 2, []string{"--per-seed", "per_seed [5 3]",
			"such as 3,5"}, nil},
		{"flaws of items", nil, model("--leak", "0.1"), 2, []string{"--leak", "about demonstrations"}, nil},
		{"gates of demonstrations", nil, []string{"data", "synth", "--set", "near=0.5", "--out", "x.jsonl"}, 2,
			[]string{"near 0.5", "add writer.model"}, nil},
		{"held-out of a model", nil, model("--held-out"), 2, []string{"--held-out", "about demonstrations"}, nil},
		{"model without a name", nil, []string{"data", "synth", "--base-url", "http://127.0.0.1:9/v1", "--out", "x.jsonl"}, 2,
			[]string{"--base-url", "add writer.model"}, nil},
		{"budget without prices", nil, model("--max-cost", "3"), 2, []string{"--max-cost", "without prices"}, nil},
		{"no scenarios", nil, model("--n", "0"), 2, []string{"--n", "n 0", "1 or more"}, nil},
		{"no key", nil, model("--api-key-env", "NO_SUCH_KEY"), 1, []string{"no key for the writer", "NO_SUCH_KEY",
			"writer.api_key_env"}, nil},
	})
}

// TestSynthProse: a model that returns prose ends in one line; another run's folder is left alone.
func TestSynthProse(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("OPENAI_API_KEY", "")
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "Privacy is a fine thing." }})
	args := []string{"data", "synth", "--base-url", s.URL, "--api-model", "m", "--n", "2", "--out", "prose"}
	checkRefusal(t, cli(t, args...), faultCase{code: 1, says: []string{"the model writes no vignettes",
		"there is no JSON object in it", "Privacy is a fine thing.", "want another model"}})
	if err := os.Mkdir("other", 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, "other/config.yaml", "command: ci-rl\n")
	checkRefusal(t, cli(t, "data", "synth", "--base-url", s.URL, "--api-model", "m", "--out", "other"),
		faultCase{code: 1, says: []string{"out other: it has a run of posttrain ci-rl", "name another folder"}})
}
