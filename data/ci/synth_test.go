package ci

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestEveryNormStandsOnKinds(t *testing.T) {
	domains := map[string]bool{}
	for _, n := range known.Norms {
		domains[n.Domain] = true
		for _, name := range slices.Concat(n.Fits, n.Unrelated, n.TooMuch) {
			if _, ok := known.Kinds[name]; !ok {
				t.Errorf("%s: no kind %q", n.Task, name)
			}
		}
		for _, name := range slices.Concat(n.Unrelated, n.TooMuch) {
			if slices.Contains(n.Fits, name) {
				t.Errorf("%s: %q fits and does not", n.Task, name)
			}
		}
		if len(n.Fits) < 3 || len(n.Unrelated) < 2 || len(n.TooMuch) < 1 {
			t.Errorf("%s: want at least 3 kinds that fit, 2 unrelated, 1 too much", n.Task)
		}
	}
	if len(domains) != 10 {
		t.Errorf("%d domains, want the ten of the method", len(domains))
	}
	for name, k := range known.Kinds {
		if generators[k.Value] == nil {
			t.Errorf("kind %s: no generator %q", name, k.Value)
		}
	}
}

// The two parts of every value space are disjoint and both large enough to copy from.
func TestEveryGeneratorHasBothParts(t *testing.T) {
	for name, generate := range generators {
		var parts [2]map[string]bool
		for i, heldOut := range []bool{false, true} {
			parts[i] = map[string]bool{}
			w := &world{rng: rand.New(rand.NewPCG(1, 2)), heldOut: heldOut}
			for range 3000 {
				parts[i][generate(w)] = true
			}
		}
		if len(parts[0]) < 80 || len(parts[1]) < 8 {
			t.Errorf("%s: %d values, %d held out", name, len(parts[0]), len(parts[1]))
		}
		for v := range parts[1] {
			if parts[0][v] {
				t.Errorf("%s: %q is in both parts", name, v)
			}
		}
	}
}

func TestSyntheticItemsKeepTheirPromises(t *testing.T) {
	for _, heldOut := range []bool{false, true} {
		items := drawItems(3000, 11, heldOut)
		seen := map[string]bool{}
		for i := range items {
			item := &items[i]
			required, restricted := len(item.Required()), len(item.Restricted())
			if required < 1 || required > 3 || restricted < 1 || restricted > 2 || required+restricted < 3 ||
				required+restricted > 5 {
				t.Fatalf("%d required, %d restricted: %+v", required, restricted, item)
			}
			prompt := compact(*item, 1)[0].Content
			if seen[prompt] {
				t.Fatalf("twice: %s", prompt)
			}
			seen[prompt] = true
			checkCopyable(t, item, prompt)
		}
	}
}

// checkCopyable wants every keyword once in the prompt and after a space, in the prompt and in the reference.
func checkCopyable(t *testing.T, item *Item, prompt string) {
	t.Helper()
	reference := Reference(*item, 1)
	for _, keyword := range slices.Concat(item.Required(), item.Restricted()) {
		if strings.Count(prompt, keyword) != 1 || !strings.Contains(prompt, " "+keyword) {
			t.Fatalf("%q in the prompt %s", keyword, prompt)
		}
		if strings.Count(reference, keyword) != strings.Count(reference, " "+keyword) ||
			!strings.Contains(reference, keyword) {
			t.Fatalf("%q in the reference %s", keyword, reference)
		}
	}
}

// A model that copies held-out values cannot have learnt them: no keyword and no name is common to both parts.
func TestHeldOutValuesAreNew(t *testing.T) {
	known, new := open(Synthesize(6000, 1)), open(SynthesizeHeldOut(1500, 2))
	for value := range new {
		if known[value] {
			t.Errorf("%q is in both", value)
		}
	}
	if len(known) < 10000 || len(new) < 2000 {
		t.Errorf("%d values, %d held out: too few to need copying", len(known), len(new))
	}
}

// open lists the keywords of items and the first and family names in their texts.
func open(items []Item) map[string]bool {
	values := map[string]bool{}
	names := map[string]bool{}
	for _, pair := range [][2][]string{{lists.NameHeads, lists.NameTails}, {lists.FamilyHeads, lists.FamilyTails}} {
		for _, head := range pair[0] {
			for _, tail := range pair[1] {
				names[head+tail] = true
			}
		}
	}
	for i := range items {
		for _, keyword := range slices.Concat(items[i].Required(), items[i].Restricted()) {
			values[keyword] = true
		}
		for _, f := range items[i].DatasetItem.Information {
			for _, word := range strings.Fields(f.Text) {
				if names[word] {
					values[word] = true
				}
			}
		}
	}
	return values
}

