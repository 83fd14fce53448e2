package privacylens

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
)

// ReadActions reads what agents did last, by the names of the cases: from a .csv file with the columns name and
// final_action, as the benchmark's own tools write it (an empty cell is an empty text), or from .jsonl, .json or
// .parquet rows with these two, or from .json with one list of each, which those tools write when a csv fails. Other
// columns are left alone. Names that no case has, and names that come twice, are errors; a case that is not in the file
// is not in the result either.
func ReadActions(path string, cases []Case) (map[string]string, error) {
	return ReadActionsFS(nil, path, cases)
}

// ReadActionsFS is ReadActions from a file system, such as an embedded one.
func ReadActionsFS(fsys fs.FS, path string, cases []Case) (map[string]string, error) {
	a := &actionReader{fsys: fsys, path: path, known: caseNames(cases), actions: map[string]string{},
		places: map[string]string{}}
	var err error
	switch ext, zipped := data.FormOf(path); {
	case ext == ".csv" && !zipped:
		err = a.readCSV()
	case data.CheckWritable(path) != nil:
		err = fmt.Errorf("%s: want actions as .csv, .jsonl, .json or .parquet, the last three also with .gz", path)
	default:
		err = a.readRows()
	}
	switch {
	case err != nil:
		return nil, err
	case len(a.strange) > 0:
		return nil, fmt.Errorf("%s: %d names that no case of the data has: %s", path, len(a.strange),
			data.List(a.strange))
	case len(a.actions) == 0:
		return nil, fmt.Errorf("%s: no rows: the file is empty", path)
	}
	return a.actions, nil
}

// WriteActions writes actions as the benchmark's own tools write them, for the cases that have one, in their order.
func WriteActions(path string, cases []Case, actions map[string]string) error {
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

func caseNames(cases []Case) map[string]bool {
	names := map[string]bool{}
	for i := range cases {
		names[cases[i].Name] = true
	}
	return names
}

// actionReader collects actions and their places.
type actionReader struct {
	fsys    fs.FS // nil: the operating system's
	path    string
	known   map[string]bool   // names of the cases
	actions map[string]string // by name
	places  map[string]string // by name
	strange []string          // names that no case has
}

func (a *actionReader) add(place, name, action string) error {
	switch first, twice := a.places[name]; {
	case name == "":
		return fmt.Errorf("%s: name is empty: want the name of a case", place)
	case twice:
		return fmt.Errorf("%s: name %q is at %s already: want every name once", place, name, first)
	case !utf8.ValidString(action):
		return fmt.Errorf("%s: final_action is not valid UTF-8", place)
	}
	a.places[name], a.actions[name] = place, action
	if !a.known[name] {
		a.strange = append(a.strange, name)
	}
	return nil
}

// readCSV reads a table with a header.
func (a *actionReader) readCSV() error {
	file, err := data.Open(a.fsys, a.path)
	if err != nil {
		return err
	}
	defer file.Close()
	end := &lastByte{Reader: file}
	in := bufio.NewReader(end)
	if bom, _ := in.Peek(3); string(bom) == "\ufeff" {
		in.Discard(3)
	}
	table := csv.NewReader(in)
	header, err := table.Read()
	if err == io.EOF {
		return fmt.Errorf("%s: no rows: the file is empty", a.path)
	}
	name, action := slices.Index(header, "name"), slices.Index(header, "final_action")
	if err == nil && (name < 0 || action < 0) {
		return fmt.Errorf("%s:1: found columns %s: want name and final_action", a.path, data.List(header))
	}
	line := 1
	for err == nil {
		var row []string
		if row, err = table.Read(); err == nil {
			line, _ = table.FieldPos(0)
			if err := a.add(fmt.Sprintf("%s:%d", a.path, line), row[name], row[action]); err != nil {
				return err
			}
		}
	}
	if err == io.EOF && end.byte == ',' {
		return fmt.Errorf("%s:%d: the last row ends with a comma, without a line end: the file is truncated", a.path,
			line)
	}
	return csvError(a.path, err)
}

// lastByte remembers the last byte that was read.
type lastByte struct {
	io.Reader
	byte byte
}

func (l *lastByte) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if n > 0 {
		l.byte = p[n-1]
	}
	return n, err
}

// csvError explains why reading ended; nil at the end of the table.
func csvError(path string, err error) error {
	var parse *csv.ParseError
	switch {
	case err == io.EOF:
		return nil
	case !errors.As(err, &parse):
		return data.Unreadable(path, "", err)
	case parse.Err == csv.ErrFieldCount:
		return fmt.Errorf("%s:%d: not as many columns as the header: the file is truncated or damaged",
			path, parse.StartLine)
	case parse.Err == csv.ErrQuote:
		return fmt.Errorf("%s:%d: the quoted text that begins in line %d has no end, or text behind it: the file is "+
			"truncated or damaged", path, parse.Line, parse.StartLine)
	}
	return fmt.Errorf("%s:%d: bad csv: %v", path, parse.Line, parse.Err)
}

// readRows reads rows with the two columns, or one row with two lists.
func (a *actionReader) readRows() error {
	for row, err := range data.Rows(a.fsys, a.path) {
		if err == nil {
			err = a.addRow(row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *actionReader) addRow(r data.Row) error {
	_, found := r.Fields["final_action"]
	if r.Fields["name"] == nil || !found {
		return fmt.Errorf("%s: found columns %s: want name and final_action", r.Source, data.List(r.Columns()))
	}
	names, isList := r.Fields["name"].([]any)
	if !isList {
		return a.addValues(r.Source, r.Fields["name"], r.Fields["final_action"])
	}
	actions, isList := r.Fields["final_action"].([]any)
	if !isList || len(actions) != len(names) {
		return fmt.Errorf("%s: name is a list of %d: want final_action a list as long", r.Source, len(names))
	}
	for i := range names {
		if err := a.addValues(fmt.Sprintf("%s[%d]", r.Source, i), names[i], actions[i]); err != nil {
			return err
		}
	}
	return nil
}

// addValues takes a name and an action of a row; null is an empty text.
func (a *actionReader) addValues(place string, name, action any) error {
	texts := [2]string{}
	for i, value := range []any{name, action} {
		switch v := value.(type) {
		case string:
			texts[i] = v
		case []byte: // parquet without the string annotation
			texts[i] = string(v)
		case nil:
		default:
			return fmt.Errorf("%s: %s is %s: want a string", place, []string{"name", "final_action"}[i],
				data.KindOf(value))
		}
	}
	return a.add(place, texts[0], texts[1])
}
