package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// form is how a given value is written.
type form int

const (
	formNull   form = iota
	formRaw         // an override's text, which is what its key wants it to be
	formExact       // an override's text or texts, in which every character counts
	formPlain       // text without quotes
	formQuoted      // text in quotes, or a block of text
	formNumber
	formBool
	formList
	formOther // a mapping, an alias: never a value
)

// given is a value as the user wrote it, and where.
type given struct {
	place string
	line  int
	form  form
	text  string  // the value, without its quotes
	items []given // of a list
	other bool    // the file writes this whole number in another way, such as 0x10
	file  *string // the file's text, where an override takes its place
}

// valueOf reads a value from the syntax tree.
func valueOf(node ast.Node) given {
	switch n := node.(type) {
	case nil, *ast.NullNode:
		return given{form: formNull}
	case *ast.AnchorNode:
		return valueOf(n.Value)
	case *ast.TagNode:
		return valueOf(n.Value)
	case *ast.StringNode:
		if t := n.GetToken(); t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType {
			return given{form: formQuoted, text: n.Value}
		}
		return given{form: formPlain, text: n.Value}
	case *ast.LiteralNode:
		return given{form: formQuoted, text: n.Value.Value}
	case *ast.IntegerNode:
		text := fmt.Sprint(n.Value)
		return given{form: formNumber, text: text, other: text != n.GetToken().Value}
	case *ast.FloatNode:
		return given{form: formNumber, text: n.GetToken().Value}
	case *ast.InfinityNode:
		return given{form: formNumber, text: strings.Replace(n.GetToken().Value, ".", "", 1)}
	case *ast.NanNode:
		return given{form: formNumber, text: "NaN"}
	case *ast.BoolNode:
		return given{form: formBool, text: strconv.FormatBool(n.Value)}
	case *ast.SequenceNode:
		g := given{form: formList, text: oneLine(n.String())}
		for _, item := range n.Values {
			g.items = append(g.items, valueOf(item))
		}
		return g
	}
	return given{form: formOther, text: oneLine(node.String())}
}

// oneLine is the beginning of a text, in one line.
func oneLine(text string) string { return fault.Beginning(fault.OneLine(text), 60) }

// show prints the value for a fault.
func (g given) show() string {
	switch g.form {
	case formNull:
		return "is empty"
	case formRaw, formExact, formPlain, formQuoted:
		if _, err := strconv.ParseFloat(g.text, 64); err == nil && g.form == formRaw {
			return g.text
		}
		return strconv.Quote(fault.WithoutSecrets(g.text))
	}
	return g.text
}

// exactly is what an override with exact texts gives.
func exactly(o Override) given {
	g := given{place: o.Flag, form: formExact, text: o.Value}
	for _, text := range o.Exact {
		g.items = append(g.items, given{form: formExact, text: text})
	}
	return g
}

// says is false of a value that is empty.
func (g given) says() bool { return g.text != "" || g.items != nil }

func (g given) isText() bool {
	return g.form == formRaw || g.form == formExact || g.form == formPlain || g.form == formQuoted
}

// printable is false for line breaks and control characters, which no path and no name has, and which would not survive
// being written and read again.
func (g given) printable() bool {
	if slices.ContainsFunc(g.items, func(item given) bool { return !item.printable() }) {
		return false
	}
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	return !g.isText() || g.form == formExact || utf8.ValidString(g.text) && !strings.ContainsFunc(g.text, odd)
}

// assign writes the value into an option, and says whether it has the option's type.
func (g given) assign(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if !g.assign(p.Elem()) {
			return false
		}
		v.Set(p)
		return true
	case reflect.String:
		v.SetString(g.text)
		return g.isText() || g.form == formNull
	case reflect.Bool:
		v.SetBool(g.text == "true")
		return g.form == formBool || g.form == formRaw && (g.text == "true" || g.text == "false")
	case reflect.Slice:
		return g.assignList(v)
	}
	return g.assignNumber(v)
}

