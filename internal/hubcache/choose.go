package hubcache

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Choice is a split of a data set, with the names of its files in the data set.
type Choice struct {
	Config, Split string
	Files         []string
}

// split is one of a config: the files that any of its patterns matches.
type split struct {
	name  string
	files []string
}

// Choose finds the files of one split among a data set's, as the library datasets does: by the configs that the front
// matter of README.md declares, else by the names of folders and files. parts are config and split, one of them, or
// nothing where there is no choice. It ends with ctx.
func Choose(ctx context.Context, files []string, readme []byte, parts []string) (Choice, error) {
	all, err := declaredConfigs(readme)
	if err != nil {
		return Choice{}, err
	}
	config, parts, err := pickConfig(all, parts)
	if err != nil {
		return Choice{}, err
	}
	splits, err := config.splits(ctx, visible(files))
	if err != nil {
		return Choice{}, err
	}
	one, err := pickSplit(config.name, splits, parts)
	if err != nil {
		return Choice{}, err
	}
	rows, err := rowFiles(one.files)
	if err == nil {
		err = CheckNames(rows)
	}
	if err != nil {
		err = fmt.Errorf("config %s, split %s: %w", config.name, one.name, err)
	}
	return Choice{config.name, one.name, rows}, err
}

// pickConfig takes the first part where it names a config, else the default one, and leaves the other parts.
func pickConfig(all []config, parts []string) (config, []string, error) {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
	}
	if len(parts) > 0 {
		if i := slices.Index(names, parts[0]); i >= 0 {
			return all[i], parts[1:], nil
		}
	}
	if len(parts) > 1 {
		return config{}, nil, fmt.Errorf("it has no config %q: want %s", parts[0], List(names))
	}
	if i := slices.IndexFunc(all, func(c config) bool { return c.byDefault || len(all) == 1 }); i >= 0 {
		return all[i], parts, nil
	}
	if len(parts) > 0 {
		return config{}, nil, fmt.Errorf("it has no config %q, and a split needs one: want %s", parts[0], List(names))
	}
	return config{}, nil, fmt.Errorf("it has several configs: want one of %s, such as org/name:%s", List(names),
		names[0])
}

// pickSplit takes the split that is named, or the only one.
func pickSplit(config string, all []split, parts []string) (split, error) {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.name
	}
	switch {
	case len(all) == 0:
		return split{}, fmt.Errorf("config %s has no files: want %s", config, accepted)
	case len(parts) == 0 && len(all) == 1:
		return all[0], nil
	case len(parts) == 0:
		return split{}, fmt.Errorf("config %s has several splits: want one of %s, such as org/name:%s:%s", config,
			List(names), config, names[0])
	}
	i := slices.Index(names, parts[0])
	if i < 0 {
		return split{}, fmt.Errorf("config %s has no split %q: want %s", config, parts[0], List(names))
	}
	return all[i], nil
}

