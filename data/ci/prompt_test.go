package ci

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// hotel is a small item with what the prompts must cope with: a key without annotation, a text of two lines, a list.
func hotel(t *testing.T) Item {
	t.Helper()
	items, _, err := readFrom(files("ci.jsonl", oneLine(ciRow)), "ci.jsonl", AllItems)
	expect.OK(t, err)
	return items[0]
}

func TestPromptsByHand(t *testing.T) {
	item := hotel(t)
	frame := "Scenario: email; domain: Hospitality; intention: book; sender: user; recipient: desk; subject of the " +
		"information: user.\n\n" +
		"Task: Book a room\n\nInformation at hand:\n"
	for _, kind := range []string{PromptPlain, PromptCoT} {
		messages := Prompt(item, kind, 3)
		text := messages[0].Content
		if len(messages) != 1 || messages[0].Role != "user" || !strings.HasPrefix(text, frame) {
			t.Errorf("%s: %+v", kind, messages)
		}
		if strings.Contains(text, "Bag") {
			t.Errorf("%s lists what carries no annotation:\n%s", kind, text)
		}
		for _, listed := range []string{"- Zip: 90210\n", "- Name: Mira\n", "- Chats: Friend: hi\nMe: a\nb\nbye\n"} {
			if strings.Count(text, listed) != 1 {
				t.Errorf("%s lacks %q:\n%s", kind, listed, text)
			}
		}
		for _, label := range []string{"allowed", "required", "restricted", "Consent"} {
			if strings.Contains(text, label) {
				t.Errorf("%s gives away the label %q:\n%s", kind, label, text)
			}
		}
	}
	alone := Prompt(item, PromptAnswer, 3)[0].Content
	if !strings.HasPrefix(alone, frame) || strings.Contains(alone, "think") ||
		!strings.Contains(alone, "<answer> and </answer>") {
		t.Errorf("answer: %s", alone)
	}
	if ideal := Ideal(item, PromptAnswer, 3); !strings.HasPrefix(ideal, "<answer>\n") || strings.Contains(ideal, "think") ||
		!strings.HasSuffix(Ideal(item, PromptCoT, 3), "</think>\n"+ideal) {
		t.Errorf("ideal: %s", ideal)
	}
	if got := Prompt(item, PromptCompact, 3); !slices.Equal(got, compact(item, 3)) {
		t.Errorf("compact %+v", got)
	}
}

func TestInstructions(t *testing.T) {
	item := hotel(t)
	plain := Prompt(item, PromptPlain, 0)[0].Content
	for _, kind := range []string{PromptCoT} {
		cot := Prompt(item, kind, 0)[0].Content
		for _, tag := range []string{"<think>", "</think>", "<answer>", "</answer>"} {
			if !strings.Contains(plain, tag) || !strings.Contains(cot, tag) {
				t.Errorf("%s: %s is not asked for", kind, tag)
			}
		}
		for _, word := range []string{"necessary", "helpful", "optional", "inappropriate", "norms", "context"} {
			if !strings.Contains(cot, word) || strings.Contains(plain, word) {
				t.Errorf("%q: in %s %v, in plain %v: want it in %[2]s alone", word, kind,
					strings.Contains(cot, word), strings.Contains(plain, word))
			}
		}
	}
}

// TestCoTIsTheFigure: the instruction of cot has the figure's words, lines and indentation, and nothing behind them.
func TestCoTIsTheFigure(t *testing.T) {
	_, instruction, _ := strings.Cut(Prompt(hotel(t), PromptCoT, 0)[0].Content, "bye\n")
	_, instruction, _ = strings.Cut(instruction, "\n\n")
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(instruction))); sum != figureSum {
		t.Errorf("%q has the sum %s, the figure %s", instruction, sum, figureSum)
	}
}

// figureSum is the SHA-256 of the figure's text, lines divided by \n, without a line end at its end.
const figureSum = "adf138ad9fe9d289fcf7a134ba148d35687a9361fe04b209011692799490e2c7"

// Fields that a foreign set lacks leave no hole in the scenario line.
func TestScenarioLineOfWhatIsThere(t *testing.T) {
	item := Item{Seed: Seed{Domain: "Work", Recipient: "boss"}}
	if got := item.scenarioLine(); got != "Domain: Work; recipient: boss.\n\n" {
		t.Errorf("%q", got)
	}
	if got := (&Item{}).scenarioLine(); got != "" {
		t.Errorf("%q", got)
	}
}

var bullet = regexp.MustCompile(`(?m)^- (\w+): `)

func keysOf(item Item, kind string, order uint64) (keys []string) {
	for _, m := range bullet.FindAllStringSubmatch(Prompt(item, kind, order)[0].Content, -1) {
		keys = append(keys, m[1])
	}
	return keys
}

// The order is drawn by the seed, is the same in every form, and never changes between versions.
func TestPromptOrder(t *testing.T) {
	item := Synthesize(1, 9)[0]
	item.DatasetItem.Information = append(item.DatasetItem.Information, Field{"Extra", "x"}, Field{"More", "y"})
	item.DatasetItem.Annotation.Allowed = append(item.DatasetItem.Annotation.Allowed, Keyword{"Extra", []string{"x"}},
		Keyword{"More", []string{"y"}})
	seen := map[string]bool{}
	for order := range uint64(50) {
		keys := keysOf(item, PromptCoT, order)
		if !slices.Equal(keys, keysOf(item, PromptPlain, order)) ||
			!slices.Equal(keys, keysOf(item, PromptCoT, order)) {
			t.Fatalf("order %d is not one order: %v", order, keys)
		}
		if sorted := slices.Sorted(slices.Values(keys)); len(slices.Compact(sorted)) != len(item.Attributes()) {
			t.Fatalf("order %d lists %v", order, keys)
		}
		seen[strings.Join(keys, " ")] = true
	}
	if len(seen) < 20 {
		t.Errorf("only %d orders of 50 seeds", len(seen))
	}
	item = hotel(t)
	if got := strings.Join(keysOf(item, PromptCoT, 1), " "); got != hotelOrder {
		t.Errorf("order 1 lists %s, want %s for good: a resumed run must see the same prompts", got, hotelOrder)
	}
}

const hotelOrder = "Name Chats Zip"

// Every released item gives a prompt in every form that names its task and every annotated value.
func TestReleasePrompts(t *testing.T) {
	items, _, err := Read(need.File(t, "data", "contextual-integrity/dataset.json"))
	expect.OK(t, err)
	longest := 0
	for i := range items {
		for _, kind := range PromptKinds {
			text := Prompt(items[i], kind, uint64(i))[0].Content
			longest = max(longest, len(text))
			if !strings.Contains(text, items[i].DatasetItem.UserTask) {
				t.Fatalf("%s: %s lacks the task", items[i].Source, kind)
			}
			for _, a := range items[i].Attributes() {
				if !strings.Contains(text, a.Text) {
					t.Fatalf("%s: %s lacks %q", items[i].Source, kind, a.Text)
				}
			}
		}
		if len(items[i].Attributes()) == 0 {
			t.Errorf("%s lists nothing", items[i].Source)
		}
	}
	t.Logf("longest prompt: %d bytes", longest)
}
