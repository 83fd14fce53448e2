package config

import (
	"errors"

	"github.com/goccy/go-yaml"
)

// Texts reads the YAML of another program: by key of the top level its text, or the texts of its list. Keys with other
// values are left out.
func Texts(text []byte) (map[string][]string, error) {
	file, err := syntax(text)
	if e, ok := errors.AsType[*yaml.SyntaxError](err); ok {
		err = errors.New(oneLine(e.Message))
	}
	if err != nil {
		return nil, errors.New("not YAML: " + oneLine(err.Error()))
	}
	all := map[string][]string{}
	for _, doc := range file.Docs {
		for _, p := range pairs(doc.Body) {
			key, _ := keyOf(p)
			if texts := valueOf(p.Value).texts(); texts != nil {
				all[key] = texts
			}
		}
	}
	return all, nil
}

// texts are those of a text or of a list of texts, nil of another value.
func (g given) texts() (all []string) {
	switch g.form {
	case formPlain, formQuoted:
		return []string{g.text}
	case formList:
		for _, item := range g.items {
			if item.form != formPlain && item.form != formQuoted {
				return nil
			}
			all = append(all, item.text)
		}
	}
	return all
}
