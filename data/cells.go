package data

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
				more := false
				if object, bad := jsonRow(header, cells); bad != nil {
					more = yield(Row{Source: place}, fmt.Errorf("%s: %w", place, bad))
				} else {
					more = in.yieldRaw(yield, place, object)
				}
				if !more {
					return
				}
			}
			if bad, is := errors.AsType[*csv.ParseError](err); is {
				yield(Row{}, fmt.Errorf("%s:%d: a quote in the wrong place: want texts with quotes in quotes, and "+
					"theirs doubled", in.name, bad.StartLine))
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
	if bit := strings.ToLower(value); counted && (bit == "true" || bit == "false") {
		return bit == "true"
	}
	switch {
	case counted && value == "":
		return nil
	case (counted || writtenConversation.MatchString(value)) && json.Valid([]byte(value)):
		return json.RawMessage(value)
	}
	return cell
}
