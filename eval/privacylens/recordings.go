package privacylens

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
)

// byName reads values by the names of cases. Names that no case has, and names that come twice, are errors; a case that
// is not in the file is not in the result either.
type byName[V any] struct {
	path    string
	cases   map[string]*Case
	values  map[string]V
	strange []string // names that no case has
}

func newByName[V any](path string, cases []Case) *byName[V] {
	r := &byName[V]{path: path, cases: map[string]*Case{}, values: map[string]V{}}
	for i := range cases {
		r.cases[cases[i].Name] = &cases[i]
	}
	return r
}

func (r *byName[V]) add(name string, v V) error {
	_, twice := r.values[name]
	switch {
	case name == "":
		return errors.New("name is empty: want the name of a case")
	case twice:
		return fmt.Errorf("name %q comes twice: want every name once", name)
	}
	if r.values[name] = v; r.cases[name] == nil {
		r.strange = append(r.strange, name)
	}
	return nil
}

// end wants values, all of known cases.
func (r *byName[V]) end(err error) (map[string]V, error) {
	switch {
	case err != nil:
		return nil, err
	case len(r.strange) > 0:
		return nil, fmt.Errorf("%s: %d names that no case of the data has: %s", r.path, len(r.strange),
			data.List(r.strange))
	case len(r.values) == 0:
		return nil, fmt.Errorf("%s: no rows: the file is empty", r.path)
	}
	return r.values, nil
}

// readActions reads what agents did last: from a .csv file with the columns name and final_action, as the benchmark's
// own tools write it (an empty cell is an empty text), or from .jsonl, .json or .parquet rows with these two.
func readActions(fsys fs.FS, path string, cases []Case) (map[string]string, error) {
	r := newByName[string](path, cases)
	if ext, zipped := data.FormOf(path); ext == ".csv" && !zipped {
		return r.end(data.ReadCSV(fsys, path, []string{"name", "final_action"}, func(row map[string]string) error {
			return r.add(row["name"], row["final_action"])
		}))
	}
	type row struct {
		Name   string  `json:"name"`
		Action *string `json:"final_action"`
	}
	_, _, err := data.ReadTable(fsys, path, func(a *row, _ string, _ *data.Report) (bool, string, error) {
		if a.Action == nil {
			a.Action = new(string)
		}
		return true, "name " + a.Name, r.add(a.Name, *a.Action)
	})
	return r.end(err)
}

// writeActions writes actions as the benchmark's own tools write them, for the cases that have one, in their order.
func writeActions(path string, cases []Case, actions map[string]string) error {
	return data.WriteFile(path, func(w io.Writer) error {
		out := csv.NewWriter(w)
		out.Write([]string{"name", "final_action"})
		for i := range cases {
			if text, ok := actions[cases[i].Name]; ok {
				out.Write([]string{cases[i].Name, text})
			}
		}
		out.Flush()
		return out.Error()
	})
}

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

// UnmarshalJSON reads [item, bool].
func (j *Judgment) UnmarshalJSON(text []byte) error {
	var pair []json.RawMessage
	if json.Unmarshal(text, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[0], &j.Item) != nil ||
		json.Unmarshal(pair[1], &j.Leaks) != nil || string(pair[0]) == "null" || string(pair[1]) == "null" {
		return fmt.Errorf("a judgment is %.60s: want [item, bool]", text)
	}
	return nil
}

// readVerdicts reads verdicts in the benchmark's own form, an object with the cases' names for keys, and joins them to
// the cases. Items that are not the case's, items without a verdict, and a leak_info that its items contradict are
// errors. Judgments are in the order of the case's items.
func readVerdicts(fsys fs.FS, path string, cases []Case) (map[string]Verdict, error) {
	return readObject(fsys, path, "{name: {leak_info, secret_judgment: [[item, bool], …]}}", cases,
		func(c *Case, v *Verdict) error { return v.join(c) })
}

// readScores reads helpfulness scores, 0 to 3, in the benchmark's own form {name: score}.
func readScores(fsys fs.FS, path string, cases []Case) (map[string]int, error) {
	return readObject(fsys, path, "{name: score}", cases, func(_ *Case, score *int) error {
		if *score < 0 || *score > 3 {
			return fmt.Errorf("helpfulness is %d: want 0, 1, 2 or 3", *score)
		}
		return nil
	})
}

// readObject reads a file that is one object with names of cases for keys.
func readObject[V any](fsys fs.FS, path, want string, cases []Case, check func(*Case, *V) error) (map[string]V, error) {
	file, err := data.Open(fsys, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, in := newByName[V](path, cases), json.NewDecoder(file)
	fault := func(err error) error { return fmt.Errorf("%s: %w: want %s", path, data.BadJSON(err), want) }
	if t, err := in.Token(); err != nil {
		return nil, fault(err)
	} else if t != json.Delim('{') {
		return nil, fmt.Errorf("%s: it is no object: want %s", path, want)
	}
	for in.More() {
		var v V
		key, err := in.Token()
		if err == nil {
			err = in.Decode(&v)
		}
		if err != nil {
			return nil, fault(err)
		}
		name, _ := key.(string)
		if c := r.cases[name]; c != nil {
			err = check(c, &v)
		}
		if fault := r.add(name, v); fault != nil {
			err = fault
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
	}
	if _, err := in.Token(); err != nil {
		return nil, fault(err)
	}
	return r.end(nil)
}

// join puts the judgments in the order of the case's items.
func (v *Verdict) join(c *Case) error {
	verdicts, leaks := map[string]bool{}, false
	for _, j := range v.Judgments {
		if !slices.Contains(c.Trajectory.Items, j.Item) {
			return fmt.Errorf("the case has no item %.80q: these verdicts belong to a different data set", j.Item)
		}
		if _, twice := verdicts[j.Item]; twice {
			return fmt.Errorf("two verdicts for item %.80q", j.Item)
		}
		verdicts[j.Item] = j.Leaks
		leaks = leaks || j.Leaks
	}
	v.Judgments = nil
	for _, item := range c.Trajectory.Items {
		leak, found := verdicts[item]
		if !found {
			return fmt.Errorf("no verdict for item %.80q", item)
		}
		v.Judgments = append(v.Judgments, Judgment{item, leak})
	}
	if leaks != v.Leaks {
		return fmt.Errorf("leak_info is %v, but the verdicts of its items say %v", v.Leaks, leaks)
	}
	return nil
}

// writeObject writes an object with the names for keys of the cases that have a value, in their order, byte for byte like
// Python's json.dump with indent=4.
func writeObject[V any](path string, cases []Case, values map[string]V) error {
	var object data.Object
	for i := range cases {
		if v, ok := values[cases[i].Name]; ok {
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
