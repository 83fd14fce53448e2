package hub

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/hub/hubtest"
	"github.com/posttrain/posttrain/internal/hubcache"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// tiny has all that a model needs, and what it does not.
func tiny() hubtest.Repo {
	return hubtest.Repo{Commit: hubtest.Commit, Files: map[string]string{
		"config.json": "{}", "tokenizer.json": "{} ", "README.md": "a model", "onnx/model.onnx": "x",
		"pytorch_model.bin": "pickles", "model.safetensors": strings.Repeat("weights ", 1000),
	}}
}

// options are a command's.
type options struct {
	Model string `yaml:"model" hub:"model"`
	Other struct {
		Tokenizer string `hub:"tokenizer"`
	}
	_ string // not exported: reflection cannot read it
}

// heard is a Reporter's text.
func heard() (*strings.Builder, run.Reporter) {
	said := &strings.Builder{}
	return said, run.NewReporter(said, false, false)
}

// fetch pins a model without waiting between tries.
func fetch(t *testing.T, name string) (pinned, said string, err error) {
	t.Helper()
	o := options{Model: name}
	said, err = pinAll(t, &o)
	return o.Model, said, err
}

// pinAll pins options without waiting between tries.
func pinAll(t *testing.T, options any) (said string, err error) {
	t.Helper()
	h := FromEnv()
	h.client.RetryWaitMin, h.client.RetryWaitMax, h.stall = time.Microsecond, time.Microsecond, 10*time.Second
	text, out := heard()
	err = h.Pin(t.Context(), options, AllUses, out)
	return text.String(), err
}

const pinnedTiny = "org/tiny@" + hubtest.Commit

// TestPin: a model is downloaded into the layout of huggingface_hub, and from then on found in it.
func TestPin(t *testing.T) {
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny()})
	t.Setenv("HF_TOKEN", "secret")
	name, said, err := fetch(t, "org/tiny")
	if err != nil || name != pinnedTiny {
		t.Fatal(name, err)
	}
	if !strings.Contains(said, "org/tiny: commit 0123456789ab from "+s.URL) ||
		!strings.Contains(said, "MB of org/tiny 1/1") {
		t.Errorf("%q", said)
	}
	const at = " /org/tiny/resolve/" + hubtest.Commit
	want := []string{"GET /api/models/org/tiny/revision/main token", "HEAD" + at + "/config.json token",
		"HEAD" + at + "/tokenizer.json token", "HEAD" + at + "/model.safetensors token",
		"GET" + at + "/config.json token", "GET" + at + "/tokenizer.json token",
		"GET" + at + "/model.safetensors token", "GET store" + at[1:] + "/model.safetensors"}
	if got := s.Requests(); !slices.Equal(got, want) {
		t.Errorf("requests\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	checkTree(t)
	for _, again := range []string{"org/tiny", pinnedTiny} {
		name, said, err = fetch(t, again)
		if err != nil || name != pinnedTiny || !strings.Contains(said, "in the cache") {
			t.Error(again, name, said, err)
		}
	}
	if got := s.Requests(); !slices.Equal(got, want[:1]) { // the commit is asked for once, by the branch
		t.Error(got)
	}
	folder, err := Folder(name)
	if text, _ := os.ReadFile(filepath.Join(folder, "model.safetensors")); err != nil ||
		string(text) != tiny().Files["model.safetensors"] {
		t.Error(folder, err)
	}
}

// checkTree compares the cache with what huggingface_hub leaves after the same files (TestHuggingFaceHub).
func checkTree(t *testing.T) {
	var found []string
	cache := FromEnv().Cache
	err := filepath.WalkDir(cache, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(cache, path)
		if to, err := os.Readlink(path); err == nil {
			name += " -> " + to
		}
		if !d.IsDir() && !strings.HasPrefix(name, ".locks") && !strings.Contains(name, ".no_exist") &&
			name != "CACHEDIR.TAG" {
			found = append(found, name)
		}
		return err
	})
	const repo, snapshot = "models--org--tiny/", "models--org--tiny/snapshots/" + hubtest.Commit + "/"
	// printf 'blob 3\0{} ' | sha1sum; the weights by sha256sum
	blobs := []string{"1868abf8cffe8652006e6a8eeff920c4e8a900f6",
		"89e13a94981ddc68d5fc6c558b2f7aa697a9fcdddecf01c864564a84100c968b", "9e26dfeeb6e641a33dae4961196235bdb965b21b"}
	want := []string{repo + "blobs/" + blobs[0], repo + "blobs/" + blobs[1], repo + "blobs/" + blobs[2],
		repo + "refs/main",
		snapshot + "config.json -> ../../blobs/" + blobs[2], snapshot + "model.safetensors -> ../../blobs/" + blobs[1],
		snapshot + "tokenizer.json -> ../../blobs/" + blobs[0]}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("%v\n%s\nwant\n%s", err, strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
	if text, _ := os.ReadFile(filepath.Join(cache, repo, "refs/main")); string(text) != hubtest.Commit {
		t.Errorf("refs/main: %q", text)
	}
}

// TestNamesLeadOutOfNoFolder: names of files that leave the cache on any system are refused ahead of any download, for
// models and data sets.
func TestNamesLeadOutOfNoFolder(t *testing.T) {
	model, data := tiny(), rows()
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": model, "datasets/org/rows": data})
	for _, name := range []string{"..", ".", `..\..\..\evil.txt`, "nul.jinja"} {
		row := "en/x" + name + `\x.jsonl`
		model.Files["additional_chat_templates/"+name], data.Files[row] = "x", "{}"
		_, _, err := fetch(t, "org/tiny")
		expect.Error(t, err, "it has a file \"additional_chat_templates/")
		if _, _, err := fetchData(t, "org/rows:en:train"); err == nil || !strings.Contains(err.Error(), `it has a file "en/`) {
			t.Error(name, err)
		}
		delete(model.Files, "additional_chat_templates/"+name)
		delete(data.Files, row)
	}
	for _, line := range s.Requests() {
		if strings.Contains(line, "/resolve/") && !strings.HasSuffix(line, "README.md") {
			t.Error(line)
		}
	}
	if name, _, err := fetch(t, "org/tiny"); err != nil || name != pinnedTiny { // nothing broken is left
		t.Error(name, err)
	}
}

// TestTokenizer: where only the tokenizer is used, the weights are not downloaded.
func TestTokenizer(t *testing.T) {
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny()})
	var o options
	o.Other.Tokenizer = "org/tiny"
	if err := FromEnv().Pin(t.Context(), &o, AllUses, nil); err != nil || o.Other.Tokenizer != pinnedTiny || o.Model != "" {
		t.Fatal(o, err)
	}
	for _, line := range s.Requests() {
		if strings.Contains(line, "safetensors") {
			t.Error(line)
		}
	}
	if !Used(o) || Used(struct{ A string }{}) {
		t.Error("Used")
	}
}

