package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// talk gives the lines of a chat's answers to lines of its input.
func talk(t *testing.T, lines string, args ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	args = append([]string{"chat", "--backend", "go", "--max-new-tokens", "6", "--temperature", "0"}, args...)
	if code := execute(t.Context(), streams{in: strings.NewReader(lines), out: &out, err: &errs}, args); code != 0 {
		t.Fatalf("posttrain %v: exit code %d: %s", args, code, &errs)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// TestChatOfRuns: of a run folder the trained model or adapter answers; --compare has the model before it, too.
func TestChatOfRuns(t *testing.T) {
	work(t, "qwen2-newer")
	fast := []string{"--set", "train.learning_rate=0.05"}
	must(t, append(tinyMappo(3, fast...), "--out", "whole")...)
	must(t, append(tinyMappo(3, fast...), "--lora-rank", "4", "--out", "lora")...)
	before := talk(t, "Where?\n", "model")[0]
	for run, same := range map[string][]string{
		"whole": {"whole/model"},
		"lora":  {"--adapter", "lora/adapter", "model"},
	} {
		want := talk(t, "Where?\n", same...)[0]
		if got := talk(t, "Where?\n", run)[0]; got != want || got == before {
			t.Errorf("%s: %q, want %q, before %q", run, got, want, before)
		}
		both := talk(t, "Where?\n", run, "--compare")
		if !slices.Equal(both, []string{"before: " + before, "after: " + want}) {
			t.Errorf("%s: %q", run, both)
		}
	}
}

// TestChatCommands: a system message changes answers, also one that is given later; a conversation is saved in sft's
// form, and /quit ends before what follows.
func TestChatCommands(t *testing.T) {
	work(t, "qwen2-newer")
	plain := talk(t, "Where?\n", "model")
	system := talk(t, "/system Be  brief, please.\nWhere?\n/save c.jsonl\n/quit\nAnd how?\n", "model")
	if slices.Equal(system, plain) || strings.Contains(read(t, "c.jsonl"), "how") ||
		!slices.Equal(talk(t, "Where?\n", "model", "--system", "Be  brief, please."), system) {
		t.Errorf("%q, with a system message %q", plain, system)
	}
	saved := `{"messages":[{"role":"system","content":"Be  brief, please."},{"role":"user","content":"Where?"},` +
		`{"role":"assistant","content":` + strings.TrimSpace(jsonLine(strings.Join(system, "\n"))) + "}]}\n"
	if got := read(t, "c.jsonl"); got != saved {
		t.Errorf("saved %s\nwant  %s", got, saved)
	}
	if again := talk(t, "/system x\n/system\nWhere?\n", "model"); !slices.Equal(again, plain) {
		t.Errorf("%q, want %q without the system message", again, plain)
	}
}

// TestChatFaults: a wrong line of a pipe, or option, ends the chat with one line; at a terminal the chat continues.
func TestChatFaults(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "begun/config.yaml", "command: mappo\nmodel: model\n")
	for input, want := range map[string]string{
		"/help\n":                    "unknown command /help: want /reset, /system, /save or /quit",
		"/save a.jsonl":              "there is no answer to save yet",
		"Hi\n/save a.md":             `"a.md": want the name of a file that ends in .jsonl`,
		strings.Repeat("word ", 300): "the model has 256 positions, want fewer tokens",
	} {
		for _, terminal := range []bool{false, true} {
			var out, errs bytes.Buffer
			s := streams{in: strings.NewReader(input), out: &out, err: &errs, terminal: terminal}
			code := execute(t.Context(), s, chatArgs())
			if (code == 0) != terminal || !strings.Contains(errs.String(), want) {
				t.Errorf("%.10q, terminal %v: exit code %d, %s", input, terminal, code, &errs)
			}
		}
	}
	var errs bytes.Buffer
	code := execute(t.Context(), streams{in: strings.NewReader("Hi\nHo\n"), out: full{}, err: &errs}, chatArgs())
	if code != exitFailed || !strings.HasSuffix(errs.String(), ": no space left on device\n") {
		t.Errorf("a full device: exit code %d, %s", code, &errs)
	}
	for want, args := range map[string][]string{
		`chat wants one model, found "a" and "b"`:                            {"a", "b"},
		`chat wants one model, found "model" and "a"`:                        {"a", "--model", "model"},
		"model is no run folder, with config.yaml":                           {"model", "--compare"},
		"begun: the run has no trained model yet":                            {"begun"},
		"nowhere: there is no such folder":                                   {"nowhere"},
		"temperature 0 always takes the likeliest token":                     {"model", "--temperature", "0", "--seed", "3"},
		"posttrain mappo --resume begun continues it":                        {"begun", "--compare"},
		"max_new_tokens 300: the model has 256 positions":                    {"model", "--max-new-tokens", "300"},
		"--max-new-tokens: max_new_tokens 0: want a whole number, 1 or more": {"model", "--max-new-tokens", "0"},
	} {
		if o := cli(t, append([]string{"chat"}, args...)...); o.code == 0 || !strings.Contains(o.last(), want) {
			t.Errorf("%v: %d %s, want %s", args, o.code, o.last(), want)
		}
	}
}

// TestNextLines: the last lines of a run are command lines that exist, each for this run's model or adapter.
func TestNextLines(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "a b/pairs.jsonl", pairLines(12, true))
	for command, want := range map[string]string{
		"mappo --prior none": "chat,serve,eval,hf", "sft": "chat,serve,eval,hf", "reward-model": "data,hf",
		"mappo --lora-rank 2": "chat,serve,model,hf",
	} {
		write(t, "sft.jsonl", messageLines(12))
		words := strings.Fields(command)
		args := append(tiny(words[0], 1, words[1:]...), "--data", "a b/pairs.jsonl", "--out",
			"a b/"+strings.Join(words, ""))
		if command == "sft" {
			args = append(args, "--data", "sft.jsonl")
		}
		o := must(t, args...)
		_, next, _ := strings.Cut(o.out, "\nNext:\n")
		var got []string
		for _, line := range commandLinesIn("next", "```\n"+next+"```") {
			if line.Words[0] == "hf" {
				got = append(got, "hf")
			} else if got = append(got, line.Words[1]); parses(line.Words) != nil {
				t.Errorf("%s: %v", line, parses(line.Words))
			}
		}
		if strings.Join(got, ",") != want || !strings.Contains(next, " 'a b/") {
			t.Errorf("%s: %s, want %s:\n%s", command, got, want, next)
		}
	}
	remove(t, "model/chat_template.jinja")
	write(t, "pairs.jsonl", strings.Repeat(`{"prompt": "Where", "chosen": " here", "rejected": " there"}`+"\n", 8))
	o := must(t, tinyMappo(1, "--prior", "none")...)
	if !strings.Contains(o.out, "  posttrain generate --model out/model --p") {
		t.Errorf("without a chat template: %s", o.out)
	}
}