// The same seed gives the same bytes on every machine and in every version: the embedded model depends on them.
func TestSynthesisIsFixed(t *testing.T) {
	h := fnv.New64a()
	rng := rand.New(rand.NewPCG(1, 1))
	for i, item := range slices.Concat(Synthesize(300, 42), SynthesizeHeldOut(300, 42)) {
		fmt.Fprintln(h, compact(item, uint64(i))[0].Content, Reference(item, uint64(i)), item.Required(),
			item.Restricted(), item.Seed)
		fmt.Fprintln(h, Noisy(item, uint64(i), Flaws{Leak: 0.3, Omit: 0.3, Garble: 0.3, LeakHabit: 0.3, OmitHabit: 0.3},
			rng))
	}
	const synthesisHash = "6f11455eb44f74f5"
	if got := fmt.Sprintf("%016x", h.Sum64()); got != synthesisHash {
		t.Errorf("hash %s, want %s: with other bytes the embedded model and pairs must be made again", got,
			synthesisHash)
	}
	if !reflect.DeepEqual(Synthesize(50, 1), Synthesize(200, 1)[:50]) {
		t.Error("a larger set does not begin with the smaller one")
	}
	if reflect.DeepEqual(Synthesize(5, 1), Synthesize(5, 2)) {
		t.Error("the seed does not matter")
	}
}

func TestPromptAndReferenceByHand(t *testing.T) {
	item := Item{
		Seed: Seed{Domain: "Hospitality", UserIntention: "book a room"},
		DatasetItem: DatasetItem{
			UserTask: "Email the hotel desk to book a room.",
			Information: Fields{{"Name", "my name is Kato Holden"}, {"Medicine", "I take Levopam"}, {"Note", "unused"},
				{"Date", "arriving on May 14"}},
			Annotation: Annotation{
				Allowed:    Keywords{{"Name", []string{"Kato Holden"}}, {"Date", []string{"May 14"}}},
				Disallowed: Keywords{{"Medicine", []string{"Levopam"}}},
			},
		},
	}
	prompt := `Hospitality. Email the hotel desk to book a room.
- I take Levopam
- my name is Kato Holden
- arriving on May 14
Think about what fits, then answer.`
	reference := `<think> Levopam does not fit; Kato Holden fits; May 14 fits.</think>
<answer> Hello, I want to book a room: my name is Kato Holden, arriving on May 14.</answer>`
	for order := range uint64(100) {
		if got := compact(item, order)[0].Content; got == prompt {
			if r := Reference(item, order); r != reference {
				t.Errorf("reference\n%s\nwant\n%s", r, reference)
			}
			return
		}
	}
	t.Errorf("no order gives\n%s\nbut e.g.\n%s", prompt, compact(item, 0)[0].Content)
}

// The rates of mistakes are what Flaws says.
func TestNoisyErrsAtTheSetRates(t *testing.T) {
	items := Synthesize(2000, 9)
	rates := func(f Flaws) (leak, omit, broken float64) {
		rng := rand.New(rand.NewPCG(3, 3))
		var leaks, restricted, omissions, required int
		for i := range items {
			text := Noisy(items[i], uint64(i), f, rng)
			if !strings.HasPrefix(text, "<think> ") || strings.Count(text, "</think>\n<answer>") != 1 ||
				!strings.HasSuffix(text, "</answer>") {
				broken += 1 / float64(len(items))
				continue
			}
			_, answer, _ := strings.Cut(text, "<answer>")
			for _, k := range items[i].Restricted() {
				restricted++
				if strings.Contains(answer, k) {
					leaks++
				}
			}
			for _, k := range items[i].Required() {
				required++
				if !strings.Contains(answer, k) {
					omissions++
				}
			}
		}
		return float64(leaks) / float64(restricted), float64(omissions) / float64(required), broken
	}
	for _, c := range []struct {
		f                  Flaws
		leak, omit, broken float64
	}{
		{Flaws{}, 0, 0, 0},
		{Flaws{Leak: 1, Omit: 1}, 1, 1, 0},
		{Flaws{Leak: 0.3, Omit: 0.1, Garble: 0.2}, 0.3, 0.1, 0.2},
		{Flaws{LeakHabit: 1}, habitRate, 0, 0},
		{Flaws{Leak: 0.1, LeakHabit: 0.5, OmitHabit: 0.25}, 0.5*0.1 + 0.5*habitRate, 0.25 * habitRate, 0},
	} {
		leak, omit, broken := rates(c.f)
		for _, x := range []struct {
			what      string
			got, want float64
			tolerance float64
		}{{"leak", leak, c.leak, 0.03}, {"omit", omit, c.omit, 0.03}, {"broken", broken, c.broken, 0.03}} {
			tolerance := x.tolerance
			if c.f.LeakHabit > 0 && c.f.LeakHabit < 1 {
				tolerance = 0.12 // whole norms fall to one side
			}
			if x.got < x.want-tolerance || x.got > x.want+tolerance || x.want == 0 && x.got != 0 ||
				x.want == 1 && x.got != 1 {
				t.Errorf("%+v: %s %.3f, want %.3f", c.f, x.what, x.got, x.want)
			}
		}
	}
}

func TestDemonstrations(t *testing.T) {
	items := Synthesize(10, 1)
	demos := Demonstrations(items, Flaws{}, 4)
	if !reflect.DeepEqual(demos, Demonstrations(items, Flaws{}, 4)) {
		t.Error("not the same twice")
	}
	for i, d := range demos {
		if d.Prompt.Messages[0].Role != "user" || d.Completion.Messages[0].Role != "assistant" ||
			!strings.Contains(d.Completion.Messages[0].Content, "</think>\n<answer> ") {
			t.Errorf("%+v", d)
		}
		for _, k := range items[i].Required() {
			if !strings.Contains(d.Completion.Messages[0].Content, k) {
				t.Errorf("%q is missing in %+v", k, d)
			}
		}
	}
}
