package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
)

// demoLines are n demonstrations, one row a number.
func demoLines(n int, row func(i int) map[string]any) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(jsonLine(row(i)))
	}
	return b.String()
}

func question(i int) string { return fmt.Sprintf("Where is key %d?", i) }

func reply(i int) string { return fmt.Sprintf("It is in box %d.", i*i) }

// The three forms in which a demonstration may stand, the second also as conversations.
func messagesRow(i int) map[string]any {
	return map[string]any{"messages": append(chat("user", question(i)), chat("assistant", reply(i))...)}
}

func completionRow(i int) map[string]any {
	return map[string]any{"prompt": question(i), "completion": " " + reply(i)}
}

func chatCompletionRow(i int) map[string]any {
	return map[string]any{"prompt": chat("user", question(i)), "completion": chat("assistant", reply(i))}
}

func textRow(i int) map[string]any {
	return map[string]any{"text": question(i) + " " + reply(i)}
}

// messageLines are n demonstrations as conversations.
func messageLines(n int) string { return demoLines(n, messagesRow) }

// tinySFT is a run on demos.jsonl, without evaluation.
func tinySFT(n int, more ...string) []string {
	return append(tiny("sft", n, "--data", "demos.jsonl", "--set", "data.eval_fraction=0", "--set",
		"train.eval_every=0", "--set", "train.eval_metric="), more...)
}

// TestSFTOnEveryForm: each learns, and leaves the same run folder as mappo does, but for a reference.
func TestSFTOnEveryForm(t *testing.T) {
	for _, c := range []struct {
		name string
		row  func(i int) map[string]any
		more []string
	}{
		{"messages", messagesRow, nil},
		{"messages, loss on all", messagesRow, []string{"--set", "data.loss_on=all"}},
		{"prompt and completion", completionRow, nil},
		{"prompt and completion, loss on all", completionRow, []string{"--set", "data.loss_on=all"}},
		{"conversations", chatCompletionRow, nil},
		{"text", textRow, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			work(t, "qwen2-newer")
			write(t, "demos.jsonl", demoLines(12, c.row))
			o := must(t, tinySFT(12, append(c.more, "--set", "train.learning_rate=1e-2")...)...)
			records, err := run.ReadMetrics("out/metrics.jsonl")
			if err != nil {
				t.Fatal(err)
			}
			if names := slices.Sorted(maps.Keys(records[0].Values)); !slices.Equal(names, loopMetrics) {
				t.Errorf("metrics %v, want %v", names, loopMetrics)
			}
			first, last := records[0].Values["loss"], records[len(records)-1].Values["loss"]
			if !(last < first-1) {
				t.Errorf("the loss went from %v to %v: want a fall of more than 1", first, last)
			}
			for _, name := range []string{"config.yaml", "curves.png", "summary.txt", "model/model.safetensors",
				"model/tokenizer.json", "checkpoints/step-00000012"} {
				if !exists("out/" + name) {
					t.Errorf("%s is missing", name)
				}
			}
			if s := tested(t, "out"); s.Command != "sft" || s.Data != "demos.jsonl" || s.Steps != 12 || s.Loss.Held ||
				!strings.Contains(o.out, fmt.Sprintf("from %.4f to %.4f (", s.Loss.First, s.Loss.Last)) {
				t.Errorf("summary.json %+v of\n%s", s, o.out)
			}
			if exists("out/reference.safetensors") || !strings.HasPrefix(o.out,
				"SFT: 12 steps on 12 examples, engine go.\nThe loss went from ") {
				t.Errorf("summary %q", o.out)
			}
			must(t, "model", "info", "out/model")
		})
	}
}

// TestEndsOfPlainTexts: without eos_token of the tokenizer, texts end with the first token at which the model stops. One
// warning says where they end otherwise, with both tokens, or not at all.
func TestEndsOfPlainTexts(t *testing.T) {
	for _, c := range []struct{ without, stops, last, warning string }{
		{"", "[303, 301]", "303", ""},
		{"eos_token", "[303, 301]", "303", ""},
		{"", "301", "303", `token 303 ("<|im_end|>"), eos_token of tokenizer_config.json, at which the model does not ` +
			`stop: it stops at token 301 ("<|endoftext|>"), eos_token_id`},
		{"", "null", "303", "does not stop: config.json and generation_config.json have no eos_token_id"},
		{"eos_token", "null", "", "plain texts get no end token: neither eos_token"},
	} {
		work(t, "qwen2-newer")
		write(t, "demos.jsonl", demoLines(3, completionRow))
		for _, name := range []string{"config.json", "generation_config.json", "tokenizer_config.json"} {
			text := regexp.MustCompile(`"eos_token_id": (\d+|\[[^\]]*\])`).ReplaceAllString(read(t, "model/"+name),
				`"eos_token_id": `+c.stops)
			write(t, "model/"+name, strings.ReplaceAll(text, `"`+cmp.Or(c.without, "none")+`"`, `"unused"`))
		}
		o := must(t, "data", "show", "--model", "model", "--chat-plain", "text", "demos.jsonl")
		lines := strings.Split(strings.TrimSpace(o.out), "\n")
		if last := strings.Fields(lines[len(lines)-1]); (last[1] == "303") != (c.last == "303") {
			t.Errorf("%v: data show ends with %q", c, last)
		}
		o = must(t, tinySFT(1, "--set", "chat.plain=text", "--set", "data.eval=demos.jsonl")...)
		if !strings.Contains(o.err, c.warning) || strings.Count(o.err, "plain texts") != min(1, len(c.warning)) {
			t.Errorf("%v: %s", c, o.err)
		}
	}
}

