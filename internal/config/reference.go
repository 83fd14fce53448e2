package config

import (
	"reflect"
	"slices"
)

// Commands are the registered ones.
func Commands() []Command { return slices.Clone(commands) }

// Key is what the tags of an option say.
type Key struct {
	Name    string
	Default string // "": none
	Flag    string // that sets it; "": none
	About   string
	Paper   string // the paper's value, where the default is another
}

// Table is what the tags say of each key.
func (s *Spec[T]) Table() (keys []Key) {
	defaults := reflect.ValueOf(s.Defaults())
	for _, l := range s.schema().leaves {
		if l.index == nil {
			continue
		}
		k := Key{Name: l.key, Flag: l.flag.Name, About: l.about()}
		if v := reflect.Indirect(defaults.FieldByIndex(l.index)); v.IsValid() && !v.IsZero() {
			k.Default = l.byDefault(v)
		}
		if paper, here := l.departure(defaults); paper != here {
			k.Paper = paper
		}
		keys = append(keys, k)
	}
	return keys
}
