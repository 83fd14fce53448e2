package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestChatOfARun: the template, its variables and its date are in the run's config; a run whose template prints the
// date keeps the day of its start, so that it continues on another.
func TestChatOfARun(t *testing.T) {
	work(t, "qwen2-newer")
	template := strings.TrimSpace(read(t, "model/chat_template.jinja"))
	write(t, "dated.jinja", template+"{% if dated is defined %}{{ strftime_now('%d %b %Y') }}{% endif %}")
	args := tinyMappo(4, "--set", "chat.template=dated.jinja", "--set", "chat.variables=dated=true",
		"--set", "train.checkpoint_every=2")
	o := cliUntil(t, "step 2/4", args...)
	config := read(t, "out/config.yaml")
	if o.code != exitInterrupted || !strings.Contains(config, "\n  date: \""+time.Now().Format("2006-01-02")+"\"\n") &&
		!strings.Contains(config, "\n  date: "+time.Now().Format("2006-01-02")+"\n") {
		t.Fatal(o, config)
	}
	dated := read(t, "dated.jinja")
	write(t, "dated.jinja", dated+" ")
	o = cli(t, "mappo", "--resume", "out")
	checkRefusal(t, o, faultCase{code: 1,
		says: []string{"chat.template dated.jinja: it is not the run's: its SHA-256 begins with"}})
	write(t, "dated.jinja", dated)
	must(t, "mappo", "--resume", "out")
	if got := read(t, "out/model/chat_template.jinja"); got != read(t, "dated.jinja") {
		t.Errorf("%q", got)
	}
	// the config that the run was started with is its own, with what the run has noted
	write(t, "mine.yaml", "command: mappo\nmodel: model\ndata: {train: pairs.jsonl}\nchat: {template: dated.jinja}\n"+
		"train: {max_steps: 2, batch_size: 2, checkpoint_every: 1}\nbackend: go\n")
	if o := cliUntil(t, "step 1/2", "mappo", "--config", "mine.yaml", "--out", "mine"); o.code != exitInterrupted {
		t.Fatal(o)
	}
	write(t, "dated.jinja", dated+" ")
	checkRefusal(t, cli(t, "mappo", "--config", "mine.yaml", "--resume", "mine"), faultCase{code: 1,
		says: []string{"chat.template dated.jinja: it is not the run's: its SHA-256 begins with"}})
	write(t, "dated.jinja", dated)
	must(t, "mappo", "--config", "mine.yaml", "--resume", "mine")
	// a run of another day continues today
	past := append(args, "--set", "chat.date=2024-01-31")
	o = cliUntil(t, "step 2/4", append(past, "--out", "past")...)
	if o.code != exitInterrupted {
		t.Fatal(o)
	}
	must(t, "mappo", "--resume", "past")
	o = cli(t, "mappo", "--resume", "past", "--set", "chat.date=2024-02-01")
	checkRefusal(t, o, faultCase{code: 1, says: []string{"chat.date",
		"the config has changed since the run was started"}})
	for value, want := range map[string]string{
		"chat.variables=language=de": "the chat template has no variable language",
		"chat.variables=messages=1":  "the rows decide messages",
		"chat.variables=9":           "want a name and a value, such as enable_thinking=false",
		"chat.date=31.1.2024":        "want a day such as 2026-01-31",
		"chat.template=none.jinja":   "none.jinja: no such file",
	} {
		o := cli(t, tinyMappo(1, "--set", value, "--out", "other")...)
		if o.code == 0 || !strings.Contains(o.last(), want) || exists("other") {
			t.Errorf("%s: %d %s, want %s", value, o.code, o.last(), want)
		}
	}
}

