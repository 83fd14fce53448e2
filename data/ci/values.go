package ci

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// world draws the open values of synthetic scenarios. Every value (of names, streets and firms: every first and family
// name in them) belongs for good to the training part or to the held-out part of the value space, by a hash of its
// text: what one part has, the other never shows.
type world struct {
	rng     *rand.Rand
	heldOut bool
}

// heldOutShare: one value in so many is held out.
const heldOutShare = 8

// isHeldOut says to which part a value belongs.
func isHeldOut(value string) bool {
	h := fnv.New32a()
	h.Write([]byte(value))
	sum := h.Sum32()
	return (sum^sum>>16)%heldOutShare == 0
}

// pick draws until the value is of the world's part. Every generator below has values in both (a test holds it).
func (w *world) pick(draw func() string) string {
	for {
		if v := draw(); isHeldOut(v) == w.heldOut {
			return v
		}
	}
}

func (w *world) one(list []string) string { return list[w.rng.IntN(len(list))] }

// between draws from lo..hi.
func (w *world) between(lo, hi int) int { return lo + w.rng.IntN(hi-lo+1) }

// The syllables and words that values are put together from. They are few, so that a small vocabulary has each as one
// token; their combinations are many, so that a value must be copied, not remembered.
var (
	nameHeads   = []string{"Ba", "Be", "Da", "Do", "Fa", "Ga", "Je", "Ka", "Ke", "La", "Li", "Ma", "Me", "Na", "No", "Ra", "Ri", "Sa", "Ta", "Vi"}
	nameTails   = []string{"bin", "cia", "dra", "fan", "gor", "la", "len", "lo", "mi", "na", "nik", "ra", "rek", "sha", "to", "vin", "wen", "yo", "zan", "zu"}
	familyHeads = []string{"Bor", "Cal", "Dun", "Fer", "Gal", "Hol", "Jas", "Kel", "Lund", "Mar", "Nor", "Ost", "Pel", "Quin", "Ros", "Sol", "Tor", "Ul", "Ver", "Wil"}
	familyTails = []string{"acre", "berg", "by", "den", "ez", "field", "ford", "gate", "ham", "ic", "lund", "man", "more", "ov", "ridge", "sen", "ski", "ton", "ward", "well"}
	drugHeads   = []string{"Alo", "Bexa", "Cori", "Dala", "Eno", "Flu", "Gaba", "Hexo", "Iba", "Keto", "Levo", "Mela", "Nuva", "Oxa", "Pento", "Rivo", "Sulfa", "Trima", "Vena", "Zola"}
	drugTails   = []string{"cet", "dine", "fen", "lin", "mab", "mide", "nol", "pam", "pril", "rin", "statin", "tide", "vir", "xan", "zole", "zide"}
	firmTails   = []string{"Bank", "Group", "Labs", "Motors", "Works", "Foods", "Steel", "Soft"}
	streetTails = []string{"Lane", "Road", "Street", "Hill", "Square", "Row"}
	months      = []string{"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
	codeLetters = []string{"A", "B", "D", "F", "H", "K", "M", "N", "R", "T", "W", "X"}
	sickAs      = []string{"mild", "severe", "chronic", "early", "acute", "late"}
	sickWith    = []string{"asthma", "anemia", "angina", "arthritis", "cataract", "colitis", "diabetes", "eczema", "epilepsy", "gastritis", "glaucoma", "gout", "hepatitis", "insomnia", "lupus", "migraine", "psoriasis", "scoliosis", "sinusitis", "tinnitus", "ulcer", "vertigo"}
	lookAs      = []string{"black", "blue", "brown", "gray", "green", "orange", "pink", "purple", "red", "silver", "white", "yellow"}
	things      = []string{"backpack", "blanket", "camera", "chair", "clock", "coat", "guitar", "helmet", "jacket", "kettle", "lamp", "mirror", "phone", "scarf", "sofa", "speaker", "tent", "vase", "wallet", "watch"}
	showAs      = []string{"Broken", "Distant", "Endless", "Final", "Frozen", "Golden", "Hidden", "Lonely", "Lost", "Midnight", "Paper", "Silent"}
	showOf      = []string{"Bridge", "Castle", "Dream", "Empire", "Forest", "Garden", "Harbor", "Island", "Journey", "Kingdom", "Ocean", "River", "Shadow", "Summer", "Tower", "Voyage"}
	subjects    = []string{"algebra", "biology", "chemistry", "drawing", "economics", "French", "geometry", "history", "Italian", "Latin", "music", "physics", "Russian", "Spanish", "statistics"}
	foodAs      = []string{"dried", "fresh", "fried", "green", "raw", "red", "smoked", "white"}
	foods       = []string{"almonds", "beans", "berries", "cherries", "clams", "grapes", "lentils", "mussels", "onions", "oysters", "peanuts", "peppers", "plums", "prawns", "salmon", "walnuts"}
)

// generators draw a value of each sort. The sorts look different from one another, so that none can stand in another.
var generators = map[string]func(w *world) string{
	"person": func(w *world) string { return w.firstName() + " " + w.familyName() },
	"friend": (*world).firstName,
	"date": func(w *world) string {
		return w.pick(func() string { return fmt.Sprintf("%s %d", w.one(months), w.between(1, 28)) })
	},
	"time": func(w *world) string {
		return w.pick(func() string { return fmt.Sprintf("%d:%02d", w.between(8, 20), 5*w.between(0, 11)) })
	},
	"phone": func(w *world) string {
		return w.pick(func() string { return fmt.Sprintf("%02d-%04d", w.between(20, 99), w.between(1000, 9999)) })
	},
	"address": func(w *world) string {
		return fmt.Sprintf("%d %s %s", w.between(11, 98), w.familyName(), w.one(streetTails))
	},
	"code": func(w *world) string {
		return w.pick(func() string {
			return fmt.Sprintf("%s%s-%d", w.one(codeLetters), w.one(codeLetters), w.between(100, 999))
		})
	},
	"serial": func(w *world) string {
		return w.pick(func() string { return fmt.Sprintf("%s%d", w.one(codeLetters), w.between(10000, 99999)) })
	},
	"pin": func(w *world) string {
		return w.pick(func() string { return fmt.Sprintf("%04d", w.between(2100, 9899)) })
	},
	"secret": func(w *world) string {
		return w.pick(func() string { return fmt.Sprintf("%s%d", w.one(drugTails)+w.one(nameTails), w.between(10, 99)) })
	},
	"amount": func(w *world) string {
		return w.pick(func() string { return fmt.Sprintf("$%d", 5*w.between(20, 199)) })
	},
	"wage": func(w *world) string {
		return w.pick(func() string { return fmt.Sprintf("$%d", 50*w.between(30, 199)) })
	},
	"drug": func(w *world) string {
		return w.pick(func() string { return w.one(drugHeads) + w.one(drugTails) })
	},
	"illness": func(w *world) string {
		return w.pick(func() string { return w.one(sickAs) + " " + w.one(sickWith) })
	},
	"firm": func(w *world) string {
		return w.familyName() + " " + w.one(firmTails)
	},
	"thing": func(w *world) string {
		return w.pick(func() string { return w.one(lookAs) + " " + w.one(things) })
	},
	"show": func(w *world) string {
		return w.pick(func() string { return w.one(showAs) + " " + w.one(showOf) })
	},
	"course": func(w *world) string {
		return w.pick(func() string { return fmt.Sprintf("%s %d", w.one(subjects), w.between(101, 120)) })
	},
	"mark": func(w *world) string {
		return w.pick(func() string { return fmt.Sprintf("%d/%d", w.between(11, 49), 10*w.between(5, 9)) })
	},
	"food": func(w *world) string {
		return w.pick(func() string { return w.one(foodAs) + " " + w.one(foods) })
	},
}

func (w *world) firstName() string {
	return w.pick(func() string { return w.one(nameHeads) + w.one(nameTails) })
}

func (w *world) familyName() string {
	return w.pick(func() string { return w.one(familyHeads) + w.one(familyTails) })
}