// TestMessagesAreAPromptAndItsCompletion: two ways to write one demonstration train the same model.
func TestMessagesAreAPromptAndItsCompletion(t *testing.T) {
	work(t, "llama-newer")
	write(t, "demos.jsonl", messageLines(8))
	write(t, "other.jsonl", demoLines(8, chatCompletionRow))
	must(t, tinySFT(3)...)
	must(t, tinySFT(3, "--data", "other.jsonl", "--out", "other")...)
	sameRun(t, "out", "other")
	must(t, tinySFT(3, "--set", "data.loss_on=all", "--out", "all")...)
	if a, b := metrics(t, "out")[0].Values["loss"], metrics(t, "all")[0].Values["loss"]; math.Abs(a-b) < 1e-3 {
		t.Errorf("loss on completions %v, on all tokens %v: want them to differ", a, b)
	}
}

// TestSFTEvaluates a share of the data, or another file, and marks the best checkpoint.
func TestSFTEvaluates(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "demos.jsonl", messageLines(12))
	write(t, "held.jsonl", demoLines(5, completionRow))
	for _, c := range []struct {
		out      string
		examples int
		more     []string
	}{
		{"fraction", 9, []string{"--set", "data.eval_fraction=0.25"}},
		{"file", 12, []string{"--set", "data.eval_fraction=0", "--set", "data.eval=held.jsonl"}},
	} {
		o := must(t, tiny("sft", 4, append(c.more, "--data", "demos.jsonl", "--set", "train.eval_every=2", "--out",
			c.out)...)...)
		var losses []float64
		for _, r := range metrics(t, c.out) {
			if v, ok := r.Values["eval_loss"]; ok {
				losses = append(losses, v)
			}
		}
		if len(losses) != 3 || !(losses[2] < losses[0]) {
			t.Errorf("%s: evaluation losses %v, want three that fall", c.out, losses)
		}
		if !strings.HasPrefix(o.out, fmt.Sprintf("SFT: 4 steps on %d examples", c.examples)) ||
			!strings.Contains(o.out, fmt.Sprintf("model/ is step 4, the best by eval_loss (%.4f) and the last.",
				losses[2])) {
			t.Errorf("%s: summary %q", c.out, o.out)
		}
	}
}

// TestAccumulation: a batch in parts is the batch, also where completions differ in length.
func TestAccumulation(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "demos.jsonl", demoLines(8, func(i int) map[string]any {
		return map[string]any{"prompt": question(i), "completion": strings.Repeat(" "+reply(i), 1+i%3)}
	}))
	must(t, tinySFT(2)...)
	must(t, tinySFT(2, "--set", "train.micro_batch_size=1", "--out", "parts")...)
	for i, r := range metrics(t, "out") {
		for _, name := range []string{"loss", "grad_norm"} {
			if a, b := r.Values[name], metrics(t, "parts")[i].Values[name]; math.Abs(a-b) > 1e-5*a {
				t.Errorf("step %d: %s %v at once, %v in parts", r.Step, name, a, b)
			}
		}
	}
	if d := distance(weights(t, "out/model"), weights(t, "parts/model")); !(d < 2e-5) {
		t.Errorf("weights are %v apart", d)
	}
}

// TestSFTThenMappo: what one command leaves, the next one takes.
func TestSFTThenMappo(t *testing.T) {
	work(t, "mistral-older")
	write(t, "demos.jsonl", messageLines(8))
	must(t, tinySFT(2)...)
	must(t, tinyMappo(2, "--model", "out/model", "--out", "second")...)
	must(t, tinyMappo(1, "--model", "second/model", "--reference", "model", "--loss", "ipo", "--out", "third")...)
}
