package synth

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval/bench"
)

// templates is the author without a model. An item is drawn by the seed and the item's name alone.
type templates struct {
	seed    uint64
	heldOut bool
}

// vignettes are the seeds of the items that are written later.
func (t templates) vignettes(_ context.Context, s Seed) (Sketch, error) {
	sketch := Sketch{ID: s.ID}
	for i := range s.Count {
		item, err := t.compose(fmt.Sprintf("%s-%d", s.ID, i+1), s.Seed)
		if err != nil {
			return Sketch{}, err
		}
		sketch.Vignettes = append(sketch.Vignettes, item.Seed)
	}
	return sketch, nil
}

func (t templates) item(_ context.Context, id string, v ci.Seed) (Draft, error) {
	item, err := t.compose(id, v)
	return Draft{ID: id, Item: &item}, err
}

func (t templates) compose(id string, s ci.Seed) (ci.Item, error) {
	item, ok := ci.Compose(s, bench.SeedOf(t.seed, id), t.heldOut)
	if !ok {
		return item, fmt.Errorf("the templates have no task of the domain %s for %s", s.Domain, s.TransmissionPrinciple)
	}
	return item, nil
}

func (t templates) settings(string) map[string]string {
	return map[string]string{"held_out": fmt.Sprint(t.heldOut)}
}

func (templates) values() map[string]float64 { return nil }
func (templates) close() error               { return nil }
