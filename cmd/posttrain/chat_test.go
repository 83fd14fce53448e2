package main

import (
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
	must(t, "mappo", "--resume", "out")
	if got := read(t, "out/model/chat_template.jinja"); got != read(t, "dated.jinja") {
		t.Errorf("%q", got)
	}
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
