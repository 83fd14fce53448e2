package ci

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
)

// Synthesize makes n distinct small scenarios: a task in one of ten domains and three to five pieces of information.
// One to three of them may flow in this context (norms.json), one or two must not. Each piece has one short verbatim
// keyword. The same n and seed give the same items on every machine, and a larger n begins with the same items.
func Synthesize(n int, seed uint64) []Item { return drawItems(n, seed, false) }

// SynthesizeHeldOut is Synthesize with names and values that Synthesize never uses, whatever the seed: a model must
// copy them and cannot have learnt them.
func SynthesizeHeldOut(n int, seed uint64) []Item { return drawItems(n, seed, true) }

func drawItems(n int, seed uint64, heldOut bool) []Item {
	w := &world{rng: rand.New(rand.NewPCG(seed, 0x6369)), heldOut: heldOut}
	return w.distinct(n)
}

// distinct makes scenarios that differ.
func (w *world) distinct(n int) []Item {
	items := make([]Item, 0, max(n, 0))
	seen := map[string]bool{}
	for len(items) < n {
		item := w.scenario()
		if key := item.fingerprint(); item.hasUniqueKeywords() && !seen[key] {
			seen[key] = true
			item.Source = fmt.Sprintf("synthetic %d", len(items)+1)
			items = append(items, item)
		}
	}
	return items
}

// fact is one piece of information of a scenario in the making.
type fact struct {
	kind string
	fits bool
}

// shapes are the numbers of required and of restricted facts.
var shapes = [][2]int{{1, 2}, {2, 1}, {2, 2}, {3, 1}, {3, 2}}

func (w *world) scenario() Item {
	n, principle, facts := norm{}, confidentiality, []fact(nil)
	if w.drawn {
		n, facts = w.drawnNorm()
	} else {
		n = known.Norms[w.rng.IntN(len(known.Norms))]
		principle = w.principle(n)
		facts = w.facts(n, principle, shapes[w.rng.IntN(len(shapes))])
	}
	w.rng.Shuffle(len(facts), func(i, j int) { facts[i], facts[j] = facts[j], facts[i] })
	item := setting(n, principle, Scenarios[1-w.rng.IntN(2)])
	for _, f := range facts {
		item.add(f, w)
	}
	return item
}

// principle draws the principle that sharing the restricted information would break.
func (w *world) principle(n norm) string {
	switch k := w.rng.IntN(10); {
	case k < 2 && n.AskFriend:
		return consent
	case k < 5:
		return proportionality
	}
	return confidentiality
}

// facts draws the kinds of the required and restricted information.
func (w *world) facts(n norm, principle string, shape [2]int) []fact {
	fits, unfit := w.shuffle(n.Fits), w.shuffle(n.Unrelated)
	switch principle {
	case proportionality:
		unfit = append([]string{w.one(n.TooMuch)}, unfit...)
	case consent:
		if w.rng.IntN(2) == 0 {
			fits = append([]string{"agreed"}, fits...)
		} else {
			unfit = append([]string{"refused"}, unfit...)
		}
	}
	var facts []fact
	for _, k := range fits[:min(shape[0], len(fits))] {
		facts = append(facts, fact{k, true})
	}
	for _, k := range unfit[:min(shape[1], len(unfit))] {
		facts = append(facts, fact{k, false})
	}
	return facts
}

