package privacylens

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
)

func parsePL(text string, stages []string, sets ...string) (*Options, error) {
	return parsePrivacyLens("f.yaml", []byte("command: eval privacylens\n"+text), overridesOf(sets), stages...)
}

var allStages = []string{StageActions, StageJudge, StageReport}

// The released file shows and explains every key that applies, as its default where it has one, and names the others.
func TestPrivacyLensFileHasEveryKey(t *testing.T) {
	text, err := configs.Files.ReadFile("privacylens.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parsePrivacyLens("privacylens.yaml", text, nil, allStages...)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range Spec().Idle(c) {
		if word := key[strings.Index(key, ".")+1:] + ":"; !strings.Contains(string(text), "  # "+word) {
			t.Errorf("%s is not there", key)
		}
	}
	for _, line := range config.Diff(text, c.Resolved()) {
		if strings.Contains(line, ": not given, now ") {
			t.Error(line)
		}
	}
	d := Defaults()
	d.Data.Cases, d.Agent.Model, d.Judge.Model = c.Data.Cases, c.Agent.Model, c.Judge.Model
	if string(d.Resolved()) != string(c.Resolved()) {
		t.Errorf("the file has\n%s\nthe defaults are\n%s", c.Resolved(), d.Resolved())
	}
}

// An agent or judge that the command line chooses takes the place of the file's.
func TestPrivacyLensChoice(t *testing.T) {
	const file = "data: {cases: embedded}\nagent: {actions: a.csv}\njudge: {kind: replay, verdicts: v.json}"
	c, err := parsePL(file, allStages, "agent.base_url=http://h/v1", "agent.api_model=m", "judge.kind=model",
		"judge.model=j", "judge.timeout=90s")
	if err != nil {
		t.Fatal(err)
	}
	if c.Agent.Way() != AgentServer || c.Agent.Actions != "" || c.Judge.Verdicts != "" ||
		c.Judge.Timeout != 90*time.Second {
		t.Errorf("%+v", c)
	}
	if text := string(c.Resolved()); strings.Contains(text, "actions") || strings.Contains(text, "verdicts") ||
		strings.Contains(text, "backend") || !strings.Contains(text, "timeout: 1m30s") {
		t.Errorf("resolved:\n%s", text)
	}
	for key, kind := range map[string]string{"judge.model": KindModel, "judge.verdicts": KindReplay} {
		c, err := parsePL("data: {cases: embedded}\njudge: {kind: keyword}", nil, key+"=x")
		if err != nil || c.Judge.Kind != kind {
			t.Errorf("%s: %+v, %v", key, c, err)
		}
	}
	if _, err := loadPrivacyLens("", nil, StageActions); err == nil ||
		!strings.Contains(err.Error(), "data.cases is missing") {
		t.Errorf("a stage alone: %v", err)
	}
	c, err = parsePL("data: {cases: embedded}\nagent: {model: m, prompt: cot}\njudge: {kind: keyword}", allStages)
	if err != nil || !c.Agent.Prefill {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = loadPrivacyLens("", nil, allStages...); err != nil || c.Agent.Actions != embedded.Name {
		t.Errorf("quick start: %+v, %v", c, err)
	}
	if c, err = loadPrivacyLens("", overridesOf([]string{"judge.kind=keyword"}), allStages...); err != nil ||
		c.Agent.Actions != embedded.Name || c.Judge.Kind != KindKeyword {
		t.Errorf("quick start with another judge: %+v, %v", c, err)
	}
}

func TestPrivacyLensFaults(t *testing.T) {
	const cases = "data: {cases: c.json}\n"
	for _, c := range []struct {
		text   string
		stages []string
		sets   []string
		want   string
	}{
		{"", []string{StageReport}, nil, "f.yaml: data.cases is missing: want a file of cases " +
			"(main_data.json), its folder, or embedded"},
		{cases, []string{StageActions}, nil, "f.yaml: agent.model is missing: want a model folder; or agent.base_url " +
			"and agent.api_model of a server, or agent.actions, a file of recorded actions"},
		{cases, []string{StageJudge}, nil, "f.yaml: judge.model is missing: want the judge's name on " +
			"https://api.openai.com/v1; or judge.kind keyword (a smoke test), or replay (recorded verdicts)"},
		{cases, []string{StageJudge}, []string{"judge.kind=replay"},
			"f.yaml: judge.verdicts is missing: judge.kind replay wants a file of recorded verdicts"},
		{cases + "agent: {model: m, base_url: http://h}", nil, nil,
			"f.yaml:3: agent.base_url \"http://h\": agent.model names an agent already; remove one of the two"},
		{cases + "agent: {base_url: http://h/v1}", nil, nil,
			"f.yaml: agent.api_model is missing: want the model's name on http://h/v1"},
		{cases + "agent: {actions: a.csv}", []string{StageProbe}, nil,
			"f.yaml:3: agent.actions a.csv: recorded actions cannot be asked; want agent.model, or agent.base_url " +
				"and " +
				"agent.api_model"},
		{cases + "agent:\n  actions: a.csv\n  temperature: 0.5", nil, nil,
			"f.yaml:5: agent.temperature 0.5: it has no effect with agent.actions; remove it"},
		{cases + "agent: {model: m}", nil, []string{"agent.parallel=3"},
			"--set: agent.parallel 3: it has no effect with agent.model; remove it"},
		{cases + "judge:\n  kind: keyword\n  max_cost: 3", nil, nil,
			"f.yaml:5: judge.max_cost 3: it has no effect with judge.kind keyword; remove it"},
		{cases + "judge:\n  kind: model\n  max_cost: 3", nil, nil,
			"f.yaml:5: judge.max_cost 3: without prices nothing costs anything; give judge.prompt_price and " +
				"judge.completion_price, each of a million tokens"},
		{cases + "judge:\n  kind: keyword\n  model: j", nil, nil,
			"f.yaml:5: judge.model \"j\": it has no effect with judge.kind keyword; remove it"},
		{cases + "judge:\n  kind: keyword\n  api_version: 2024-10-21", nil, nil,
			"f.yaml:5: judge.api_version \"2024-10-21\": it has no effect with judge.kind keyword; remove it"},
		{cases + "judge:\n  verdicts: v.json", nil, nil,
			"f.yaml:4: judge.verdicts \"v.json\": it has no effect with judge.kind model; remove it"},
		{cases + "judge: {kind: gpt}", nil, nil, "f.yaml:3: judge.kind \"gpt\": want model, keyword or replay"},
		{cases + "judge: {timeout: 5}", nil, nil, "f.yaml:3: judge.timeout 5: want a time above 0, such as 90s or 5m"},
		{cases + "judge: {timeout: -5m}", nil, nil, "f.yaml:3: judge.timeout \"-5m\": want a time above 0, such as " +
			"90s or 5m"},
		{cases + "judge: {base_url: 'localhost:8000'}", nil, nil,
			"f.yaml:3: judge.base_url \"localhost:8000\": want the URL of an OpenAI-compatible server, such as " +
				"http://localhost:8000/v1, without a key in it"},
		{cases + "probe: {levels: [seed, story]}", nil, nil,
			"f.yaml:3: probe.levels [seed, story]: want some of seed, vignette, trajectory " +
				"and trajectory-enhanced"},
		{cases + "agent: {prompt: rude, model: m}", nil, nil,
			"f.yaml:3: agent.prompt \"rude\": want naive, enhanced or cot"},
		{cases + "agent: {think: drop, model: m}", nil, nil, "f.yaml:3: agent.think \"drop\": want strip or keep"},
		{cases + "agent: {think_opened: true, model: m}", nil, nil,
			"f.yaml:3: agent.think_opened true: it has no effect with agent.model; remove it"},
		{cases + "agent: {base_url: 'http://h/v1', api_model: m, continue: vllm, prefill: true, think_opened: true}",
			nil, nil, "f.yaml:3: agent.prefill true: with agent.think_opened the chat template has opened the think " +
				"block already; want false"},
	} {
		_, err := parsePL(c.text, c.stages, c.sets...)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q %v:\n%v, want\n%s", c.text, c.sets, err, c.want)
		}
	}
	for _, secret := range []string{"base_url: http://u:sk-secret@h/v1", "base_url: http://h/v1?key=sk-secret",
		"api_key_env: sk-secret"} {
		if _, err := parsePL(cases+"judge:\n  "+secret, nil); err == nil || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%v: want an error without the key", err)
		}
	}
}

