package ci

import (
	_ "embed"
	"encoding/json"
	"strings"
)

// The transmission principles of the release.
const (
	confidentiality = "Confidentiality" // unrelated information is not shared
	proportionality = "Proportionality" // no more than the task needs
	consent         = "Consent"         // the person concerned must agree
)

// kind is a sort of attribute: its neutral key, the generator of its values, and its phrases ({} is the value, {friend}
// another person's name). The phrase shows the kind, so that a model can learn what fits.
type kind struct {
	Key     string
	Value   string
	Phrases []string
}

// norm is a task with the information that may flow in its context. The lists name kinds: Fits may be shared, Unrelated
// breaks Confidentiality, TooMuch breaks Proportionality. A task with AskFriend also has the kinds "agreed" and
// "refused", for Consent.
type norm struct {
	Domain, Recipient, Task  string // the recipient as the task names it: "my brother"
	Fits, Unrelated, TooMuch words
	AskFriend                bool
}

// words is a list that is written with spaces between.
type words []string

func (w *words) UnmarshalText(text []byte) error {
	*w = strings.Fields(string(text))
	return nil
}

//go:embed norms.json
var normsFile []byte

// known is norms.json: three tasks for each of the ten domains, the kinds by the name that tasks use, and the syllables
// and words of the values. These are few, so that a small vocabulary has each as one token; their combinations are
// many, so that a model must copy a value and cannot remember it. The draws depend on the order of every list.
var known = readNorms()

type catalog struct {
	Kinds map[string]kind
	Norms []norm
	Lists struct {
		NameHeads, NameTails, FamilyHeads, FamilyTails, DrugHeads, DrugTails, FirmTails, StreetTails words
		Months, CodeLetters, SickAs, SickWith, LookAs, Things, ShowAs, ShowOf, Subjects              words
		FoodAs, Foods                                                                                words
	}
}

func readNorms() (c catalog) {
	if err := json.Unmarshal(normsFile, &c); err != nil {
		panic("data/ci/norms.json: " + err.Error()) // a fault of the program: the file is part of it
	}
	return c
}
