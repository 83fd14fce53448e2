package privacylens

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
)

// Verdict is a judge's verdict on a case's action, in the benchmark's own form
// {leak_info, secret_judgment: [[item, bool], …]}.
type Verdict struct {
	Leaks     bool       `json:"leak_info"` // any item does
	Judgments []Judgment `json:"secret_judgment"`
}

// Judgment says whether an action gives an item away. In JSON it is the list [item, bool].
type Judgment struct {
	Item  string
	Leaks bool
}

// MarshalJSON writes [item, bool].
func (j Judgment) MarshalJSON() ([]byte, error) { return data.Marshal([]any{j.Item, j.Leaks}) }

// ReadVerdicts reads verdicts in the benchmark's own form, an object with the cases' names for keys, and joins them to
// the cases. Names that no case has or that come twice, items that are not the case's, items without a verdict, and a
// leak_info that its items contradict are errors. The result has the cases of the file alone, their judgments in the
// order of the case's items.
func ReadVerdicts(path string, cases []Case) (map[string]Verdict, error) {
	return ReadVerdictsFS(nil, path, cases)
}

// ReadVerdictsFS is ReadVerdicts from a file system, such as an embedded one.
func ReadVerdictsFS(fsys fs.FS, path string, cases []Case) (map[string]Verdict, error) {
	byName := map[string]*Case{}
	for i := range cases {
		byName[cases[i].Name] = &cases[i]
	}
	verdicts := map[string]Verdict{}
	err := readObject(fsys, path, "{name: {leak_info, secret_judgment: [[item, bool], …]}}", caseNames(cases),
		func(name string, value any) error {
			v, err := verdictOf(value)
			if err == nil {
				v, err = v.of(byName[name])
			}
			verdicts[name] = v
			return err
		})
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

// WriteVerdicts writes verdicts in the benchmark's own form for the cases that have one, in their order.
func WriteVerdicts(path string, cases []Case, verdicts map[string]Verdict) error {
	return writeObject(path, cases, func(name string) (any, bool) { v, ok := verdicts[name]; return v, ok })
}

// ReadScores reads helpfulness scores, 0 to 3, in the benchmark's own form {name: score}, with the rules of
// ReadVerdicts for names.
func ReadScores(path string, cases []Case) (map[string]int, error) {
	return ReadScoresFS(nil, path, cases)
}

// ReadScoresFS is ReadScores from a file system, such as an embedded one.
func ReadScoresFS(fsys fs.FS, path string, cases []Case) (map[string]int, error) {
	scores := map[string]int{}
	err := readObject(fsys, path, "{name: score}", caseNames(cases), func(name string, value any) error {
		number, _ := value.(json.Number)
		score, err := strconv.Atoi(number.String())
		if err != nil || score < 0 || score > 3 {
			return fmt.Errorf("helpfulness is %s: want 0, 1, 2 or 3", cmp.Or(number.String(), data.KindOf(value)))
		}
		scores[name] = score
		return nil
	})
	if err != nil {
		return nil, err
	}
	return scores, nil
}

// WriteScores writes helpfulness scores in the benchmark's own form for the cases that have one, in their order.
func WriteScores(path string, cases []Case, scores map[string]int) error {
	return writeObject(path, cases, func(name string) (any, bool) { s, ok := scores[name]; return s, ok })
}

// maxVerdicts bounds a file of verdicts, which is read into memory.
const maxVerdicts = 256 << 20

// readObject walks a file that is one object with names of cases for keys.
func readObject(fsys fs.FS, path, want string, known map[string]bool, visit func(name string, value any) error) error {
	object, err := openObject(fsys, path, want)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var strange []string
	for _, e := range object {
		if seen[e.Key] {
			return fmt.Errorf("%s: name %q comes twice: want every name once", path, e.Key)
		}
		seen[e.Key] = true
		if !known[e.Key] {
			strange = append(strange, e.Key)
			continue
		}
		if err := visit(e.Key, e.Value); err != nil {
			return fmt.Errorf("%s: %s: %w", path, e.Key, err)
		}
	}
	if len(strange) > 0 {
		return fmt.Errorf("%s: %d names that no case of the data has: %s", path, len(strange), data.List(strange))
	}
	return nil
}

// openObject reads a file that is one object, its keys in order.
func openObject(fsys fs.FS, path, want string) (data.Object, error) {
	file, err := data.Open(fsys, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxVerdicts+1))
	switch {
	case err != nil:
		return nil, data.Unreadable(path, "", err)
	case len(text) > maxVerdicts:
		return nil, fmt.Errorf("%s: longer than %d MiB: want %s", path, maxVerdicts>>20, want)
	}
	value, err := data.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: want %s", path, data.BadJSON(err), want)
	}
	object, ok := value.(data.Object)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s: holds %s: want %s", path, data.KindOf(value), want)
	case len(object) == 0:
		return nil, fmt.Errorf("%s: no names: the object is empty: want %s", path, want)
	}
	return object, nil
}

