package config

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// Grants are what a config file or a run folder may have done, beyond what the command line names itself: "libraries"
// that it names by path are loaded, "commands" are run, and other "hosts" get requests, with keys of the environment.
//
// The tag needs of an option names the grant: `needs:"libraries"`, `needs:"hosts api_key_env"`, where the second word is
// the key of the section that names the variable with the key.
type Grants []string

// Anything is for commands that read a config and use nothing that it names.
var Anything = Grants{"libraries", "commands", "hosts"}

// Unsent is for commands that open an engine, but run no command and ask no server.
var Unsent = Anything[1:]

// allowVariable is the environment variable with grants.
const allowVariable = "POSTTRAIN_ALLOW"

// ParseGrants reads grants, with commas between; where the text is empty, the environment has them.
func ParseGrants(text string) (Grants, error) {
	from := "--allow"
	if text == "" {
		from, text = allowVariable, os.Getenv(allowVariable)
	}
	var all Grants
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		if !slices.Contains(Anything, word) {
			return nil, fmt.Errorf("%s %s: want some of %s, with commas between", from, text, fault.And(Anything))
		}
		all = append(all, word)
	}
	return all, nil
}

// Needs are the grants without which the options would be refused if a file named them.
func (s *Spec[T]) Needs(c *T) (all Grants) {
	g := s.given("")
	for _, l := range s.schema().leaves {
		if need := s.needs(g, l, c); need != "" && !slices.Contains(all, need) {
			all = append(all, need)
		}
	}
	return all
}

// permit refuses values that need a grant and come from the file, or from one that it follows.
func (s *Spec[T]) permit(g *Given, c *T, allowed Grants) error {
	for _, l := range s.schema().leaves {
		need := s.needs(g, l, c)
		if need == "" || slices.Contains(allowed, need) || g.typed(l.key) {
			continue
		}
		value := l.text(reflect.ValueOf(c).Elem().FieldByIndex(l.index))
		if !strings.HasPrefix(value, "[") {
			value = strconv.Quote(value)
		}
		by := "--set " + l.key + "=VALUE"
		if l.flag.Name != "" {
			by = "--" + l.flag.Name
		}
		g.Fault(l.key, "%s %s: %s; --allow %s allows it, or give the value with %s", l.key,
			fault.WithoutSecrets(value), refusals[need], need, by)
	}
	return g.err()
}

// typed says that the command line gives a key.
func (g *Given) typed(key string) bool { v, ok := g.values[key]; return ok && v.line == 0 }

var refusals = map[string]string{
	"libraries": "a library that a file names is not loaded",
	"commands":  "a command that a file names is not run",
	"hosts":     "nothing is sent to a host that a file names, and no key",
}

// needs is the grant that the option's value needs, "": none.
func (s *Spec[T]) needs(g *Given, l leaf, c *T) string {
	need, sibling, _ := strings.Cut(l.needs, " ")
	if need == "" {
		return ""
	}
	v, key := reflect.ValueOf(c).Elem().FieldByIndex(l.index), ""
	for _, other := range s.schema().leaves {
		if sibling != "" && other.key == section(l.key)+sibling {
			key = reflect.ValueOf(c).Elem().FieldByIndex(other.index).String()
		}
	}
	foreign := func(u string) bool { return isForeign(u, key == openAIKey || g.typed(section(l.key)+sibling)) }
	engine, library, _ := strings.Cut(v.String(), ":")
	switch {
	case need == "libraries" && (engine == "onnx" && library != "" || strings.ContainsAny(library, `/\`)):
	case need == "commands" && v.Len() > 0:
	case need == "hosts" && v.Kind() == reflect.String && foreign(v.String()):
	case need == "hosts" && v.Kind() == reflect.Slice && slices.ContainsFunc(v.Interface().([]string), foreign):
	default:
		return ""
	}
	return need
}

// openAIKey is the variable with the key of OpenAI's own server.
const openAIKey = "OPENAI_API_KEY"

// isForeign says that an address is neither of this machine nor OpenAI's own, for which the key has to be meant.
func isForeign(address string, meant bool) bool {
	u, err := url.Parse(address)
	if err != nil || address == "" { // which is no address
		return false
	}
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	return !loopback && !(meant && u.Scheme == "https" && u.Host == "api.openai.com")
}
