package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// A splitter cuts a piece into words.
type splitter func(p piece, emit func(piece))

func keepWhole(p piece, emit func(piece)) { emit(p) }

// A finder emits a text from left to right in parts: matches of a pattern and what is between them. No part is empty.
// It ends with a fault if it takes too long.
type finder func(s string, until deadline, emit func(part string, match bool))

const (
	gpt2Pattern  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	suffixes     = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	qwen2Pattern = suffixes + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	llamaPattern = suffixes + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// findRegex finds a regular expression's matches. The usual expressions have a scanner, which is faster.
func findRegex(pattern, at string) (finder, error) {
	if scan := scanners[pattern]; scan != nil {
		return scan, nil
	}
	return compileRegex(pattern, at)
}

// regexp2 is used because the expressions have look-ahead, which Go's own package does not know.
func compileRegex(pattern, at string) (find finder, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: regular expression %q: %v", at, pattern, p)
		}
	}()
	if err := checkRegex(pattern, at); err != nil {
		return nil, err
	}
	// Oniguruma also folds ſ to s; regexp2 does not. Its ^ and $ are the ends of lines.
	re, err := regexp2.Compile(strings.ReplaceAll(pattern, "(?i:'s|", "(?i:'s|'ſ|"), regexp2.Multiline)
	if err != nil {
		return nil, fmt.Errorf("%s: regular expression %q: %v", at, pattern, err)
	}
	re.MatchTimeout = matchTime
	return func(s string, until deadline, emit func(string, bool)) { walkRegex(re, at, s, until, emit) }, nil
}

// Beginnings of a class, in which ] is a character where it comes first, and of what changes flags.
var classStart, flagStart = regexp.MustCompile(`^\[\^?\]?`), regexp.MustCompile(`^\(\?[a-z]*[ms]`)

// checkRegex refuses what Oniguruma, for which tokenizer.json is written, reads otherwise than regexp2 and Go: a class
// within a class, the intersection &&, {,3}, and the flags m and s.
func checkRegex(pattern, at string) error {
	inside := false // a class
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch {
		case rest[0] == '\\':
			i++
		case inside && (rest[0] == '[' || strings.HasPrefix(rest, "&&")),
			!inside && (strings.HasPrefix(rest, "{,") || flagStart.MatchString(rest)):
			return fmt.Errorf("%s: regular expression %q: at %.20q: want one without classes within classes, &&, {,n} "+
				"and the flags m and s", at, pattern, rest)
		case rest[0] == '[':
			inside, i = true, i+len(classStart.FindString(rest))-1
		case rest[0] == ']':
			inside = false
		}
	}
	return nil
}

// walkRegex turns regexp2's matches, which count in runes, into parts of s. It skips empty matches.
func walkRegex(re *regexp2.Regexp, at, s string, until deadline, emit func(part string, match bool)) {
	runes, done := 0, 0
	advance := func(to int, match bool) {
		end := done
		for ; runes < to; runes++ {
			_, size := utf8.DecodeRuneInString(s[end:])
			end += size
		}
		if end > done {
			emit(s[done:end], match)
		}
		done = end
	}
	m, err := re.FindStringMatch(s)
	for err == nil && m != nil {
		until.check(at)
		advance(m.Index, false)
		advance(m.Index+m.Length, true)
		m, err = re.FindNextMatch(m)
	}
	if err != nil { // it repeats the text
		panic(tooSlow(at))
	}
	if done < len(s) {
		emit(s[done:], false)
	}
}

// readPattern reads {"Regex": ...}, for which it returns a finder, or {"String": ...}, for which it returns the text.
// regex makes the finder.
func readPattern(raw json.RawMessage, at string, regex func(pattern, at string) (finder, error)) (
	finder, string, error) {
	var spec struct{ String, Regex *string }
	if err := unmarshal(raw, at, &spec); err != nil {
		return nil, "", err
	}
	switch {
	case spec.Regex != nil:
		find, err := regex(*spec.Regex, at+".Regex")
		return find, "", err
	case spec.String != nil && *spec.String != "":
		return nil, *spec.String, nil
	}
	return nil, "", fmt.Errorf(`%s: want {"String": text} or {"Regex": expression}, not empty`, at)
}

