package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// renamable are the columns that a file may have by other names.
var renamable = slices.Concat([]string{"prompt", "completion", "chosen", "rejected", "messages", "text", "label",
	"chosen_score", "rejected_score", "tools", "history", "input"}, systemColumns, questionColumns, answerColumns)

// CheckColumns names what is wrong with names of columns, each such as prompt=question.
func CheckColumns(columns []string) (faults fault.Faults) {
	for _, c := range columns {
		read, name, _ := strings.Cut(c, "=")
		if read == "" || name == "" {
			faults.Add("columns", c, "want names such as prompt=question: what is read, and the column of the file")
		} else if !slices.Contains(renamable, read) {
			faults.Add("columns", c, "%s is no column that is read%s: want %s", read, meant(read, renamable),
				fault.Or(renamable))
		}
	}
	return faults
}

// meant asks for the name that a misspelt one most likely means; "" if none is near.
func meant(name string, names []string) string {
	if near := config.Nearest(name, names); near != "" {
		return " (did you mean " + near + "?)"
	}
	return ""
}

// rename gives columns the names that are read. With all, each of them must be there.
func (r *Row) rename(columns []string, all bool) error {
	given := maps.Clone(r.Fields)
	for _, c := range columns {
		_, name, _ := strings.Cut(c, "=")
		delete(r.Fields, name)
	}
	for _, c := range columns {
		read, name, _ := strings.Cut(c, "=")
		value, found := valueAt(given, name)
		if _, known := given[read]; all && !found && !known {
			return fmt.Errorf("there is no column %s%s: found columns %s", OneLine(name, longestName),
				meant(name, slices.Collect(maps.Keys(given))), List(Row{Fields: given}.Columns()))
		}
		if found {
			r.Fields[read] = counted(read, value)
		}
	}
	return nil
}

// rename gives columns the names that are read, as Row.rename does: the last of a name counts.
func (o Object) rename(columns []string) Object {
	all := slices.Clone(o)
	for _, c := range columns {
		read, name, _ := strings.Cut(c, "=")
		value := o.last(name)
		if column, field, _ := strings.Cut(name, "."); value == nil {
			inner, _ := o.last(column).(Object)
			value = inner.last(field)
		}
		if value != nil {
			all = append(all, Entry{read, value})
		}
	}
	return all
}

// valueAt finds a column, or a field of an object as column.field.
func valueAt(fields map[string]any, name string) (value any, found bool) {
	if value, found = fields[name]; found {
		return value, true
	}
	column, field, _ := strings.Cut(name, ".")
	object, _ := fields[column].(map[string]any)
	value, found = object[field]
	return value, found
}

// counted is a text of a table in a column of scores or labels as what it says.
func counted(column string, value any) any {
	if text, is := value.(string); is && slices.Contains(countedColumns, column) {
		return cellValue(column, text)
	}
	return value
}
