package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The columns of the formats in docs/data.md whose texts belong to a record. A row that has such a text and loses it is
// refused.
var (
	partColumns = slices.Concat(questionColumns, contextColumns, conversationColumns, systemColumns,
		[]string{"prompt", "text", "history", "rejected_response", "rejected_messages", "choices", "article",
			"reflection", "corrected", "critiques", "revision"})
	mediaColumns = []string{"images", "image", "videos", "video", "audios", "audio"}
)

// knownColumns are what readers take of a row in TRL's columns, beside a prompt, a conversation or a text.
var knownColumns = append(scoreColumns(), "tools")

func scoreColumns() (all []string) {
	for _, p := range slices.Concat(KnownScoreColumns, KnownAnswerColumns) {
		all = append(all, p[:]...)
	}
	return all
}

// unused refuses columns whose texts belong to a record but are not in its parts, and counts the columns that no
// reader knows. read are the names of columns that the record is from.
func unused(r Row, report *Report, read []string, parts ...Text) error {
	var all []string
	for _, p := range parts {
		for _, m := range p.Messages {
			all = append(all, m.Content, m.Whole)
		}
		all = append(all, p.Plain)
	}
	words := strings.Join(all, "\n")
	for _, name := range slices.Sorted(maps.Keys(r.Fields)) {
		value := r.Fields[name]
		switch {
		case !filled(value) || slices.Contains(read, name):
		case slices.Contains(mediaColumns, name):
			return fmt.Errorf("the column %s is not read: models of texts alone are trained", name)
		case name == "chat_template_kwargs":
			return fmt.Errorf("the column %s is not read: want the same variables for all rows, in chat.variables", name)
		case slices.Contains(partColumns, name):
			if lost := lostText(value, words); lost != "" && !(name == "text" && hasAll(value, all)) {
				read = slices.DeleteFunc(read, func(column string) bool { return !r.Has(column) })
				return fmt.Errorf("the column %s has %q, which the record lacks: want it in the columns that are read "+
					"(%s), or the column left out", name, OneLine(lost, 40), List(read))
			}
		case !slices.Contains(knownColumns, name):
			report.noteUnread(name, r.Source)
		}
	}
	return nil
}

// lostText is the first text of a value that does not occur in others.
func lostText(value any, words string) string {
	for _, text := range textsOf(value) {
		if !strings.Contains(words, strings.TrimSpace(text)) {
			return text
		}
	}
	return ""
}

// hasAll says that a text has these within it, as the rendered form of a conversation has.
func hasAll(value any, parts []string) bool {
	text, _ := value.(string)
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, strings.TrimSpace(p)) })
}

// textsOf are the texts in a value, but for the roles of messages.
func textsOf(value any) (all []string) {
	switch value := value.(type) {
	case string:
		return []string{value}
	case []any:
		for _, item := range value {
			all = append(all, textsOf(item)...)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if key != "type" && key != wholeKey && !slices.Contains(roleKeys, key) {
				all = append(all, textsOf(value[key])...)
			}
		}
	}
	return all
}