// List joins names, of many the first.
func List(names []string) string {
	const most = 12
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

const accepted = ".jsonl, .json, .parquet, .csv or .tsv files, each also with .gz"

// forms are the extensions that can be read, the first wins where files of several are equally many.
var forms = []string{".parquet", ".jsonl", ".json", ".csv", ".tsv"}

// rowFiles leaves the files that can be read, of the most frequent form where there are several. A data set often has
// its rows in more than one.
func rowFiles(files []string) (rows []string, err error) {
	count := map[string]int{}
	for _, f := range files {
		count[formOf(f)]++
	}
	best := forms[0]
	for _, form := range forms {
		if count[form] > count[best] {
			best = form
		}
	}
	for _, f := range files {
		if form := formOf(f); form == best || strings.HasPrefix(best, ".json") && strings.HasPrefix(form, ".json") {
			rows = append(rows, f)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("found %s: want %s", List(files), accepted)
	}
	return rows, nil
}

// formOf is the extension of a file, without .gz.
func formOf(name string) string { return path.Ext(strings.TrimSuffix(strings.ToLower(name), ".gz")) }

// notRows are files that no pattern means.
var notRows = []string{"README.md", "config.json", "dataset_info.json", "dataset_infos.json", "dummy_data.zip",
	"dataset_dict.json"}

// visible leaves out the files about a data set, and what is in hidden or private folders.
func visible(files []string) (out []string) {
	for _, name := range files {
		parts := strings.Split(name, "/")
		hidden := slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(p, ".") }) ||
			slices.ContainsFunc(parts[:len(parts)-1], func(p string) bool { return strings.HasPrefix(p, "__") })
		if !hidden && !slices.Contains(notRows, path.Base(name)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Bounds of what the author of a data set writes: the bytes of a pattern, and the bytes of patterns times the bytes of
// names that they are compared with, which take half a minute at worst.
const (
	mostPattern = 512
	mostWork    = 1 << 31
)

var errWork = errors.New("matching its patterns with the names of all files takes too long: want fewer or shorter patterns")

// match leaves the files that any of some patterns matches, each once, in the order of the patterns and names. Patterns
// and names times each other have at most that many bytes.
func match(ctx context.Context, files, patterns []string, most int) (out []string, err error) {
	seen, work := map[string]bool{}, 0
	for _, pattern := range patterns {
		if len(pattern) > mostPattern {
			return nil, fmt.Errorf("a pattern has %d bytes, want at most %d", len(pattern), mostPattern)
		}
		form, begin := translate(pattern), beginning(pattern)
		for _, name := range files {
			if seen[name] || !strings.HasPrefix(name, begin) {
				continue
			}
			if work += len(pattern) * len(name); work > most {
				return nil, errWork
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if form.MatchString(name) {
				seen[name], out = true, append(out, name)
			}
		}
	}
	return out, nil
}

// beginning is what a pattern has ahead of its first special character.
func beginning(pattern string) string {
	pattern = strings.TrimPrefix(pattern, "./")
	if i := strings.IndexAny(pattern, "*?["); i >= 0 {
		return pattern[:i]
	}
	return pattern
}

// translate makes a regular expression of a pattern: * and ? within a folder's name, ** for any folders, [abc].
func translate(pattern string) *regexp.Regexp {
	var s strings.Builder
	parts := strings.Split(strings.TrimPrefix(pattern, "./"), "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "**" && last:
			s.WriteString(".+")
		case part == "**" && i > 0 && parts[i-1] == part: // **/**/ is **/
		case part == "**":
			s.WriteString("(?:[^/]+/)*")
		default:
			s.WriteString(translatePart(part))
			if !last {
				s.WriteString("/")
			}
		}
	}
	form, err := regexp.Compile("^" + s.String() + "$")
	if err != nil { // an odd class, such as [z-a]: it means itself
		form = regexp.MustCompile("^" + regexp.QuoteMeta(pattern) + "$")
	}
	return form
}

var classForm = regexp.MustCompile(`^\[!?\]?[^\]/]*\]`)

func translatePart(part string) string {
	var s strings.Builder
	for part != "" {
		class := classForm.FindString(part)
		switch {
		case class != "":
			inner := strings.ReplaceAll(class[1:len(class)-1], `\`, `\\`)
			inner = strings.ReplaceAll(inner, "[", `\[`)
			if rest, not := strings.CutPrefix(inner, "!"); not {
				inner = "^/" + rest
			} else if strings.HasPrefix(inner, "^") {
				inner = `\` + inner
			}
			s.WriteString("[" + inner + "]")
			part = part[len(class):]
			continue
		case part[0] == '*':
			s.WriteString("[^/]*")
		case part[0] == '?':
			s.WriteString("[^/]")
		default:
			s.WriteString(regexp.QuoteMeta(part[:1]))
		}
		part = part[1:]
	}
	return s.String()
}
