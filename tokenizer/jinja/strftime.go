package jinja

import (
	"fmt"
	"strings"
	"time"
)

// layouts has Go's layout for the codes of strftime that it covers.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'd': "02", 'D': "01/02/06", 'e': "_2", 'F': "2006-01-02", 'H': "15",
	'I': "03", 'm': "01", 'M': "04", 'p': "PM", 'R': "15:04", 'S': "05", 'T': "15:04:05", 'y': "06", 'Y': "2006",
	'c': "Mon Jan _2 15:04:05 2006", 'h': "Jan", 'x': "01/02/06", 'X': "15:04:05", 'j': "002",
}

// strftime formats t as Python's strftime does in the C locale; of an unknown code nothing is changed.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := format[i] == '-' && i+1 < len(format)
		if bare {
			i++
		}
		out := strftimeCode(t, format[i])
		if bare {
			out = strings.TrimLeft(out, "0 ")
		}
		b.WriteString(out)
	}
	return b.String()
}

func strftimeCode(t time.Time, code byte) string {
	switch layout := layouts[code]; {
	case layout != "":
		return t.Format(layout)
	case code == '%':
		return "%"
	case code == 'n':
		return "\n"
	case code == 't':
		return "\t"
	case code == 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case code == 'w':
		return fmt.Sprint(int(t.Weekday()))
	case code == 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1)
	case code == 'z' || code == 'Z':
		return "" // datetime.now() knows no zone
	}
	return "%" + string(code)
}
