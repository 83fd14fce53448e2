package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Node is a value in a YAML file that is no command's config, such as a policy. Its errors name the file and the line.
type Node struct {
	file string
	line int
	key  string // what messages call it
	node ast.Node
}

// Entry is a key of a mapping with its value.
type Entry struct {
	Key string
	Node
}

// Document reads a YAML file of one document. name is what errors call the file.
func Document(name string, text []byte) (Node, error) {
	top := Node{file: name, line: 1, key: "the file"}
	file, err := syntax(text)
	if e, ok := errors.AsType[*yaml.SyntaxError](err); ok && e.Token != nil && e.Token.Position != nil {
		top.line = e.Token.Position.Line
		return top, top.Fault("not YAML: %s", oneLine(e.Message))
	}
	switch {
	case err != nil:
		return top, top.Fault("not YAML: %s", oneLine(err.Error()))
	case len(file.Docs) == 0 || len(file.Docs) == 1 && file.Docs[0].Body == nil:
		return top, top.Fault("the file is empty")
	case len(file.Docs) > 1:
		return top, top.Fault("%d documents divided by ---: want one", len(file.Docs))
	}
	top.node = file.Docs[0].Body
	return top, nil
}

// Fault is an error about the value.
func (n Node) Fault(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", n.file, n.line, fmt.Sprintf(format, args...))
}

// Entries are the keys of a mapping in the order of the file, each of them once.
func (n Node) Entries() (all []Entry, err error) {
	mapping := pairs(n.node)
	if len(mapping) == 0 {
		return nil, n.Fault("%s %s: want keys and values", n.key, valueOf(n.node).show())
	}
	lines := map[string]int{}
	for _, p := range mapping {
		key, line := keyOf(p)
		e := Entry{key, Node{n.file, line, key, p.Value}}
		if first, twice := lines[key]; twice {
			return nil, e.Fault("%s is given again: line %d has it already", key, first)
		}
		lines[key] = line
		all = append(all, e)
	}
	return all, nil
}

// Items are the items of a list, which has one at least.
func (n Node) Items() (all []Node, err error) {
	list, ok := n.node.(*ast.SequenceNode)
	if !ok || len(list.Values) == 0 {
		return nil, n.Fault("%s %s: want a list that is not empty", n.key, valueOf(n.node).show())
	}
	for _, item := range list.Values {
		all = append(all, Node{n.file, lineOf(item, n.line), n.key, item})
	}
	return all, nil
}

// lineOf is where a node begins, or else a line.
func lineOf(node ast.Node, or int) int {
	if p := pairs(node); len(p) > 0 {
		_, line := keyOf(p[0])
		return line
	}
	if node == nil || node.GetToken() == nil || node.GetToken().Position == nil {
		return or
	}
	return node.GetToken().Position.Line
}

// Text is a text of printable characters that is not empty, without the white space around it and with single spaces
// in the place of other white space. A number is a text, too.
func (n Node) Text() (string, error) {
	g := valueOf(n.node)
	if s, ok := n.node.(*ast.IntegerNode); ok {
		g = given{form: formPlain, text: s.GetToken().Value}
	}
	text := strings.Join(strings.Fields(g.text), " ")
	if g.form == formNumber {
		g.form = formPlain
	}
	if g.form != formPlain && g.form != formQuoted || text == "" || !(given{form: formPlain, text: text}).printable() {
		return "", n.Fault("%s %s: want a text", n.key, g.show())
	}
	return text, nil
}

// Bool is true or false.
func (n Node) Bool() (bool, error) {
	g := valueOf(n.node)
	if g.form != formBool {
		return false, n.Fault("%s %s: want true or false", n.key, g.show())
	}
	return g.text == "true", nil
}

// Texts are the texts of a list that is not empty, each of them once.
func (n Node) Texts() (texts []string, err error) {
	items, err := n.Items()
	for _, item := range items {
		text, err := item.Text()
		if err == nil && slices.Contains(texts, text) {
			err = item.Fault("%s: %q is there twice", n.key, text)
		}
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, err
}
