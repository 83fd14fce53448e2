package privacylens

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/configs"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func parsePL(text string, sets ...string) (*Options, error) {
	return Benchmark.Parse("f.yaml", []byte("command: eval privacylens\n"+text),
		config.Input{Overrides: overridesOf(sets)})
}

func loadPL(sets ...string) (*Options, error) {
	return Benchmark.Load(config.Input{Overrides: overridesOf(sets)})
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

// The released file shows and explains every key that applies, as its default where it has one, and names the others.
func TestPrivacyLensFileHasEveryKey(t *testing.T) {
	_, text := configs.Read("privacylens.yaml")
	c := expect.Must(Benchmark.Parse("privacylens.yaml", text, config.Input{}))(t)
	others := []string{"agent.base_url", "agent.api_model", "agent.answers", "agent.continue"}
	for _, key := range slices.AppendSeq(others, maps.Keys(c.Idle(nil))) {
		if word := key[strings.Index(key, ".")+1:] + ":"; !strings.Contains(string(text), "# "+word) {
			t.Errorf("%s is not there", key)
		}
	}
	for _, line := range config.Diff(text, Benchmark.Resolve(c)) {
		if strings.Contains(line, ": not given, now ") {
			t.Error(line)
		}
	}
	d := Benchmark.Defaults()
	d.Data, d.Agent.Model, d.Judge.Model = c.Data, c.Agent.Model, c.Judge.Model
	if string(Benchmark.Resolve(&d)) != string(Benchmark.Resolve(c)) {
		t.Errorf("the file has\n%s\nthe defaults are\n%s", Benchmark.Resolve(c), Benchmark.Resolve(&d))
	}
}

// An agent or judge that the command line chooses takes the place of the file's.
func TestPrivacyLensChoice(t *testing.T) {
	const file = "data: embedded\nagent: {answers: a.csv}\njudgments: v.json"
	c, err := parsePL(file, "agent.base_url=http://h/v1", "agent.api_model=m", "judge.model=j", "judge.timeout=90s")
	expect.OK(t, err)
	if c.Agent.Way() != bench.Remote || c.Agent.Answers != "" || c.Judgments != "" ||
		c.Judge.Timeout != 90*time.Second {
		t.Errorf("%+v", c)
	}
	if text := string(Benchmark.Resolve(c)); strings.Contains(text, "answers") || strings.Contains(text, "judgments") ||
		strings.Contains(text, "backend") || !strings.Contains(text, "timeout: 1m30s") {
		t.Errorf("resolved:\n%s", text)
	}
	if _, err := loadPL("stage=answers"); err == nil || !strings.Contains(err.Error(), "data is missing") {
		t.Errorf("a stage alone: %v", err)
	}
	c, err = parsePL("data: embedded\nprompt: cot\nagent: {model: m}\njudging: keyword")
	if err != nil || !c.Agent.Prefill {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = parsePL("data: embedded\nform: probe\nthink_first: true\nagent: {model: m}")
	if err != nil || !c.Agent.Prefill || c.Agent.Temperature != 0 || c.Agent.MaxNew != thinkProbeTokens {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = loadPL(); err != nil || c.Agent.Answers != embedded.Name || c.Judgments != embedded.Name {
		t.Errorf("quick start: %+v, %v", c, err)
	}
	if c, err = loadPL("judging=keyword"); err != nil || c.Agent.Answers != embedded.Name || c.kind() != KindKeyword {
		t.Errorf("quick start with another judge: %+v, %v", c, err)
	}
}

func TestPrivacyLensFaults(t *testing.T) {
	const cases, good = "data: c.json\n", "agent: {model: m}\njudge: {model: j}\n"
	for _, c := range []struct {
		text string
		sets []string
		want string
	}{
		{good, []string{"stage=report"}, "f.yaml: data is missing: want a file of cases (main_data.json), its folder, " +
			"or embedded"},
		{cases, []string{"stage=answers"}, "f.yaml: agent.model is missing: want a model folder; or agent.base_url " +
			"and agent.api_model of a server, or agent.answers, a file of recorded answers"},
		{cases, []string{"stage=judge"}, "f.yaml: judge.model is missing: want the judge's name on " +
			"https://api.openai.com/v1"},
		{cases + "judging: keyword\nagent: {model: m, base_url: http://h}", nil,
			"f.yaml:4: agent.base_url \"http://h\": agent.model names an agent already; remove one of the two"},
		{cases + "judging: keyword\nagent: {base_url: http://h/v1}", nil,
			"f.yaml: agent.api_model is missing: want the model's name on http://h/v1"},
		{cases + "form: probe\nagent: {answers: a.csv}", nil,
			"f.yaml:4: agent.answers a.csv: recorded actions cannot be asked; want agent.model, or agent.base_url " +
				"and agent.api_model"},
		{cases + "judging: keyword\nagent:\n  answers: a.csv\n  temperature: 0.5", nil,
			"f.yaml:6: agent.temperature 0.5: it has no effect with agent.answers; remove it"},
		{cases + good, []string{"agent.parallel=3"},
			"--set: agent.parallel 3: it has no effect with agent.model; remove it"},
		{cases + "agent: {model: m}\njudge:\n  model: j\n  max_cost: 3", nil,
			"f.yaml:6: judge.max_cost 3: without prices nothing costs anything; give judge.prompt_price and " +
				"judge.completion_price, each of a million tokens"},
		{cases + good + "judging: gpt", nil, "f.yaml:5: judging \"gpt\": want model or keyword"},
		{cases + good + "helpfulness: h.json", nil,
			"f.yaml:5: helpfulness h.json: want judgments as well, the recorded verdicts that it belongs to"},
		{cases + "agent: {model: m}\njudge: {model: j, timeout: 5}", nil,
			"f.yaml:4: judge.timeout 5: want a time above 0, such as 90s or 5m"},
		{cases + "agent: {model: m}\njudge: {model: j, base_url: 'localhost:8000'}", nil,
			"f.yaml:4: judge.base_url \"localhost:8000\": want the URL of an OpenAI-compatible server, such as " +
				"http://localhost:8000/v1, without a key in it"},
		{cases + good + "form: probe\nlevels: [seed, story]", nil,
			"f.yaml:6: levels [seed, story]: want some of seed, vignette, trajectory and trajectory-enhanced"},
		{cases + good + "prompt: rude", nil, "f.yaml:5: prompt \"rude\": want naive, enhanced, cot or ci-rl"},
		{cases + good + "think: drop", nil, "f.yaml:5: think \"drop\": want strip or keep"},
		{cases + good + "guard: wall", nil, "f.yaml:5: guard \"wall\": want none or airgap"},
		{cases + "judging: keyword\nagent: {answers: a.csv}\nguard: airgap", nil, "f.yaml:5: guard airgap: recorded actions " +
			"are not asked for again; want guard none, or agent.model, or agent.base_url and agent.api_model"},
		{cases + "judgments: v.json\nguard: airgap", nil, "f.yaml:4: guard airgap: recorded actions are not asked for " +
			"again; want guard none, or agent.model, or agent.base_url and agent.api_model"},
		{cases + "agent: {model: m}\nform: probe", []string{"guard=airgap"},
			"--set: guard \"airgap\": it has no effect with form probe; remove it"},
		{cases + "agent: {model: m}\nform: probe\nagainst: v.json", nil,
			"f.yaml:5: against \"v.json\": it has no effect with form probe; remove it"},
		{cases + "agent: {answers: a.csv}", []string{"judging=keyword", "judgments=v.json"},
			"--set: judging \"keyword\": it has no effect with judgments; remove one of the two"},
		{cases + good + "think_first: true", nil,
			"f.yaml:5: think_first true: it has no effect with form action; remove it"},
		{cases + "judging: keyword\nagent: {think_opened: true, model: m}", nil,
			"f.yaml:4: agent.think_opened true: it has no effect with agent.model; remove it"},
		{cases + "judging: keyword\nagent: {base_url: 'http://h/v1', api_model: m, continue: vllm, prefill: true, " +
			"think_opened: true}", nil, "f.yaml:4: agent.prefill true: with agent.think_opened the chat template has " +
			"opened the think block already; want false"},
	} {
		_, err := parsePL(c.text, c.sets...)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q %v:\n%v, want\n%s", c.text, c.sets, err, c.want)
		}
	}
	for _, secret := range []string{"base_url: http://u:sk-secret@h/v1", "base_url: http://h/v1?key=sk-secret",
		"api_key_env: sk-secret"} {
		if _, err := parsePL(cases + "judge:\n  " + secret); err == nil || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%v: want an error without the key", err)
		}
	}
}

// FuzzParseOptions: no file and no flag is more than faults of one line each, and what loads is resolved to what loads
// to the same.
func FuzzParseOptions(f *testing.F) {
	f.Add("data: c.json\nagent: {model: m}\njudging: keyword\n", "judge.model", "x")
	f.Add("data: embedded\nfirst: 3\nagent:\n  base_url: http://h/v1\n  api_model: m\n  timeout: 90s\njudgments: "+
		"v.json\n", "agent.answers", "a.csv")
	f.Add("judge: {max_cost: .5, timeout: -1h}\nagent: {api_key_env: 'sk 1'}\n", "judging", "model")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		c, err := Benchmark.Parse("f.yaml", []byte("command: eval privacylens\n"+text),
			config.Input{Overrides: []config.Override{{Flag: "--set", Key: key, Value: value}}})
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
		c.Stage = ""
		if again, err := Benchmark.Parse("config.yaml", Benchmark.Resolve(c), config.Input{}); err != nil ||
			!reflect.DeepEqual(c, again) && c.kind() == KindModel {
			t.Fatalf("%v\n%s", err, Benchmark.Resolve(c))
		}
	})
}