// TestPinList: each id of a list gets its commit, a file of this machine stays.
func TestPinList(t *testing.T) {
	hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny()})
	o := struct {
		Names []string `hub:"tokenizer"`
	}{[]string{"a.jsonl", "org/tiny"}}
	err := FromEnv().Pin(t.Context(), &o, AllUses, nil)
	if err != nil || !slices.Equal(o.Names, []string{"a.jsonl", pinnedTiny}) {
		t.Error(o, err)
	}
}

// TestFilesOfAUse: the shards of an index are taken whatever stands before their numbers, an adapter in another form is
// refused by name, and a pinned model without a tokenizer is completed.
func TestFilesOfAUse(t *testing.T) {
	sharded := []string{"config.json", indexFile, "model.safetensors-00001-of-00002.safetensors",
		"model.safetensors-00002-of-00002.safetensors", "optimizer.safetensors"}
	if got, err := wholeModel.of(sharded); err != nil || !slices.Equal(got, sharded[:4]) {
		t.Error(got, err)
	}
	small := []string{"config.json", "tokenizer.json", "tokenizer_config.json", weightsFile}
	if got, err := tokenizerOnly.of(small); err != nil || !slices.Equal(got, append(slices.Clone(small[1:3]), small[0])) {
		t.Errorf("%v, %v: want config.json last, which says that all is there", got, err)
	}
	adapter := []string{"chat_template.jinja", "tokenizer.json", "adapter_config.json", "adapter_model.safetensors"}
	if got, err := adapterOnly.of(adapter); err != nil || !slices.Equal(got, slices.Delete(adapter, 1, 2)) {
		t.Errorf("%v, %v: want an adapter with its chat template", got, err)
	}
	const want = "no adapter_model.safetensors: want weights in this form, found adapter_model.bin"
	if _, err := adapterOnly.of([]string{"adapter_config.json", "adapter_model.bin"}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny()})
	if _, _, err := fetch(t, "org/tiny"); err != nil {
		t.Fatal(err)
	}
	dir, _ := Folder(pinnedTiny)
	if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := fetch(t, pinnedTiny); err != nil || !exists(filepath.Join(dir, "tokenizer.json")) {
		t.Error("the tokenizer is missing", err)
	}
}