// findString finds a text's occurrences.
func findString(text string) finder {
	return func(s string, _ deadline, emit func(string, bool)) {
		for s != "" {
			before, after, found := strings.Cut(s, text)
			if before != "" {
				emit(before, false)
			}
			if found {
				emit(text, true)
			}
			s = after
		}
	}
}

// findRunes finds single characters.
func findRunes(is func(rune) bool) finder {
	return func(s string, _ deadline, emit func(string, bool)) {
		for s != "" {
			r, size := utf8.DecodeRuneInString(s)
			match := is(r)
			if !match {
				if size = strings.IndexFunc(s, is); size < 0 {
					size = len(s)
				}
			}
			emit(s[:size], match)
			s = s[size:]
		}
	}
}

// splitters read tokenizer.json's pre_tokenizer. inBytes leaves GPT-2's alphabet out of ByteLevel. grown is what the
// normalizer and earlier splitters do to a text's length.
func splitters(inBytes bool, grown *growth) stage[splitter] {
	return stage[splitter]{
		absent: keepWhole,
		list:   "pretokenizers",
		join:   func(steps []splitter) splitter { return chain(steps...) },
		want:   "ByteLevel, Split, Digits, Metaspace or Sequence",
		types: map[string]reader[splitter]{
			"ByteLevel": func(raw json.RawMessage, at string) (splitter, error) {
				words, err := readByteLevel(raw, at)
				if inBytes || err != nil {
					return words, err
				}
				return chain(words, alphabetize), grown.by(2, at)
			},
			"Split": readSplit, "Digits": readDigits,
			"Metaspace": func(raw json.RawMessage, at string) (splitter, error) {
				words, err := readMetaspace(raw, at)
				return words, cmp.Or(err, grown.by(utf8.UTFMax, at))
			},
		},
	}
}

func readDigits(raw json.RawMessage, at string) (splitter, error) {
	var spec struct {
		Individual bool `json:"individual_digits"`
	}
	err := unmarshal(raw, at, &spec)
	behaviour := "Contiguous"
	if spec.Individual {
		behaviour = "Isolated"
	}
	return behaviours[behaviour](findRunes(unicode.IsNumber)), err
}

// chain runs splitters one after another.
func chain(steps ...splitter) splitter {
	switch len(steps) {
	case 0:
		return keepWhole
	case 1:
		return steps[0]
	}
	rest := chain(steps[1:]...)
	return func(p piece, emit func(piece)) {
		steps[0](p, func(q piece) { rest(q, emit) })
	}
}

// endsInBytes reports whether ByteLevel is a pre-tokenizer's last step and no earlier one, so that the model can work
// on bytes. Sequences are within each other at most depth deep.
func endsInBytes(raw json.RawMessage, depth int) bool {
	if kind, _ := kindOf(raw, ""); kind != "Sequence" || depth == 0 {
		return kind == "ByteLevel"
	}
	var spec struct{ Pretokenizers []json.RawMessage }
	if unmarshal(raw, "", &spec) != nil || len(spec.Pretokenizers) == 0 {
		return false
	}
	return bytes.Count(raw, []byte(`"ByteLevel"`)) == 1 &&
		endsInBytes(spec.Pretokenizers[len(spec.Pretokenizers)-1], depth-1)
}

// readByteLevel reads ByteLevel without its alphabet.
func readByteLevel(raw json.RawMessage, at string) (splitter, error) {
	spec := struct {
		AddPrefixSpace bool `json:"add_prefix_space"`
		UseRegex       bool `json:"use_regex"`
	}{true, true} // also for null
	err := unmarshal(raw, at, &spec)
	var steps []splitter
	if spec.AddPrefixSpace {
		steps = append(steps, prefixSpace)
	}
	if spec.UseRegex {
		steps = append(steps, isolate(scanners[gpt2Pattern]))
	}
	return chain(steps...), err
}

func prefixSpace(p piece, emit func(piece)) {
	if !strings.HasPrefix(p.text, " ") {
		p.text = " " + p.text
	}
	emit(p)
}

