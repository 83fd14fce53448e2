// Package hubtest is a server that speaks the paths of the Hugging Face hub, for tests: files of models, large ones on
// another host, and faults.
package hubtest

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// Repo is a model or a data set. Its only commit is at main.
type Repo struct {
	Commit string
	Files  map[string]string // texts by name
	Token  string            // that it wants; "": none
	Gated  bool              // nobody has accepted its terms
}

// Server is a hub.
type Server struct {
	URL   string
	Repos map[string]Repo // by their path: org/name of a model, datasets/org/name of a data set

	// faults, which a test may change between requests
	Cut    map[string]int    // bytes of a file after which the connection breaks, each time it is asked for
	Status map[string]int    // of the replies for a path
	Pause  string            // in seconds, that these replies ask for (Retry-After)
	Damage map[string]string // what comes in the place of a file

	mu       sync.Mutex
	requests []string
	store    *httptest.Server // of large files
}

// Commit is the commit of the repos that New and Folder make.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// New starts a hub, and sets the variables that let this process use it, with an empty cache.
func New(t *testing.T, repos map[string]Repo) *Server {
	s := &Server{Repos: repos, Cut: map[string]int{}, Status: map[string]int{}, Damage: map[string]string{}}
	front := httptest.NewServer(http.HandlerFunc(s.serve))
	s.store = httptest.NewServer(http.HandlerFunc(s.serveStore))
	t.Cleanup(front.Close)
	t.Cleanup(s.store.Close)
	s.URL = front.URL
	home := t.TempDir()
	for name, value := range map[string]string{"HF_ENDPOINT": s.URL, "HF_HOME": home, "HF_TOKEN": "",
		"HF_HUB_CACHE": filepath.Join(home, "hub"), "HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "",
		"HF_TOKEN_PATH": filepath.Join(home, "token")} {
		t.Setenv(name, value)
	}
	return s
}

// Folder makes a repo of the files of a folder.
func Folder(t *testing.T, dir string) Repo {
	r := Repo{Commit: Commit, Files: map[string]string{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		r.Files[e.Name()] = expect.Read(t, filepath.Join(dir, e.Name()))
	}
	return r
}

// Requests are those since the last call: METHOD PATH, the range, and "token" where one was sent.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

func (s *Server) note(r *http.Request, where string) {
	line := r.Method + " " + where + r.URL.Path
	if value := r.Header.Get("Range"); value != "" {
		line += " " + value
	}
	if r.Header.Get("Authorization") != "" {
		line += " token"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, line)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.note(r, "")
	if status := s.Status[r.URL.Path]; status != 0 {
		if s.Pause != "" {
			w.Header().Set("Retry-After", s.Pause)
		}
		w.WriteHeader(status)
		return
	}
	path, api := strings.CutPrefix(strings.TrimPrefix(r.URL.Path, "/"), "api/")
	name, rest := repoOf(strings.TrimPrefix(path, "models/"))
	repo, known := s.Repos[name]
	switch {
	case !known:
		refuse(w, http.StatusNotFound, "RepoNotFound")
	case repo.Token != "" && r.Header.Get("Authorization") != "Bearer "+repo.Token:
		refuse(w, http.StatusUnauthorized, "")
	case repo.Gated:
		refuse(w, http.StatusForbidden, "GatedRepo")
	case api:
		repo.serveInfo(w, strings.TrimPrefix(rest, "revision/"))
	default:
		_, file, _ := strings.Cut(strings.TrimPrefix(rest, "resolve/"), "/")
		s.serveFile(w, r, repo, file)
	}
}

// repoOf cuts org/name or datasets/org/name off a path.
func repoOf(path string) (name, rest string) {
	if inner, is := strings.CutPrefix(path, "datasets/"); is {
		name, rest = repoOf(inner)
		return "datasets/" + name, rest
	}
	parts := strings.SplitN(path, "/", 3)
	if len(parts) < 3 {
		return path, ""
	}
	return parts[0] + "/" + parts[1], parts[2]
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Error-Code", code)
	w.WriteHeader(status)
}

func (r Repo) serveInfo(w http.ResponseWriter, revision string) {
	if revision != "main" && revision != r.Commit {
		refuse(w, http.StatusNotFound, "RevisionNotFound")
		return
	}
	type sibling struct {
		Name string `json:"rfilename"`
	}
	said := struct {
		Commit string    `json:"sha"`
		Files  []sibling `json:"siblings"`
	}{Commit: r.Commit}
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		said.Files = append(said.Files, sibling{name})
	}
	json.NewEncoder(w).Encode(said)
}

// serveFile serves a small file, and redirects to the store of large ones.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, repo Repo, name string) {
	text, known := repo.Files[name]
	if !known {
		refuse(w, http.StatusNotFound, "EntryNotFound")
		return
	}
	w.Header().Set("X-Repo-Commit", repo.Commit)
	if strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".parquet") {
		w.Header().Set("X-Linked-Etag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text))))
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(text)))
		http.Redirect(w, r, s.store.URL+r.URL.Path, http.StatusFound)
		return
	}
	w.Header().Set("Etag", fmt.Sprintf(`"%x"`, sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text))))
	s.serveText(w, r, name, text)
}

// serveStore is the other host: it has no use for a token.
func (s *Server) serveStore(w http.ResponseWriter, r *http.Request) {
	s.note(r, "store")
	name, rest := repoOf(strings.TrimPrefix(r.URL.Path, "/"))
	_, file, _ := strings.Cut(strings.TrimPrefix(rest, "resolve/"), "/")
	s.serveText(w, r, file, s.Repos[name].Files[file])
}

// serveText sends a file, or what its faults leave of it.
func (s *Server) serveText(w http.ResponseWriter, r *http.Request, name, text string) {
	if damaged, is := s.Damage[name]; is {
		text = damaged
	}
	start := 0
	if asked := r.Header.Get("Range"); asked != "" {
		fmt.Sscanf(asked, "bytes=%d-", &start)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(text)-1, len(text)))
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(text)-start))
	if start > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	if most, is := s.Cut[name]; is && r.Method == http.MethodGet && len(text)-start > most {
		w.Write([]byte(text[start : start+most]))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	if r.Method == http.MethodGet {
		w.Write([]byte(text[start:]))
	}
}