func (g given) assignNumber(v reflect.Value) bool {
	if g.form != formNumber && g.form != formRaw && g.form != formPlain {
		return false
	}
	text := strings.ReplaceAll(g.text, "_", "")
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(g.text)
		v.SetInt(int64(d))
		return err == nil
	case v.CanInt():
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		return err == nil
	case v.CanUint():
		n, err := strconv.ParseUint(text, 10, 64)
		v.SetUint(n)
		return err == nil
	}
	// The YAML library takes 5e-7, which has no point, for text.
	x, err := strconv.ParseFloat(text, 64)
	v.SetFloat(x)
	return err == nil
}

// assignList writes a list; an override separates its items by commas.
func (g given) assignList(v reflect.Value) bool {
	if v.Type().Elem().Kind() != reflect.String {
		return g.assignNumbers(v)
	}
	v.SetZero()
	var words []string
	switch g.form {
	case formNull:
		return true
	case formRaw:
		words = splitWords(g.text, v.Type())
	case formList, formExact:
		for _, item := range g.items {
			if !item.isText() && (item.form != formNumber || item.other) { // in [1, 2a] 1 is a text, too
				return false
			}
			words = append(words, item.text)
		}
	case formPlain, formQuoted:
		if v.Type() != namesType {
			return false
		}
		words = []string{g.text}
	default:
		return false
	}
	if words != nil {
		v.Set(reflect.ValueOf(words).Convert(v.Type()))
	}
	return true
}

var namesType = reflect.TypeFor[Names]()

// splitWords are the words of an override: the items of a list in YAML's brackets, or of a list that begins with a
// quote and has no brackets around it; else what commas separate.
func splitWords(text string, t reflect.Type) (words []string) {
	listed := strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]")
	switch {
	case listed:
		words = listWords(text)
	case strings.HasPrefix(text, `"`) || strings.HasPrefix(text, "'"):
		words = listWords("[" + text + "]")
	}
	if words != nil {
		return words
	}
	if listed && t != namesType { // a name may begin and end with the brackets of a pattern
		text = text[1 : len(text)-1]
	}
	for _, word := range splitCommas(text) {
		words = append(words, strings.TrimSpace(word))
	}
	return words
}

// listWords are the texts and numbers of a list as YAML has it, nil where the text is no such list.
func listWords(text string) []string {
	file, err := syntax([]byte(text))
	if err != nil || len(file.Docs) != 1 {
		return nil
	}
	list, is := file.Docs[0].Body.(*ast.SequenceNode)
	if !is || list.End == nil || list.End.Position.Offset != utf8.RuneCountInString(text) { // a comment follows
		return nil
	}
	words := []string{}
	for _, item := range list.Values {
		g := valueOf(item)
		if !g.isText() && g.form != formNumber && g.form != formBool {
			return nil
		}
		if !g.isText() {
			g.text = item.GetToken().Value // as it is written
		}
		words = append(words, g.text)
	}
	return words
}

// splitCommas divides a text at its commas, but for those within the brackets of a pattern.
func splitCommas(text string) (words []string) {
	depth, begin := 0, 0
	for i, c := range text {
		switch {
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 0:
			words, begin = append(words, text[begin:i]), i+1
		}
	}
	if depth != 0 { // they are no pattern's
		return strings.Split(text, ",")
	}
	return append(words, text[begin:])
}

// assignNumbers writes a list of numbers.
func (g given) assignNumbers(v reflect.Value) bool {
	items := g.items
	if bare := strings.Trim(g.text, "[] "); g.form == formRaw && bare != "" {
		for _, text := range strings.Split(bare, ",") {
			items = append(items, given{form: formRaw, text: strings.TrimSpace(text)})
		}
	} else if g.form != formRaw && g.form != formList && g.form != formNull {
		return false
	}
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		if !item.assignNumber(list.Index(i)) {
			return false
		}
	}
	v.Set(list)
	return true
}
