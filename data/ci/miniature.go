package ci

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// In the texts below a value always follows a space. So it has the same tokens in the prompt, in the think block and in
// the answer, and a small model can copy it.

// compact is a short CI-CoT prompt as one message of the user: domain and task, the attributes without their keys, in
// an order drawn by the seed order, and the instruction.
//
//	Hospitality. Email the hotel desk to book a room.
//	- my name is Kato Holden
//	- I take Levopam
//	- arriving on May 14
//	Think about what fits, then answer.
func compact(item Item, order uint64) []data.Message {
	var b strings.Builder
	b.WriteString(item.Seed.Domain + ". " + item.DatasetItem.UserTask)
	for _, a := range item.promptOrder(order) {
		b.WriteString("\n- " + a.Text)
	}
	b.WriteString("\n" + instruction)
	return []data.Message{{Role: "user", Content: b.String()}}
}

const instruction = "Think about what fits, then answer."

// Reference is the ideal completion of the compact prompt with this order: it judges the attributes in the order of the
// prompt and shares those that fit. Its CI reward is 1.
//
//	<think> Kato Holden fits; Levopam does not fit; May 14 fits.</think>
//	<answer> Hello, I want to book a room: my name is Kato Holden, arriving on May 14.</answer>
func Reference(item Item, order uint64) string {
	return complete(item, item.promptOrder(order), func(a Attribute) bool { return len(a.Required) > 0 })
}

// complete writes the completion that shares the attributes that fit.
func complete(item Item, list []Attribute, fits func(Attribute) bool) string {
	var thoughts, shared []string
	for _, a := range list {
		if fits(a) {
			thoughts = append(thoughts, a.keyword()+" fits")
			shared = append(shared, a.Text)
		} else {
			thoughts = append(thoughts, a.keyword()+" does not fit")
		}
	}
	answer := "Hello, I want to " + item.Seed.UserIntention
	if len(shared) > 0 {
		answer += ": " + strings.Join(shared, ", ")
	}
	return "<think> " + strings.Join(thoughts, "; ") + ".</think>\n<answer> " + answer + ".</answer>"
}

// Flaws are the mistakes of a writer who knows the format but not all norms. Every field is a probability. The
// answer follows the judgement: it has what the think block judges to fit, mistaken or not.
type Flaws struct {
	Leak   float64 `yaml:"leak" want:">=0 <=1" flag:"leak" help:"rate of restricted attributes taken for fitting ones"` // a restricted attribute is judged to fit
	Omit   float64 `yaml:"omit" want:">=0 <=1" flag:"omit" help:"rate of required attributes taken for unfitting ones"` // a required attribute is judged not to fit
	Garble float64 `yaml:"garble" want:">=0 <=1" flag:"garble" help:"rate of a broken format"`                          // the format is broken

	// The share of norms (a task with a kind of attribute) that the writer always gets wrong, for restricted and for
	// required kinds: there it errs with probability habitRate. The norm alone decides, so a model learns the habit and
	// shows it in greedy decoding too.
	LeakHabit float64 `yaml:"leak_habit" want:">=0 <=1" flag:"leak-habit" help:"share of restricted norms always got wrong"`
	OmitHabit float64 `yaml:"omit_habit" want:">=0 <=1" flag:"omit-habit" help:"share of required norms always got wrong"`
}

// habitRate is the probability of a habitual mistake; it is below 1, so that sampling can find the better answer.
const habitRate = 0.8

// Noisy is a plausible but flawed completion of the compact prompt with this order, drawn from rng.
func Noisy(item Item, order uint64, f Flaws, rng *rand.Rand) string {
	text := complete(item, item.promptOrder(order), func(a Attribute) bool {
		required := len(a.Required) > 0
		return (rng.Float64() < f.errs(item.Seed.UserIntention, a.Key, required)) != required
	})
	if rng.Float64() < f.Garble {
		return garble(text, rng.IntN(garbles))
	}
	return text
}

// errs is the probability of a mistaken judgement.
func (f Flaws) errs(task, key string, required bool) float64 {
	rate, habit := f.Leak, f.LeakHabit
	if required {
		rate, habit = f.Omit, f.OmitHabit
	}
	if share(task, key) < habit {
		return habitRate
	}
	return rate
}

// share maps a norm to [0, 1).
func share(task, key string) float64 {
	h := fnv.New64a()
	h.Write([]byte(task + "|" + key))
	return rand.New(rand.NewPCG(h.Sum64(), 0)).Float64()
}

const garbles = 5

// garble breaks the format as models do; each way costs the format reward.
func garble(text string, how int) string {
	switch how {
	case 0: // never stops thinking
		return strings.Replace(text, "</think>\n", "\n", 1)
	case 1: // does not open the think block
		return strings.Replace(text, "<think>", "", 1)
	case 2: // answers without tags
		return strings.NewReplacer("<answer>", "", "</answer>", "").Replace(text)
	case 3: // does not close the answer
		return strings.TrimSuffix(text, "</answer>")
	}
	_, answer, _ := strings.Cut(text, "\n") // only answers
	return answer
}

// Demonstrations pairs the prompts of items with completions for supervised fine-tuning, as chats. With zero Flaws the
// completions are the references. Orders and flaws are drawn by seed.
func Demonstrations(items []Item, f Flaws, seed uint64) []data.Demonstration {
	rng := rand.New(rand.NewPCG(seed, 0x64656d6f))
	demos := make([]data.Demonstration, len(items))
	for i, item := range items {
		order := rng.Uint64()
		demos[i] = data.Demonstration{
			Prompt:     data.Text{Messages: compact(item, order)},
			Completion: data.Text{Messages: []data.Message{{Role: "assistant", Content: Noisy(item, order, f, rng)}}},
			Source:     item.Source,
		}
	}
	return demos
}
