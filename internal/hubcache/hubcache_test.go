package hubcache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestChoose: configs, splits and files are those that Hugging Face's datasets finds (scripts/oracle/dataset_files.py).
func TestChoose(t *testing.T) {
	var fixture struct {
		Cases []struct {
			Name, Readme, Default string
			Files                 []string
			Configs               map[string]map[string][]string
		}
	}
	expect.Decode(t, "testdata/choices.json", &fixture)
	if len(fixture.Cases) < 20 {
		t.Fatalf("%d cases", len(fixture.Cases))
	}
	for _, c := range fixture.Cases {
		for config, splits := range c.Configs {
			for split, want := range splits {
				got, err := Choose(t.Context(), c.Files, []byte(c.Readme), []string{config, split})
				slices.Sort(want)
				slices.Sort(got.Files)
				if err != nil || got.Config != config || got.Split != split || !slices.Equal(got.Files, want) {
					t.Errorf("%s: %s, %s: %+v, %v, want %s", c.Name, config, split, got, err, want)
				}
			}
			none, err := Choose(t.Context(), c.Files, []byte(c.Readme), []string{config, "none"})
			for _, split := range slices.Sorted(maps.Keys(splits)) {
				if err == nil || !strings.Contains(err.Error(), split) {
					t.Errorf("%s: %+v, %v, want the split %s", c.Name, none, err, split)
				}
			}
		}
		splits := slices.Sorted(maps.Keys(c.Configs[c.Default]))
		if c.Default == "" {
			continue
		}
		if got, err := Choose(t.Context(), c.Files, []byte(c.Readme), splits[:1]); err != nil || got.Config != c.Default {
			t.Errorf("%s: %+v, %v, want config %s", c.Name, got, err, c.Default)
		}
	}
}

// TestChoiceFaults: what cannot be chosen is one line with what there is.
func TestChoiceFaults(t *testing.T) {
	front := func(text string) string { return "---\n" + text + "\n---\n" }
	two := front("configs:\n- config_name: a\n  data_files: a.jsonl\n- config_name: b\n  data_files: b.jsonl")
	for _, c := range []struct {
		files  string
		readme string
		parts  []string
		want   string
	}{
		{"a.jsonl b.jsonl", two, nil, "it has several configs: want one of a, b, such as org/name:a"},
		{"a.jsonl b.jsonl", strings.Replace(two, "- config_name: b", "# b\n- config_name: b", 1), nil,
			"it has several configs: want one of a, b, such as org/name:a"},
		{"a.jsonl b.jsonl", two, []string{"train"}, `it has no config "train", and a split needs one: want a, b`},
		{"a.jsonl b.jsonl", two, []string{"c", "train"}, `it has no config "c": want a, b`},
		{"a.jsonl b.jsonl", two, []string{"a", "test"}, `config a has no split "test": want train`},
		{"a.jsonl", two, []string{"b"}, "README.md: config b, split train: no file matches b.jsonl"},
		{"train.jsonl test.jsonl", "", nil, "several splits: want one of train, test, such as org/name:default:train"},
		{"train.txt", "", nil, "config default, split train: found train.txt: want .jsonl, .json, .parquet, .csv or .tsv files"},
		{"name.py", "", nil, "found name.py: want .jsonl, .json, .parquet, .csv or .tsv files"},
		{"data/train.jsonl.zst", "", nil, "found data/train.jsonl.zst: want .jsonl, .json, .parquet, .csv or .tsv files"},
		{"../train.jsonl a/../../b.jsonl", "", nil, "config default has no files"},
		{"/train.jsonl", "", nil, `split train: it has a file "/train.jsonl": want names that lead out of no folder`},
		{`data/train\..\..\b.jsonl`, "", nil, `has a file "data/train\\..\\..\\b.jsonl"`},
		{"a.jsonl", front("configs:\n- data_files: '" + strings.Repeat("**/", 60_000) + "x'"), nil,
			"README.md: config default, split train: a pattern has 180001 bytes, want at most 512"},
		{"README.md", "", nil, "config default has no files: want .jsonl"},
		{"a.jsonl", front("configs: 3"), nil, "README.md, configs:1: configs 3: want a list that is not empty"},
		{"a.jsonl", front("configs:\n- 3"), nil, "README.md, configs:2: configs 3: want keys and values"},
		{"a.jsonl", front("configs:\n- data_files: {a: b}"), nil, "README.md, configs:2: data_files"},
		{"a.jsonl", front("configs:\n- default: 3"), nil, "default 3: want true or false"},
		{"a.jsonl", front("configs: [" + strings.Repeat("[", 100)), nil, "nests more than 64 deep"},
	} {
		got, err := Choose(t.Context(), strings.Fields(c.files), []byte(c.readme), c.parts)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %s: %+v, %v\nwant %s", c.files, c.parts, got, err, c.want)
		}
	}
}