// TestOffline: what the cache has is found, and nothing is asked.
func TestOffline(t *testing.T) {
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny()})
	t.Setenv("HF_HUB_OFFLINE", "yes")
	if _, _, err := fetch(t, "org/tiny"); err == nil || !strings.Contains(err.Error(), "does not have all of it") {
		t.Error(err)
	}
	t.Setenv("HF_HUB_OFFLINE", "0")
	if _, _, err := fetch(t, "org/tiny"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	s.Requests()
	if name, _, err := fetch(t, "org/tiny"); err != nil || name != pinnedTiny || len(s.Requests()) > 0 {
		t.Error(name, err)
	}
	// a server that is away or has forgotten the model, and a cache
	t.Setenv("HF_HUB_OFFLINE", "")
	for _, endpoint := range []string{"http://127.0.0.1:1", s.URL} {
		t.Setenv("HF_ENDPOINT", endpoint)
		s.Repos = nil
		name, said, err := fetch(t, "org/tiny")
		const warning = "warning: org/tiny: commit 0123456789ab in the cache"
		if err != nil || name != pinnedTiny || !strings.Contains(said, warning) {
			t.Error(name, said, err)
		}
	}
	// a shard that is missing makes a model incomplete
	dir, _ := Folder(pinnedTiny)
	for _, err := range []error{os.Remove(filepath.Join(dir, weightsFile)), os.WriteFile(filepath.Join(dir, indexFile),
		[]byte(`{"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}`), 0o666),
		os.WriteFile(filepath.Join(dir, "model-1-of-2.safetensors"), nil, 0o666)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	if _, _, err := fetch(t, pinnedTiny); err == nil || !strings.Contains(err.Error(), "does not have all of it") {
		t.Error(err)
	}
	expect.Write(t, filepath.Join(dir, "model-2-of-2.safetensors"), "")
	if name, _, err := fetch(t, pinnedTiny); err != nil || name != pinnedTiny {
		t.Error(name, err)
	}
}

// TestSnapshotInParts: a snapshot that another program left without small files is completed, also of a commit; the hub is
// asked once whether it has them. Where it is not, a warning names them.
func TestSnapshotInParts(t *testing.T) {
	whole := tiny()
	whole.Files["tokenizer_config.json"], whole.Files["generation_config.json"] = "{}  ", "{}   "
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": whole})
	if _, _, err := fetch(t, pinnedTiny); err != nil {
		t.Fatal(err)
	}
	dir, _ := Folder(pinnedTiny)
	absent := filepath.Join(FromEnv().Cache, "models--org--tiny", ".no_exist")
	ask := func(offline, endpoint, said string, asked, has bool) {
		t.Helper()
		t.Setenv("HF_HUB_OFFLINE", offline)
		t.Setenv("HF_ENDPOINT", endpoint)
		s.Requests()
		name, text, err := fetch(t, pinnedTiny)
		warns := strings.Contains(text, "the cache has no tokenizer_config.json and no generation_config.json of it")
		if err != nil || name != pinnedTiny || !strings.Contains(text, said) || warns == has ||
			(len(s.Requests()) > 0) != asked || exists(filepath.Join(dir, "tokenizer_config.json")) != has {
			t.Error(name, text, err)
		}
	}
	for _, file := range []string{"tokenizer_config.json", "generation_config.json"} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(absent); err != nil {
		t.Fatal(err)
	}
	ask("1", s.URL, "in the cache", false, false)
	ask("", "http://127.0.0.1:1", "commit 0123456789ab in the cache is used: http", false, false)
	ask("", s.URL, ": generation_config.json, tokenizer_config.json", true, true)
	ask("", s.URL, "in the cache", false, true)
	if info, err := os.Stat(filepath.Join(absent, hubtest.Commit, "chat_template.jinja")); err != nil || info.Size() > 0 {
		t.Error("nothing says that the hub has no chat_template.jinja", err)
	}
}

// TestResume: connections that break, in this call and in one before, cost no byte.
func TestResume(t *testing.T) {
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny()})
	s.Cut["model.safetensors"] = 0
	_, _, err := fetch(t, "org/tiny")
	if err == nil || !strings.Contains(err.Error(), "model.safetensors: the connection breaks at 0 of 8000 bytes") {
		t.Fatal(err)
	}
	s.Cut["model.safetensors"] = 3000
	s.Requests()
	name, said, err := fetch(t, "org/tiny")
	if err != nil || name != pinnedTiny || !strings.Contains(said, "MB of org/tiny 1/1") {
		t.Fatal(name, said, err)
	}
	var ranges []string
	for _, line := range s.Requests() {
		if _, asked, is := strings.Cut(line, "model.safetensors bytes="); is && strings.Contains(line, "store") {
			ranges = append(ranges, asked)
		}
	}
	if !slices.Equal(ranges, []string{"3000-", "6000-"}) {
		t.Error(ranges)
	}
	// the beginning that huggingface_hub left
	hubtest.New(t, s.Repos)
	blobs := filepath.Join(FromEnv().Cache, "models--org--tiny", "blobs")
	sum := fmt.Sprintf("%x", sumOf(s.Repos["org/tiny"].Files[weightsFile]))
	for _, err := range []error{os.MkdirAll(blobs, 0o777), os.WriteFile(filepath.Join(blobs, sum+".incomplete"),
		[]byte(strings.Repeat("weights ", 10)), 0o666)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := fetch(t, "org/tiny"); err != nil {
		t.Error(err)
	}
}