func (w *world) shuffle(list []string) []string {
	list = slices.Clone(list)
	w.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// setting is a scenario without information.
func setting(n norm, principle, scenario string) Item {
	verb := "Email"
	if scenario != Scenarios[0] {
		verb = "Message"
	}
	_, recipient, _ := strings.Cut(n.Recipient, " ")
	subject := "user"
	if principle == consent {
		subject = "friend"
	}
	return Item{
		Seed: Seed{Scenario: scenario, Domain: n.Domain, UserIntention: n.Task, Sender: "user", Recipient: recipient,
			DataSubject: subject, TransmissionPrinciple: principle},
		DatasetItem: DatasetItem{UserTask: fmt.Sprintf("%s %s to %s.", verb, n.Recipient, n.Task)},
	}
}

// add draws the value and the phrase of a fact and annotates it.
func (c *Item) add(f fact, w *world) {
	k := known.Kinds[f.kind]
	value := generators[k.Value](w)
	text := strings.Replace(w.one(k.Phrases), "{}", value, 1)
	if before, after, found := strings.Cut(text, "{friend}"); found {
		text = before + w.firstName() + after
	}
	d, types := &c.DatasetItem, &c.Seed.InformationType
	d.Information = append(d.Information, Field{k.Key, text})
	keyword := Keyword{k.Key, []string{value}}
	if f.fits {
		d.Annotation.Allowed = append(d.Annotation.Allowed, keyword)
		types.Allowed = append(types.Allowed, f.kind)
	} else {
		d.Annotation.Disallowed = append(d.Annotation.Disallowed, keyword)
		types.Disallowed = append(types.Disallowed, f.kind)
	}
}

// fingerprint is what makes a scenario distinct: task and information.
func (c *Item) fingerprint() string {
	var b strings.Builder
	b.WriteString(c.DatasetItem.UserTask)
	for _, f := range c.DatasetItem.Information {
		b.WriteString("\n" + f.Text)
	}
	return b.String()
}

// hasUniqueKeywords says whether every keyword occurs in its own information alone.
func (c *Item) hasUniqueKeywords() bool {
	frame := strings.ToLower(c.Seed.Domain + " " + c.DatasetItem.UserTask + " " + instruction)
	for _, a := range c.Attributes() {
		keyword := strings.ToLower(a.keyword())
		if strings.Contains(frame, keyword) {
			return false
		}
		for _, f := range c.DatasetItem.Information {
			if f.Key != a.Key && strings.Contains(strings.ToLower(f.Text), keyword) {
				return false
			}
		}
	}
	return true
}

// keyword is the one keyword of a synthetic attribute.
func (a Attribute) keyword() string {
	for _, list := range [][]string{a.Required, a.Restricted} {
		if len(list) > 0 {
			return list[0]
		}
	}
	return a.Text
}

// promptOrder are the attributes in the order of the prompt with this order seed.
func (c *Item) promptOrder(order uint64) []Attribute {
	list := c.Attributes()
	shuffle(list, order)
	return list
}

func shuffle(list []Attribute, order uint64) {
	rng := rand.New(rand.NewPCG(order, 0x6f72646572))
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// world draws the open values of synthetic scenarios. A hash of its text puts every value (of names, streets and firms:
// every first and family name in them) for good into the training part or the held-out part of the value space. The two
// parts have no value in common.
type world struct {
	rng     *rand.Rand
	heldOut bool
	drawn   bool // which information fits is drawn for each scenario
}

// heldOutShare is 8: one value in eight is held out.
const heldOutShare = 8

func isHeldOut(value string) bool {
	h := fnv.New32a()
	h.Write([]byte(value))
	sum := h.Sum32()
	return (sum^sum>>16)%heldOutShare == 0
}

func (w *world) one(list []string) string { return list[w.rng.IntN(len(list))] }

// between draws from lo..hi.
func (w *world) between(lo, hi int) int { return lo + w.rng.IntN(hi-lo+1) }

// lists are the syllables and words of the values.
var lists = known.Lists

// generators draw a value of each sort. The sorts look different from one another, so that no value contains another.
var generators = map[string]func(w *world) string{
	"person": func(w *world) string { return w.firstName() + " " + w.familyName() },
	"friend": (*world).firstName,
	"date":   draw(func(w *world) string { return fmt.Sprintf("%s %d", w.one(lists.Months), w.between(1, 28)) }),
	"time":   draw(func(w *world) string { return fmt.Sprintf("%d:%02d", w.between(8, 20), 5*w.between(0, 11)) }),
	"phone":  draw(func(w *world) string { return fmt.Sprintf("%02d-%04d", w.between(20, 99), w.between(1000, 9999)) }),
	"address": func(w *world) string {
		return fmt.Sprintf("%d %s %s", w.between(11, 98), w.familyName(), w.one(lists.StreetTails))
	},
	"code": draw(func(w *world) string {
		return fmt.Sprintf("%s%s-%d", w.one(lists.CodeLetters), w.one(lists.CodeLetters), w.between(100, 999))
	}),
	"serial": draw(func(w *world) string {
		return fmt.Sprintf("%s%d", w.one(lists.CodeLetters), w.between(10000, 99999))
	}),
	"pin": draw(func(w *world) string { return fmt.Sprintf("%04d", w.between(2100, 9899)) }),
	"secret": draw(func(w *world) string {
		return fmt.Sprintf("%s%d", w.one(lists.DrugTails)+w.one(lists.NameTails), w.between(10, 99))
	}),
	"amount":  draw(func(w *world) string { return fmt.Sprintf("$%d", 5*w.between(20, 199)) }),
	"wage":    draw(func(w *world) string { return fmt.Sprintf("$%d", 50*w.between(30, 199)) }),
	"drug":    join(lists.DrugHeads, "", lists.DrugTails),
	"illness": join(lists.SickAs, " ", lists.SickWith),
	"firm":    func(w *world) string { return w.familyName() + " " + w.one(lists.FirmTails) },
	"thing":   join(lists.LookAs, " ", lists.Things),
	"show":    join(lists.ShowAs, " ", lists.ShowOf),
	"course":  draw(func(w *world) string { return fmt.Sprintf("%s %d", w.one(lists.Subjects), w.between(101, 120)) }),
	"mark":    draw(func(w *world) string { return fmt.Sprintf("%d/%d", w.between(11, 49), 10*w.between(5, 9)) }),
	"food":    join(lists.FoodAs, " ", lists.Foods),
}

// draw is the generator that draws until the value is of the world's part. Every generator has values in both parts.
func draw(value func(w *world) string) func(w *world) string {
	return func(w *world) string {
		for {
			if v := value(w); isHeldOut(v) == w.heldOut {
				return v
			}
		}
	}
}

// join draws a first and a last piece.
func join(first []string, between string, last []string) func(w *world) string {
	return draw(func(w *world) string { return w.one(first) + between + w.one(last) })
}

func (w *world) firstName() string { return join(lists.NameHeads, "", lists.NameTails)(w) }

func (w *world) familyName() string { return join(lists.FamilyHeads, "", lists.FamilyTails)(w) }

// heldRuling says whether a norm's word on one kind of information is kept from training. A hash decides it for good.
func heldRuling(task string, f fact) bool {
	return isHeldOut(fmt.Sprintf("%s|%s|%v", task, f.kind, f.fits))
}

// SynthesizeNorms is Synthesize with a norm of its own for each scenario: which kinds of information fit is drawn, so
// that the policy of the item's scene alone says it. unseen scenarios have a ruling, at least one, that seen ones never
// have: of a task and a kind, whether it fits.
func SynthesizeNorms(n int, seed uint64, unseen bool) []Item {
	w := &world{rng: rand.New(rand.NewPCG(seed, 0x6e6f726d)), heldOut: unseen, drawn: true}
	return w.distinct(n)
}

// drawnNorm draws a task, kinds and rulings. Not every task has a held ruling.
func (w *world) drawnNorm() (n norm, facts []fact) {
	for {
		n, facts = known.Norms[w.rng.IntN(len(known.Norms))], nil
		shape, held := shapes[w.rng.IntN(len(shapes))], false
		kinds := w.shuffle(slices.Concat(n.Fits, n.Unrelated, n.TooMuch))
		for i, k := range kinds[:min(shape[0]+shape[1], len(kinds))] {
			f := fact{k, i < shape[0]}
			held = held || heldRuling(n.Task, f)
			facts = append(facts, f)
		}
		if held == w.heldOut {
			return n, facts
		}
	}
}
