package ci

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// TestScenes: every keyword is in exactly one document and not in the prompt, the first document is mixed, and the
// ideal episode ends with what the item requires alone.
func TestScenes(t *testing.T) {
	for i, item := range append(Synthesize(300, 3), SynthesizeNorms(300, 4, false)...) {
		again := item
		item.Stage(uint64(i), true)
		again.Stage(uint64(i), true)
		if !reflect.DeepEqual(item, again) {
			t.Fatalf("%s: two scenes of a seed differ", item.Source)
		}
		documents := item.Scene.Documents
		if len(documents) != 2 || documents[0].ID == documents[1].ID {
			t.Fatalf("%s: %+v, want two documents", item.Source, documents)
		}
		has := func(text string, words []string) (n int) {
			for _, w := range words {
				n += strings.Count(text, w)
			}
			return n
		}
		first := documents[0].Text
		if has(first, item.Required()) == 0 || has(first, item.Restricted()) == 0 {
			t.Errorf("%s: %+v: want required and restricted words in the first document", item.Source, documents)
		}
		words := append(item.Required(), item.Restricted()...)
		if n := has(first+"\n"+documents[1].Text, words); n != len(words) {
			t.Errorf("%s: %d of %d keywords in %+v", item.Source, n, len(words), documents)
		}
		for _, kind := range []string{PromptCompact, PromptPlain} {
			text := item.AgentPrompt(kind, true)[0].Content
			if has(text, words) > 0 || !strings.Contains(text, item.Scene.Policy) {
				t.Errorf("%s: a keyword in the prompt, or no norm: %s", item.Source, text)
			}
		}
		turns := item.Episode(Flaws{}, rand.New(rand.NewPCG(1, 1)))
		last := turns[len(turns)-1]
		body := last.Arguments[1].Value.(string)
		if tool, to := item.Sends(); last.Tool != tool || last.Arguments[0].Value != to ||
			has(body, item.Required()) != len(item.Required()) || has(body, item.Restricted()) > 0 {
			t.Errorf("%s: final action %+v", item.Source, last)
		}
	}
}

// TestUnseenNorms: no ruling of seen scenarios is a held one, each unseen scenario has one, and what the norm says is
// what the item requires and restricts.
func TestUnseenNorms(t *testing.T) {
	for _, unseen := range []bool{false, true} {
		for _, item := range SynthesizeNorms(400, 9, unseen) {
			held, types := 0, item.Seed.InformationType
			for _, kind := range types.Allowed {
				held += count(heldRuling(item.Seed.UserIntention, fact{kind, true}))
			}
			for _, kind := range types.Disallowed {
				held += count(heldRuling(item.Seed.UserIntention, fact{kind, false}))
			}
			if (held > 0) != unseen {
				t.Errorf("%s of unseen %v has %d held rulings", item.Source, unseen, held)
			}
			if len(types.Allowed) != len(item.Required()) || len(types.Disallowed) != len(item.Restricted()) {
				t.Errorf("%s: %+v, %+v", item.Source, types, item.DatasetItem.Annotation)
			}
		}
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestScenesOfOtherItems: an item with many pieces has three documents, one with documents keeps them, and one without
// information types names no norm.
func TestScenesOfOtherItems(t *testing.T) {
	item := Synthesize(1, 1)[0]
	d := &item.DatasetItem
	for _, key := range []string{"A", "B", "C", "D"} {
		d.Information = append(d.Information, Field{key, "the " + key + " is x" + key})
		d.Annotation.Allowed = append(d.Annotation.Allowed, Keyword{key, []string{"x" + key}})
	}
	item.Seed.InformationType = InformationType{}
	item.Stage(1, true)
	if len(item.Scene.Documents) != 3 || item.Scene.Policy != "" {
		t.Errorf("%+v, want three documents and no norm", item.Scene)
	}
	// types in another order than the annotation: no piece gets the name of another
	item = Synthesize(1, 1)[0]
	item.Seed.InformationType = InformationType{Allowed: []string{"what he does", "where he lives"}, Disallowed: []string{"x"}}
	item.Stage(1, true)
	for _, d := range item.Scene.Documents {
		if strings.Contains(d.Text, ": ") {
			t.Errorf("%+v: want the pieces alone", d)
		}
	}
	before := item.Scene.Documents
	if item.Stage(2, false); !reflect.DeepEqual(before, item.Scene.Documents) {
		t.Errorf("documents changed: %+v", item.Scene)
	}
}