// FuzzParseOptions: no file and no flag is more than faults of one line each, and what loads is resolved to what loads
// to the same.
func FuzzParseOptions(f *testing.F) {
	f.Add("data: {cases: c.json}\nagent: {model: m}\njudge: {kind: keyword}\n", "judge.model", "x")
	f.Add("data: {cases: embedded, first: 3}\nagent:\n  base_url: http://h/v1\n  api_model: m\n  timeout: 90s\njudge: "+
		"{kind: replay, verdicts: v.json}\nprobe: {levels: [seed]}\n", "agent.actions", "a.csv")
	f.Add("judge: {max_cost: .5, timeout: -1h}\nagent: {api_key_env: 'sk 1'}\n", "judge.kind", "model")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		c, err := parsePrivacyLens("f.yaml", []byte("command: eval privacylens\n"+text),
			[]config.Override{{Flag: "--set", Key: key, Value: value}}, StageActions)
		if err != nil {
			for _, fault := range err.(config.Faults) {
				if strings.ContainsAny(fault.Error(), "\n\r") {
					t.Fatalf("%q", fault.Error())
				}
			}
			return
		}
		if strings.Contains(strings.ToLower(text+value), "inf") ||
			strings.Contains(strings.ToLower(text+value), "nan") {
			return // the YAML library writes the text .inf as it writes the number
		}
		if again, err := parsePrivacyLens("config.yaml", c.Resolved(), nil); err != nil ||
			!reflect.DeepEqual(c, again) {
			t.Fatalf("%v\n%s", err, c.Resolved())
		}
	})
}

func parsePrivacyLens(name string, text []byte, sets []config.Override, stages ...string) (*Options, error) {
	return Spec(stages...).Parse(name, text, config.Input{Overrides: sets})
}

func loadPrivacyLens(path string, sets []config.Override, stages ...string) (*Options, error) {
	return Spec(stages...).Load(config.Input{Path: path, Overrides: sets})
}

func overridesOf(sets []string) (all []config.Override) {
	for _, set := range sets {
		o, err := config.ParseSet(set)
		if err != nil {
			panic(err)
		}
		all = append(all, o)
	}
	return all
}