// TestManyFolders: any number of **/ is one in a pattern, and much work is refused.
func TestManyFolders(t *testing.T) {
	files := []string{strings.Repeat("a/", 200) + "b.jsonl", "b.jsonl", "c.jsonl"}
	got, err := match(t.Context(), files, []string{strings.Repeat("**/", 160) + "b.*"}, mostWork)
	if err != nil || !slices.Equal(got, files[:2]) {
		t.Error(got, err)
	}
	if _, err := match(t.Context(), files, []string{"*a*a", "./c.*"}, 4*(400+14)); !errors.Is(err, errWork) {
		t.Error("too much work is done:", err)
	}
	if _, err := match(t.Context(), files, []string{"*a*a", "./c.*"}, 4*(407+7+7)+5*7); err != nil { // c.* meets one name
		t.Error(err)
	}
	if len(translate(strings.Repeat("**/", 160)+"b").String()) > 20 {
		t.Error("**/ stays many times")
	}
}

// TestChoiceIsEnded: with its context it ends, with any patterns.
func TestChoiceIsEnded(t *testing.T) {
	ended, stop := context.WithCancelCause(t.Context())
	why := errors.New("the user has ended it")
	stop(why)
	for _, readme := range []string{"", "---\nconfigs:\n- data_files: '*'\n---\n"} {
		if _, err := Choose(ended, []string{"train.jsonl"}, []byte(readme), nil); !errors.Is(err, why) {
			t.Errorf("%q: %v", readme, err)
		}
	}
}

// TestCheckNames: names that lead out of their folder on any system, or are no file there, are refused.
func TestCheckNames(t *testing.T) {
	for _, name := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "a/../b", "./a", "a/.. /b", "a/...",
		`a\b`, `..\a`, "C:a", "c:/a", "NUL", "a/nul.jsonl", "aux", "com1.parquet", "LPT¹", "CONIN$", "con :x", "a\x00b"} {
		if CheckNames([]string{"a", name}) == nil {
			t.Errorf("%q is taken", name)
		}
	}
	good := []string{"a", ".a", "..a", "a/b.jsonl", "10:30.jsonl", "nullable.csv", "auxiliary/a", "com/b", "comx", "ü/名.parquet"}
	if err := CheckNames(good); err != nil && filepath.Separator == '/' { // Windows has no colons in names
		t.Error(err)
	}
}

// TestParseData: what names rows of a data set and what a file.
func TestParseData(t *testing.T) {
	parse(t, ParseData, map[string]string{
		"a/b": "a/b@main", "a/b:c": "a/b@main:c", "a/b@v1:c:d": "a/b@v1:c:d",
		"a/b@refs/pr/1:c d:e": "a/b@refs/pr/1:c d:e",
		"data/train.jsonl":    "", "data/train.parquet": "", "a/b.csv": "", "a/b.JSONL": "", "a/b.jsonl.gz": "",
		"train": "", "./a/b": "", "a/b/c": "", "C:/a": "", "train-*.parquet": "", "a/v1.0:x": "a/v1.0@main:x",
		"a/b:": "error", "a/b::c": "error", "a/b:c:d:e": "error", "a/b:c/d": "error", "a/b@../x:c": "error",
	})
}

