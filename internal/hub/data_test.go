package hub

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/hub/hubtest"
	"github.com/posttrain/posttrain/internal/hubcache"
)

const declared = "---\nconfigs:\n- config_name: en\n  data_files:\n  - split: train\n    path: en/*.jsonl\n" +
	"  - split: test\n    path: en-test.jsonl\n- config_name: de\n  data_files: de.parquet\n---\n# Rows\n"

// rows is a data set of two configs.
func rows() hubtest.Repo {
	return hubtest.Repo{Commit: hubtest.Commit, Files: map[string]string{"README.md": declared,
		"en/1.jsonl": "{}\n", "en/2.jsonl": "{}\n{}\n", "en-test.jsonl": "[]", "picture.png": "x",
		"de.parquet": strings.Repeat("table ", 1000)}}
}

// fetchData pins rows without waiting between tries.
func fetchData(t *testing.T, name string) (pinned, said string, err error) {
	t.Helper()
	o := struct {
		Data string `hub:"data"`
	}{name}
	said, err = pinAll(t, &o)
	return o.Data, said, err
}

const pinnedRows = "org/rows@" + hubtest.Commit

// TestPinData: the files of a split are downloaded, no others, into the layout of huggingface_hub, and found from then
// on, by the commit without a question to the hub.
func TestPinData(t *testing.T) {
	s := hubtest.New(t, map[string]hubtest.Repo{"datasets/org/rows": rows()})
	name, said, err := fetchData(t, "org/rows:en:train")
	if err != nil || name != pinnedRows+":en:train" {
		t.Fatal(name, err)
	}
	if !strings.Contains(said, "org/rows: config en, split train, en/1.jsonl, en/2.jsonl\n") ||
		!strings.Contains(said, "MB of org/rows 1/1") {
		t.Errorf("%q", said)
	}
	const at = " /datasets/org/rows/resolve/" + hubtest.Commit
	want := []string{"GET /api/datasets/org/rows/revision/main", "HEAD" + at + "/README.md", "GET" + at + "/README.md",
		"HEAD" + at + "/en/1.jsonl", "HEAD" + at + "/en/2.jsonl", "GET" + at + "/en/1.jsonl",
		"GET" + at + "/en/2.jsonl"}
	if got := s.Requests(); !slices.Equal(got, want) {
		t.Errorf("requests\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	paths, is, err := hubcache.Files(name)
	if err != nil || !is || len(paths) != 2 || hubcache.Short(paths[1]) != "org/rows/en/2.jsonl" {
		t.Fatal(paths, err)
	}
	if text, err := os.ReadFile(paths[1]); err != nil || string(text) != "{}\n{}\n" {
		t.Errorf("%q %v", text, err)
	}
	if to, err := os.Readlink(paths[0]); err != nil || !strings.HasPrefix(filepath.ToSlash(to), "../../../blobs/") {
		t.Error(to, err)
	}
	for again, requests := range map[string]int{name: 0, "org/rows:en:train": 1} {
		if got, _, err := fetchData(t, again); err != nil || got != name || len(s.Requests()) != requests {
			t.Error(again, got, err)
		}
	}
	name, _, err = fetchData(t, "org/rows@main:de") // large files come from the other host, of a config with one split
	const large = "GET store/datasets/org/rows/resolve/" + hubtest.Commit + "/de.parquet"
	if err != nil || name != pinnedRows+":de:train" || !slices.Contains(s.Requests(), large) {
		t.Error(name, err)
	}
}

// TestDataOffline: what the cache has whole is found without the hub; a part of a split is not.
func TestDataOffline(t *testing.T) {
	s := hubtest.New(t, map[string]hubtest.Repo{"datasets/org/rows": rows()})
	s.Cut["en/2.jsonl"] = 0
	const broken = "en/2.jsonl: the connection breaks at 0 of 6 bytes: the same command continues"
	if _, _, err := fetchData(t, "org/rows:en:train"); err == nil || !strings.Contains(err.Error(), broken) {
		t.Fatal(err)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	for _, name := range []string{"org/rows:en:train", pinnedRows + ":en:train", "org/other"} {
		if got, _, err := fetchData(t, name); err == nil || !strings.Contains(err.Error(), "does not have all of it") {
			t.Error(name, got, err)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "")
	s.Cut = nil
	name, _, err := fetchData(t, "org/rows:en:train")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	s.Requests()
	if got, _, err := fetchData(t, "org/rows:en:train"); err != nil || got != name || len(s.Requests()) > 0 {
		t.Error(got, err)
	}
	if _, _, err := fetchData(t, "org/rows:en"); err == nil ||
		!strings.Contains(err.Error(), "downloaded: config en has several splits: want one of train, test") {
		t.Error(err)
	}
	t.Setenv("HF_HUB_OFFLINE", "")
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
	got, said, err := fetchData(t, "org/rows:en:train")
	if err != nil || got != name || !strings.Contains(said, "in the cache is used, which may be old") {
		t.Error(got, said, err)
	}
}

// TestDataFaults: every fault is one line that says what to do, and leaves no revision behind.
func TestDataFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(t *testing.T, s *hubtest.Server)
		want  string
	}{
		{"org/none", nil, "org/none: there is no file of this name, and SERVER has no such data set (404)"},
		{"org/rows@v2:en", nil, `the data set has no revision "v2" (404)`},
		{"org/rows", nil, "it has several configs: want one of en, de, such as org/name:en"},
		{"org/rows:en", nil, "config en has several splits: want one of train, test, such as org/name:en:train"},
		{"org/rows:en:dev", nil, `config en has no split "dev": want train, test`},
		{"org/rows:fr:train", nil, `it has no config "fr": want en, de`},
		{"org/rows:a:b:c", nil, "want org/name[@revision][:config][:split]"},
		{"org/gated", nil, "access is refused (403): accept the data set's terms at SERVER/datasets/org/gated"},
		{"org/private", nil, "SERVER wants a token (401): set HF_TOKEN"},
		{"org/csv", nil, "config default, split train: found train.txt: want .jsonl, .json, .parquet, .csv or .tsv files"},
		{"org/rows:en:train", func(_ *testing.T, s *hubtest.Server) { s.Damage["en/1.jsonl"] = "[]\n" },
			"en/1.jsonl: what came is not what the hub has: its SHA-1 begins with"},
		{"org/rows:de", func(_ *testing.T, s *hubtest.Server) {
			s.Damage["de.parquet"] = strings.Repeat("tables", 1000)
		},
			"de.parquet: what came is not what the hub has: its SHA-256 begins with"},
		{"org/rows:de", func(_ *testing.T, s *hubtest.Server) { s.Cut["de.parquet"] = 0 },
			"de.parquet: the connection breaks at 0 of 6000 bytes"},
		{"org/rows:de", func(t *testing.T, _ *hubtest.Server) { t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1") },
			"http://127.0.0.1:1 cannot be reached: "},
		{"org/rows:de", func(t *testing.T, _ *hubtest.Server) {
			path := filepath.Join(t.TempDir(), "file")
			os.WriteFile(path, nil, 0o666)
			t.Setenv("HF_HUB_CACHE", path)
		}, "cannot be written: not a directory (HF_HUB_CACHE names another folder"},
	} {
		gated, private, csv := rows(), rows(), rows()
		gated.Gated, private.Token, csv.Files = true, "secret", map[string]string{"train.txt": "a,b"}
		s := hubtest.New(t, map[string]hubtest.Repo{"datasets/org/rows": rows(), "datasets/org/gated": gated,
			"datasets/org/private": private, "datasets/org/csv": csv})
		if c.fault != nil {
			c.fault(t, s)
		}
		name, _, err := fetchData(t, c.name)
		want := strings.ReplaceAll(c.want, "SERVER", s.URL)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || name != c.name {
			t.Errorf("%s: %v\nwant %s", name, err, want)
		}
		if left, _ := filepath.Glob(filepath.Join(FromEnv().Cache, "datasets--*", "refs", "*")); len(left) > 0 {
			t.Errorf("a revision without its files: %s", left)
		}
	}
}

// TestPrivateData: the token of HF_TOKEN opens a private data set, and a broken download continues where it broke.
func TestPrivateData(t *testing.T) {
	private := rows()
	private.Token = "secret"
	s := hubtest.New(t, map[string]hubtest.Repo{"datasets/org/rows": private})
	t.Setenv("HF_TOKEN", "secret")
	s.Cut["de.parquet"] = 4000
	if _, _, err := fetchData(t, "org/rows:de"); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(s.Requests(), func(line string) bool { return strings.HasSuffix(line, "bytes=4000-") }) {
		t.Error("not continued")
	}
}

// TestLocalData: a file or folder of this machine wins over the hub's data set of its name.
func TestLocalData(t *testing.T) {
	s := hubtest.New(t, map[string]hubtest.Repo{"datasets/org/rows": rows()})
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("org/rows", 0o777); err != nil {
		t.Fatal(err)
	}
	name, said, err := fetchData(t, "org/rows")
	const note = "org/rows: the file or folder of this name is used; the hub is not asked\n"
	if err != nil || name != "org/rows" || said != note || len(s.Requests()) > 0 {
		t.Error(name, said, err)
	}
	if _, is, err := hubcache.Files("org/rows"); is || err != nil {
		t.Error(is, err)
	}
	for _, file := range []string{"a/b.jsonl", "a/b.parquet", "x.json"} {
		if name, _, err := fetchData(t, file); err != nil || name != file {
			t.Error(name, err)
		}
	}
}