// TestPlainPrompts: strings are messages where the model has a template; each command says so; chat.plain turns it off.
func TestPlainPrompts(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "plain.jsonl", `{"prompt": "France?", "chosen": "Paris", "rejected": " London"}`+"\n")
	say := func(role, text string) string { return `[{"role": "` + role + `", "content": "` + text + `"}]` }
	write(t, "chat.jsonl", `{"prompt": `+say("user", "France?")+`, "chosen": `+say("assistant", "Paris")+
		`, "rejected": `+say("assistant", "London")+"}\n")
	tokens := func(file string, args ...string) string {
		o := must(t, append([]string{"data", "show", "--model", "model", file}, args...)...)
		return strings.ReplaceAll(o.out, file, "")
	}
	chat := tokens("chat.jsonl")
	if tokens("plain.jsonl") != chat || tokens("plain.jsonl", "--chat-plain", "text") == chat {
		t.Error("a plain pair is not as the conversation, or --chat-plain changes nothing")
	}
	if o := must(t, "data", "check", "plain.jsonl"); !strings.Contains(o.out, "plain text in 1 prompts: a model with") {
		t.Error(o.out)
	}
	train := []string{"mappo", "--model", "model", "--backend", "go", "--prior", "none", "--set", "train.max_steps=1",
		"--set", "train.warmup_steps=0", "--set", "train.learning_rate=1e-3", "--data"}
	weights := map[string]string{}
	for _, c := range []struct{ file, plain, say string }{
		{"plain.jsonl", "template", "plain prompts go through the model's chat template"},
		{"chat.jsonl", "template", ""},
		{"plain.jsonl", "text", "plain prompts stay as they are, without the model's chat template"},
	} {
		out := c.file + c.plain
		o := must(t, append(slices.Clone(train), c.file, "--set", "chat.plain="+c.plain, "--out", out)...)
		if strings.Count(o.err, "plain prompts") != min(1, len(c.say)) || !strings.Contains(o.err, c.say) {
			t.Errorf("%v: %s", c, o.err)
		}
		weights[out] = read(t, out+"/model/model.safetensors")
	}
	want := weights["chat.jsonltemplate"]
	if weights["plain.jsonltemplate"] != want || weights["plain.jsonltext"] == want {
		t.Error("the trained weights are not those of the conversation, or of the text")
	}
	o := must(t, append(slices.Clone(train), "plain.jsonl", "--set", "chat.plain=text", "--explain")...)
	if !strings.Contains(o.out, "plain prompts: as they are, without") {
		t.Error(o.out)
	}
	for want, args := range map[string][]string{
		`chat.plain "auto": want template or text`: append(slices.Clone(train), "plain.jsonl", "--set",
			"chat.plain=auto"),
		`--chat-plain "auto": want template or text`: {"data", "show", "--chat-plain", "auto", "--model", "model",
			"plain.jsonl"},
		`"text": it is about a file of prompts without chat`: {"generate", "--prompt", "Hi", "--chat-plain", "text"},
	} {
		if o := cli(t, args...); o.code == 0 || !strings.Contains(o.err, want) {
			t.Errorf("%v: %d %s, want %s", args, o.code, o.err, want)
		}
	}
}

// TestChatElsewhere: data show, generate, eval ci and data best give the template the same settings; a ci-rl
// run's evaluation takes the run's.
func TestChatElsewhere(t *testing.T) {
	work(t, "qwen2-newer")
	template := strings.TrimSpace(read(t, "model/chat_template.jinja"))
	write(t, "said.jinja", "{% if loud is defined and loud %}LOUD {{ strftime_now('%Y') }} {% endif %}"+template)
	write(t, "chats.jsonl", turnLines)
	settings := []string{"--chat-template", "said.jinja", "--chat-variables", "loud=true", "--chat-date", "2024-01-31"}
	tokens := func(args ...string) string {
		o := must(t, append([]string{"data", "show", "--model", "model", "chats.jsonl"}, args...)...)
		var b strings.Builder
		for line := range strings.Lines(o.out) {
			if _, text, is := strings.Cut(strings.TrimSpace(line), `"`); is {
				b.WriteString(strings.TrimSuffix(text, `"`))
			}
		}
		return b.String()
	}
	plain, loud := tokens(), tokens(settings...)
	if loud != "LOUD 2024 "+plain {
		t.Errorf("%q, plain %q", loud, plain)
	}
	greedy := []string{"--model", "model", "--temperature", "0", "--max-new-tokens", "4"}
	must(t, append(append([]string{"generate", "--chat", "--prompt", "Hi"}, greedy...), settings...)...)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"data", "show", "--chat-variables", "quiet=1", "--model", "model", "chats.jsonl"},
			"the chat template has no variable quiet"},
		{[]string{"data", "show", "--chat-date", "x", "chats.jsonl"}, `--chat-date "x": want a day such as 2026-01-31`},
		{[]string{"generate", "--prompt", "Hi", "--chat-date", "2024-01-31"}, "the prompt is plain text"},
		{[]string{"generate", "--prompt", "Hi", "--chat", "--chat-variables", "9"}, "want a name and a value"},
		{[]string{"data", "pairs", "--input", "p.jsonl", "--base-url", "http://localhost:1/v1", "--api-model", "m",
			"--reward", "command", "--command", "cat", "--out", "o.jsonl", "--chat-variables", "a=1"},
			"it is about a model in this process"},
		{[]string{"data", "pairs", "--model", "model", "--backend", "go", "--n", "2", "--out", "o.jsonl",
			"--chat-variables", "quiet=1"}, "the chat template has no variable quiet"},
		{[]string{"eval", "ci", "--model", "model", "--n", "1", "--chat-variables", "quiet=1"},
			"the chat template has no variable quiet"},
		{[]string{"serve", "--model", "model", "--addr", "127.0.0.1:0", "--chat-template", "none.jinja"},
			"none.jinja: no such file"},
	} {
		o := cli(t, c.args...)
		if o.code == 0 || !strings.Contains(o.err, c.want) {
			t.Errorf("%v: %d %s, want %s", c.args, o.code, o.err, c.want)
		}
	}
}
