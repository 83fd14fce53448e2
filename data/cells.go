package data

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// cellRows reads a table whose cells are parted by commas or tabs as JSON texts. Its first line names the columns; one
// without a name, such as row numbers have, is left out.
func cellRows(comma rune) func(in source, columns []string) RowSeq {
	return func(in source, _ []string) RowSeq {
		return func(yield func(Row, error) bool) {
			text := bufio.NewReader(in.content)
			if mark, _ := text.Peek(3); string(mark) == "\ufeff" {
				text.Discard(3)
			}
			table := csv.NewReader(text)
			table.Comma, table.FieldsPerRecord = comma, -1
			header, err := table.Read()
			if bad := checkHeader(header); bad != nil {
				yield(Row{}, fmt.Errorf("%s:1: %w", in.name, bad))
				return
			}
			for err == nil {
				var cells []string
				if cells, err = table.Read(); err != nil {
					break
				}
				line, _ := table.FieldPos(0)
				place := fmt.Sprintf("%s:%d", in.name, line)
				if object, bad := jsonRow(header, cells); bad != nil {
					if !yield(Row{Source: place}, fmt.Errorf("%s: %w", place, bad)) {
						return
					}
				} else if !in.yieldRaw(yield, place, object) {
					return
				}
			}
			if bad, is := errors.AsType[*csv.ParseError](err); is {
				yield(Row{}, fmt.Errorf("%s:%d: a quote in the wrong place, or the file is truncated: want texts with "+
					"quotes in quotes, and theirs doubled", in.name, bad.StartLine))
			} else if err != io.EOF {
				yield(Row{}, Unreadable(in.name, "", err))
			}
		}
	}
}

var errNotUTF8 = errors.New("invalid UTF-8: want the table saved as UTF-8")

// checkHeader refuses other separators, and a name that comes twice.
func checkHeader(header []string) error {
	for i, name := range header {
		switch {
		case !utf8.ValidString(name):
			return errNotUTF8
		case name != "" && slices.Contains(header[:i], name):
			return fmt.Errorf("the column %s is there twice: want each once", OneLine(name, longestName))
		}
	}
	if len(header) == 1 && strings.ContainsAny(header[0], ",;\t") {
		return fmt.Errorf("one column, %s: want commas between the cells of .csv, tabs between those of .tsv",
			OneLine(header[0], longestName))
	}
	return nil
}

// jsonRow is a row of a table as a JSON object.
func jsonRow(header, cells []string) ([]byte, error) {
	if len(cells) != len(header) {
		return nil, fmt.Errorf("%d cells, and the header has %d: want as many (a separator in a text wants quotes)",
			len(cells), len(header))
	}
	fields := map[string]any{}
	for i, name := range header {
		if !utf8.ValidString(cells[i]) {
			return nil, errNotUTF8
		}
		if name != "" {
			fields[name] = cellValue(name, cells[i])
		}
	}
	return json.Marshal(fields)
}

// countedColumns have scores and labels.
var countedColumns = append(scoreColumns(), "label", "kto_tag")

// cellValue is what a cell says: in a column of scores or labels a number, a list, true, false or nothing; a
// conversation that is written as JSON; any other a text.
func cellValue(column, cell string) any {
	value := strings.TrimSpace(cell)
	counted := slices.Contains(countedColumns, column)
	if bit := strings.ToLower(value); counted && (bit == "true" || bit == "false" || bit == "") {
		value = cmp.Or(bit, "null")
	}
	if counted || writtenConversation.MatchString(value) {
		if read, err := Decode([]byte(value)); err == nil {
			return read
		}
	}
	return cell
}

// ReadCSV reads a table whose header has these columns, and hands on each row as cells by column.
func ReadCSV(fsys fs.FS, path string, columns []string, visit func(row map[string]string) error) error {
	s := NewStream(path, JSONRows(fsys, path), func(r Row, _ *Report) (row map[string]string, _ string, err error) {
		if err = Unmarshal(r.Text, &row); err != nil {
			return nil, "", err
		}
		for _, name := range columns {
			if _, has := row[name]; !has {
				return nil, "", fmt.Errorf("found columns %s: want %s", List(slices.Sorted(maps.Keys(row))),
					strings.Join(columns, " and "))
			}
		}
		return row, "", visit(row)
	})
	_, err := s.Each(func(map[string]string) error { return nil })
	return err
}
