package hubcache

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	conf "github.com/posttrain/posttrain/internal/config"
)

// config is a part of a data set.
type config struct {
	name      string
	byDefault bool
	dir       string  // that its files are in, with a slash at the end; "": the data set's
	declared  []named // nil: the names of files say it
}

// named is a split with its patterns.
type named struct {
	name     string
	patterns []string
}

var configsForm = regexp.MustCompile(`(?m)^configs:[^\n]*\n(?:(?:[ \t#-][^\n]*)?\n)*`)

// declaredConfigs are the configs in the front matter of a README.md, else a config default of all files.
func declaredConfigs(readme []byte) (all []config, err error) {
	text := frontMatter(readme)
	block := configsForm.Find(append(text, '\n'))
	if block == nil {
		return []config{{name: "default", byDefault: true}}, nil
	}
	top, err := conf.Document("README.md, configs", block)
	if err != nil {
		return nil, err
	}
	entries, err := top.Entries()
	if err != nil {
		return nil, err
	}
	items, err := entries[0].Items()
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		c, err := configOf(item)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// frontMatter is the YAML between two lines --- that a file begins with.
func frontMatter(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	rest, is := bytes.CutPrefix(text, []byte("---\n"))
	if !is {
		return nil
	}
	front, _, is := bytes.Cut(append([]byte("\n"), rest...), []byte("\n---"))
	if !is {
		return nil
	}
	return bytes.Clone(front)
}

// configOf reads an entry of configs.
func configOf(n conf.Node) (c config, err error) {
	entries, err := n.Entries()
	c.name = "default"
	for _, e := range entries {
		if err != nil {
			return c, err
		}
		switch e.Key {
		case "config_name":
			c.name, err = e.Text()
		case "default":
			c.byDefault, err = e.Bool()
		case "data_dir":
			if c.dir, err = e.Text(); err == nil {
				c.dir = strings.TrimPrefix(path.Clean(c.dir)+"/", "./")
			}
		case "data_files":
			c.declared, err = splitsOf(e.Node)
		}
	}
	c.byDefault = c.byDefault || c.name == "default"
	return c, err
}

// splitsOf reads data_files: a pattern or several, which are the split train, or {split, path} each.
func splitsOf(n conf.Node) (all []named, err error) {
	items, one := n.Items()
	if one != nil {
		text, err := n.Text()
		return []named{{"train", []string{text}}}, err
	}
	for _, item := range items {
		s := named{name: "train"}
		if entries, err := item.Entries(); err == nil {
			err = s.read(entries)
			if err != nil {
				return nil, err
			}
		} else if s.patterns, err = texts(item); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(all, func(o named) bool { return o.name == s.name }); i >= 0 {
			all[i].patterns = append(all[i].patterns, s.patterns...)
		} else {
			all = append(all, s)
		}
	}
	return all, nil
}

func (s *named) read(entries []conf.Entry) (err error) {
	for _, e := range entries {
		switch e.Key {
		case "split":
			s.name, err = e.Text()
		case "path":
			s.patterns, err = texts(e.Node)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// texts reads a text, or a list of them.
func texts(n conf.Node) ([]string, error) {
	if text, err := n.Text(); err == nil {
		return []string{text}, nil
	}
	return n.Texts()
}

// splits are the config's splits that have files, by its own patterns or by the names of files.
func (c config) splits(ctx context.Context, files []string) (all []split, err error) {
	var own []string
	for _, f := range files {
		if rest, is := strings.CutPrefix(f, c.dir); is {
			own = append(own, rest)
		}
	}
	if c.declared == nil {
		all, err = splitsByName(ctx, own)
	}
	for _, s := range c.declared {
		found, err := match(ctx, own, s.patterns, mostWork)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("no file matches %.200s", List(s.patterns))
		}
		if err != nil {
			return nil, fmt.Errorf("README.md: config %s, split %s: %w", c.name, s.name, err)
		}
		all = append(all, split{s.name, found})
	}
	for _, s := range all {
		for i := range s.files {
			s.files[i] = c.dir + s.files[i]
		}
	}
	return all, err
}

// Patterns of names, as the library datasets has them (data_files.py).
var (
	shardForm   = regexp.MustCompile(`^data/(.+)-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*$`)
	splitForm   = regexp.MustCompile(`^\w+(\.\w+)*$`)
	splitsOrder = []string{"train", "validation", "test"}
	keywords    = map[string][]string{"train": {"train", "training"},
		"validation": {"validation", "valid", "dev", "val"}, "test": {"test", "testing", "eval", "evaluation"}}
	folderPatterns = []string{"**/KEYWORD/**", "**/KEYWORD[SEP]*/**", "**/*[SEP]KEYWORD/**",
		"**/*[SEP]KEYWORD[SEP]*/**"}
	filePatterns = []string{"**/KEYWORD[SEP]*", "**/*[SEP]KEYWORD[SEP]*"}
)

const separators = "-._ 0-9"

// splitsByName finds splits in the names of files: data/SPLIT-00000-of-00001.parquet, else a keyword as the name of a
// folder, else of a file; otherwise all files are the split train.
func splitsByName(ctx context.Context, files []string) ([]split, error) {
	if all := shardedSplits(files); all != nil {
		return all, nil
	}
	for _, patterns := range [][]string{folderPatterns, filePatterns} {
		var all []split
		for _, name := range splitsOrder {
			found, err := match(ctx, files, fill(patterns, keywords[name]), math.MaxInt)
			if err != nil {
				return nil, err
			}
			if found != nil {
				all = append(all, split{name, found})
			}
		}
		if all != nil {
			return all, nil
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	return []split{{"train", slices.Clone(files)}}, nil
}

// fill writes keywords into patterns.
func fill(patterns, words []string) (all []string) {
	for _, word := range words {
		for _, p := range patterns {
			all = append(all, strings.NewReplacer("KEYWORD", word, "SEP", separators).Replace(p))
		}
	}
	return all
}

// shardedSplits are the splits of names such as data/SPLIT-00000-of-00001.parquet, the usual ones first.
func shardedSplits(files []string) (all []split) {
	for _, f := range files {
		m := shardForm.FindStringSubmatch(f)
		if m == nil || !splitForm.MatchString(m[1]) {
			continue
		}
		i := slices.IndexFunc(all, func(s split) bool { return s.name == m[1] })
		if i < 0 {
			i, all = len(all), append(all, split{name: m[1]})
		}
		all[i].files = append(all[i].files, f)
	}
	rank := func(s split) int {
		if i := slices.Index(splitsOrder, s.name); i >= 0 {
			return i
		}
		return len(splitsOrder)
	}
	slices.SortStableFunc(all, func(a, b split) int { return rank(a) - rank(b) })
	return all
}