func alphabetize(p piece, emit func(piece)) {
	p.text = toAlphabet(p.text)
	emit(p)
}

func readSplit(raw json.RawMessage, at string) (splitter, error) {
	var spec struct {
		Pattern  json.RawMessage
		Behavior string
		Invert   bool
	}
	if err := unmarshal(raw, at, &spec); err != nil {
		return nil, err
	}
	find, text, err := readPattern(spec.Pattern, at+".pattern", findRegex)
	if err != nil {
		return nil, err
	}
	if find == nil {
		find = findString(text)
	}
	behaviour := behaviours[spec.Behavior]
	if behaviour == nil {
		const want = "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous"
		return nil, fmt.Errorf("%s.behavior %q: want %s", at, spec.Behavior, want)
	}
	if spec.Invert {
		inner := find
		find = func(s string, until deadline, emit func(string, bool)) {
			inner(s, until, func(part string, match bool) { emit(part, !match) })
		}
	}
	return behaviour(find), nil
}

// behaviours are what Split can do with a pattern's matches.
var behaviours = map[string]func(finder) splitter{
	"Removed":            remove,
	"Isolated":           isolate,
	"MergedWithPrevious": joinWhere(func(match, previous bool) bool { return match && !previous }),
	"MergedWithNext":     joinWhere(func(match, previous bool) bool { return previous && !match }),
	"Contiguous":         joinWhere(func(match, previous bool) bool { return match == previous }),
}

func isolate(find finder) splitter {
	return joinWhere(func(_, _ bool) bool { return false })(find)
}

func remove(find finder) splitter {
	return func(p piece, emit func(piece)) {
		find(p.text, p.until, func(part string, match bool) {
			if !match {
				emit(piece{text: part, first: p.first, until: p.until})
			}
			p.first = false
		})
	}
}

// joinWhere joins a part to the one before it where joins says so. The part before the first counts as no match.
func joinWhere(joins func(match, previous bool) bool) func(finder) splitter {
	return func(find finder) splitter {
		return func(p piece, emit func(piece)) {
			begin, end, previous := 0, 0, false
			flush := func() {
				if end > begin {
					emit(piece{text: p.text[begin:end], first: p.first && begin == 0, until: p.until})
				}
			}
			find(p.text, p.until, func(part string, match bool) {
				if !joins(match, previous) {
					flush()
					begin = end
				}
				end += len(part)
				previous = match
			})
			flush()
		}
	}
}

type metaspace struct {
	Replacement    string
	AddPrefixSpace *bool   `json:"add_prefix_space"`
	PrependScheme  *string `json:"prepend_scheme"`
	Split          *bool
}

// readMetaspaceSpec reads Metaspace, which is both a pre-tokenizer and a decoder. Older files have add_prefix_space
// instead of prepend_scheme.
func readMetaspaceSpec(raw json.RawMessage, at string) (m metaspace, scheme string, err error) {
	if err = unmarshal(raw, at, &m); err != nil {
		return m, "", err
	}
	if utf8.RuneCountInString(m.Replacement) != 1 {
		return m, "", fmt.Errorf("%s.replacement %q: want one character", at, m.Replacement)
	}
	scheme = "always"
	if m.PrependScheme != nil {
		scheme = *m.PrependScheme
	} else if m.AddPrefixSpace != nil && !*m.AddPrefixSpace {
		scheme = "never"
	}
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return m, "", fmt.Errorf("%s.prepend_scheme %q: want always, first or never", at, scheme)
	}
	return m, scheme, nil
}

func readMetaspace(raw json.RawMessage, at string) (splitter, error) {
	m, scheme, err := readMetaspaceSpec(raw, at)
	if err != nil {
		return nil, err
	}
	mark := func(p piece, emit func(piece)) {
		p.text = strings.ReplaceAll(p.text, " ", m.Replacement)
		if !strings.HasPrefix(p.text, m.Replacement) && (scheme == "always" || scheme == "first" && p.first) {
			p.text = m.Replacement + p.text
		}
		emit(p)
	}
	if m.Split != nil && !*m.Split {
		return mark, nil
	}
	return chain(mark, behaviours["MergedWithNext"](findString(m.Replacement))), nil
}