// TestFaults: every fault of a server, a model, an id or the disk is one line that says what to do.
func TestFaults(t *testing.T) {
	const info = "/api/models/org/tiny/revision/main"
	cases := []struct {
		name  string
		id    string
		fault func(t *testing.T, s *hubtest.Server)
		want  string
	}{
		{"no model", "org/none", nil, "org/none: there is no folder of this name, and SERVER has no such model (404)"},
		{"no revision", "org/tiny@v2", nil, `the model has no revision "v2" (404)`},
		{"private", "org/private", nil, "SERVER wants a token (401): set HF_TOKEN"},
		{"wrong token", "org/private", func(t *testing.T, _ *hubtest.Server) { t.Setenv("HF_TOKEN", "old") },
			"SERVER refuses the token (401)"},
		{"gated", "org/gated", nil, "access is refused (403): accept the model's terms at SERVER/org/gated"},
		{"no reply", "org/tiny", func(t *testing.T, _ *hubtest.Server) { t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1") },
			"http://127.0.0.1:1 cannot be reached: "},
		{"server fails", "org/tiny", func(_ *testing.T, s *hubtest.Server) { s.Status[info] = 503 },
			"SERVER fails (503 Service Unavailable)"},
		{"busy", "org/tiny", func(_ *testing.T, s *hubtest.Server) { s.Status[info] = 429 }, "too many requests (429)"},
		{"busy for an hour", "org/tiny", func(_ *testing.T, s *hubtest.Server) {
			s.Status[info], s.Pause = 429, "3600"
		}, "too many requests (429): try later"},
		{"another server", "org/tiny", func(_ *testing.T, s *hubtest.Server) { s.Status[info] = 200 },
			"SERVER does not speak the hub's protocol"},
		{"no URL", "org/tiny", func(t *testing.T, _ *hubtest.Server) { t.Setenv("HF_ENDPOINT", "::") },
			"HF_ENDPOINT ::: want a URL"},
		{"a file is missing", "org/tiny", func(_ *testing.T, s *hubtest.Server) {
			s.Status["/org/tiny/resolve/"+hubtest.Commit+"/config.json"] = 404
		}, "config.json: SERVER has no such model (404)"},
		{"wrong hash", "org/tiny", func(_ *testing.T, s *hubtest.Server) {
			s.Damage["model.safetensors"] = strings.Repeat("weighty ", 1000)
		}, "model.safetensors: what came is not what the hub has: its SHA-256 begins with"},
		{"wrong hash of a small file", "org/tiny", func(_ *testing.T, s *hubtest.Server) {
			s.Damage["config.json"] = "[]"
		}, "config.json: what came is not what the hub has: its SHA-1 begins with"},
		{"other weights", "org/pickles", nil,
			"has no model.safetensors: want weights in this form, found pytorch_model.bin"},
		{"bad revision", "org/tiny@../main", nil, `org/tiny: revision "../main": want a branch, a tag or a commit`},
		{"no disk", "org/tiny", func(t *testing.T, _ *hubtest.Server) {
			path := filepath.Join(t.TempDir(), "file")
			os.WriteFile(path, nil, 0o666)
			t.Setenv("HF_HUB_CACHE", path)
		}, "cannot be written: not a directory (HF_HUB_CACHE names another folder"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			private, gated, pickles := tiny(), tiny(), tiny()
			private.Token, gated.Gated = "secret", true
			delete(pickles.Files, "model.safetensors")
			s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny(), "org/private": private, "org/gated": gated,
				"org/pickles": pickles})
			if c.fault != nil {
				c.fault(t, s)
			}
			name, _, err := fetch(t, c.id)
			want := strings.ReplaceAll(c.want, "SERVER", s.URL)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") ||
				name != c.id {
				t.Errorf("%s: %v\nwant %s", name, err, want)
			}
			left, _ := filepath.Glob(filepath.Join(FromEnv().Cache, "models--*", "refs", "*"))
			if len(left) > 0 {
				t.Errorf("a revision without its files: %s", left)
			}
		})
	}
}