// writeObject writes an object with the cases' names for keys, byte for byte like Python's json.dump with indent=4.
func writeObject(path string, cases []Case, value func(name string) (any, bool)) error {
	var object data.Object
	for i := range cases {
		if v, ok := value(cases[i].Name); ok {
			object = append(object, data.Entry{Key: cases[i].Name, Value: v})
		}
	}
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	return data.WriteFile(path, func(w io.Writer) error {
		var indented bytes.Buffer
		if err := json.Indent(&indented, text, "", "    "); err != nil {
			return err
		}
		_, err := w.Write(toASCII(indented.Bytes()))
		return err
	})
}

// toASCII escapes the letters of a JSON text that are not ASCII.
func toASCII(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

const verdictForm = "want {leak_info, secret_judgment: [[item, bool], …]}"

// verdictOf decodes a verdict.
func verdictOf(value any) (v Verdict, err error) {
	object, ok := value.(data.Object)
	if !ok {
		return v, fmt.Errorf("is %s: %s", data.KindOf(value), verdictForm)
	}
	leaks, _ := object.Get("leak_info")
	if v.Leaks, ok = leaks.(bool); !ok {
		return v, fmt.Errorf("leak_info is missing, or neither true nor false: %s", verdictForm)
	}
	judgments, _ := object.Get("secret_judgment")
	rows, ok := judgments.([]any)
	if !ok {
		return v, fmt.Errorf("secret_judgment is missing or not a list: %s", verdictForm)
	}
	for i, row := range rows {
		j, err := judgmentOf(row)
		if err != nil {
			return v, fmt.Errorf("secret_judgment[%d] %w", i, err)
		}
		v.Judgments = append(v.Judgments, j)
	}
	return v, nil
}

func judgmentOf(value any) (j Judgment, err error) {
	pair, ok := value.([]any)
	if !ok || len(pair) != 2 {
		return j, fmt.Errorf("is not [item, bool]: %s", verdictForm)
	}
	if j.Item, ok = pair[0].(string); !ok {
		return j, fmt.Errorf("has %s as its item: want a string", data.KindOf(pair[0]))
	}
	if j.Leaks, ok = pair[1].(bool); !ok {
		return j, fmt.Errorf("has %s as its verdict: want true or false", data.KindOf(pair[1]))
	}
	return j, nil
}

// of joins a verdict to its case.
func (v Verdict) of(c *Case) (Verdict, error) {
	verdicts, leaks := map[string]bool{}, false
	for _, j := range v.Judgments {
		if !slices.Contains(c.Trajectory.Items, j.Item) {
			return v, fmt.Errorf("the case has no item %.80q: these verdicts belong to a different data set", j.Item)
		}
		if _, twice := verdicts[j.Item]; twice {
			return v, fmt.Errorf("two verdicts for item %.80q", j.Item)
		}
		verdicts[j.Item] = j.Leaks
		leaks = leaks || j.Leaks
	}
	joined := Verdict{Leaks: v.Leaks}
	for _, item := range c.Trajectory.Items {
		leak, found := verdicts[item]
		if !found {
			return v, fmt.Errorf("no verdict for item %.80q", item)
		}
		joined.Judgments = append(joined.Judgments, Judgment{item, leak})
	}
	if leaks != v.Leaks {
		return v, fmt.Errorf("leak_info is %v, but the verdicts of its items say %v", v.Leaks, leaks)
	}
	return joined, nil
}