// TestParse: what is an id and what is not.
func TestParse(t *testing.T) {
	parse(t, Parse, map[string]string{
		"Qwen/Qwen2.5-0.5B": "Qwen/Qwen2.5-0.5B@main", "a/b@v1": "a/b@v1", "a/b@refs/pr/1": "a/b@refs/pr/1",
		"gpt2": "", "a/b/c": "", "./a/b": "", "../b": "", "a/..": "", "/a/b": "", "a/b..c": "", "a--b/c": "",
		"a/b c":    "",
		"embedded": "", "": "", "a/b@": "error", "a/b@../c": "error", "a/b@c/../d": "error", "a/b@/c": "error",
	})
}

// parse checks what read makes of each text: an id, "" if the text is no id, or "error" if read fails.
func parse[ID fmt.Stringer](t *testing.T, read func(text string) (ID, bool, error), wants map[string]string) {
	t.Helper()
	for text, want := range wants {
		id, ok, err := read(text)
		got := ""
		if err != nil {
			got = "error"
		} else if ok {
			got = id.String()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestForeignCache: a cache that another client filled is read without our list of files. A shard that is missing is
// named.
func TestForeignCache(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	const commit = "0123456789abcdef0123456789abcdef01234567"
	folder := Folder(cache, DataKind, "org/name")
	put := func(name, text string) { expect.Write(t, filepath.Join(folder, filepath.FromSlash(name)), text) }
	put("refs/main", commit)
	put("snapshots/"+commit+"/data/train-00000-of-00002.parquet", "")
	_, is, err := Files("org/name:train")
	if !is || err == nil || !strings.Contains(err.Error(), "does not have data/train-00001-of-00002.parquet") {
		t.Error(err)
	}
	put("snapshots/"+commit+"/data/train-00001-of-00002.parquet", "")
	paths, is, err := Files("org/name:train")
	if err != nil || !is || len(paths) != 2 || Short(paths[1]) != "org/name/data/train-00001-of-00002.parquet" {
		t.Error(paths, err)
	}
	if _, _, err := Files("org/other"); err == nil || !strings.Contains(err.Error(), "no such data set in the cache") {
		t.Error(err)
	}
	if paths, is, err := Files("some/file.jsonl"); paths != nil || is || err != nil {
		t.Error(paths, err)
	}
}

// FuzzChoose: no README.md and no names of files stop it, and it chooses among the files alone.
func FuzzChoose(f *testing.F) {
	f.Add("train.jsonl\ndata/test-00000-of-00001.parquet", "---\nconfigs:\n- config_name: a\n  data_files: '*'\n---\n")
	f.Add("a/[x]/b.jsonl", "---\nconfigs:\n- data_files:\n  - split: t\n    path: ['[!a]**/[]', '[z-a]']\n---")
	f.Fuzz(func(t *testing.T, names, readme string) {
		files := strings.Split(names, "\n")
		c, err := Choose(t.Context(), files, []byte(readme), nil)
		if err != nil {
			return
		}
		for _, name := range c.Files {
			if !slices.Contains(files, name) {
				t.Errorf("%q is not in %q", name, files)
			}
		}
	})
}

// TestDefault: the first variable that is set, with ~ and $NAME as huggingface_hub reads them.
func TestDefault(t *testing.T) {
	for _, c := range []struct{ cache, older, home, want string }{
		{"/a", "/b", "/c", "/a"}, {"", "/b", "/c", "/b"}, {"", "", "/c", "/c/hub"}, {"", "", "~/c", "/me/c/hub"},
		{"~", "", "", "/me"}, {"$SCRATCH/hub", "", "", "/scratch/hub"}, {"~other/hub", "", "", "~other/hub"},
		{"$UNSET_FOLDER/hub", "", "", "$UNSET_FOLDER/hub"},
	} {
		for name, value := range map[string]string{"HF_HUB_CACHE": c.cache, "HUGGINGFACE_HUB_CACHE": c.older,
			"HF_HOME": c.home, "HOME": "/me", "SCRATCH": "/scratch"} {
			t.Setenv(name, value)
		}
		if got := Default(); got != filepath.FromSlash(c.want) {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