// TestSilentServer: a reply that begins and never ends is given up.
func TestSilentServer(t *testing.T) {
	hubtest.New(t, nil)
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer silent.Close()
	t.Setenv("HF_ENDPOINT", silent.URL)
	h := FromEnv()
	h.stall = time.Millisecond
	if err := h.Pin(t.Context(), &options{Model: "org/tiny"}, AllUses, nil); err == nil ||
		!strings.Contains(err.Error(), silent.URL+" does not answer in time") {
		t.Error(err)
	}
}

// TestHostileSizes: a server that names files without end, or says that they are larger than the disk, is refused before
// any of them is asked for.
func TestHostileSizes(t *testing.T) {
	for want, c := range map[string]struct{ files, size string }{
		"says that it has 262145 files, want at most 262144": {strings.Repeat("{},", mostFiles-1) + `{}`, "1"},
		"files of weights, want at most 8192": {`{"rfilename": "model.safetensors.index.json"}` +
			strings.Repeat(`, {"rfilename": "model-00001-of-00002.safetensors"}`, mostShards), "1"},
		"config.json: http://127.0.0.1": {`{"rfilename": "config.json"}, {"rfilename": "model.safetensors"}`, "67108865"},
		"for which the cache":           {`{"rfilename": "model.safetensors"}`, "4611686018427387904"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Linked-Etag", strings.Repeat("0", 64))
			w.Header().Set("X-Linked-Size", c.size)
			if r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/api/") {
				t.Errorf("%s is asked for", r.URL.Path)
			}
			fmt.Fprintf(w, `{"sha": %q, "siblings": [%s]}`, hubtest.Commit, c.files)
		}))
		t.Setenv("HF_ENDPOINT", server.URL)
		t.Setenv("HF_HUB_CACHE", t.TempDir())
		if _, _, err := fetch(t, "org/tiny"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		server.Close()
	}
}

// TestWrongHashIsGone: after damage the next try is as the first.
func TestWrongHashIsGone(t *testing.T) {
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny()})
	s.Damage["model.safetensors"] = strings.Repeat("weighty ", 1000)
	if _, _, err := fetch(t, "org/tiny"); err == nil {
		t.Fatal("taken")
	}
	delete(s.Damage, "model.safetensors")
	if _, _, err := fetch(t, "org/tiny"); err != nil {
		t.Error(err)
	}
}

// TestInterrupt: a download ends with its context.
func TestInterrupt(t *testing.T) {
	hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := FromEnv().Pin(ctx, &options{Model: "org/tiny"}, AllUses, nil); err != context.Canceled {
		t.Error(err)
	}
}

// TestLocalFolder: a folder of this machine wins over the hub's model of its name.
func TestLocalFolder(t *testing.T) {
	s := hubtest.New(t, map[string]hubtest.Repo{"org/tiny": tiny()})
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("org/tiny", 0o777); err != nil {
		t.Fatal(err)
	}
	name, said, err := fetch(t, "org/tiny")
	const note = "org/tiny: the folder of this name is used; the hub is not asked\n"
	if err != nil || name != "org/tiny" || said != note || len(s.Requests()) > 0 {
		t.Error(name, said, err)
	}
	if folder, err := Folder("org/tiny"); err != nil || folder != "org/tiny" {
		t.Error(folder, err)
	}
}

// FuzzParse: no id leaves the cache.
func FuzzParse(f *testing.F) {
	f.Add("a/b@main")
	f.Add("../../etc@../x")
	f.Fuzz(func(t *testing.T, text string) {
		id, ok, err := hubcache.Parse(text)
		if r := (repo{&Hub{Cache: "/cache"}, id, modelKind}); ok && err == nil {
			for _, path := range []string{r.refFile(), r.snapshot(id.Revision)} {
				if !strings.HasPrefix(path, r.folder()+"/") || !strings.HasPrefix(r.folder(), "/cache/models--") {
					t.Errorf("%q: %s", text, path)
				}
			}
		}
	})
}

func sumOf(text string) [32]byte { return sha256.Sum256([]byte(text)) }
