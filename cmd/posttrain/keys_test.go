package main

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// mark is a value of a variable or an address that nobody must see. Its ends are in no other text.
func mark(name string) string { return "Xq7Zk" + name + "0123456789abcdef0123456789Wv9Yj" }

// ends of every mark: what a cut leaves of one counts, too.
var ends = []string{"Xq7Zk", "Wv9Yj"}

// parrot is the server of every service. It repeats the keys of a request wherever a mode says.
type parrot struct {
	mode     string
	repeated atomic.Int64 // requests with a mark
}

// keysOf are the keys of a request, as they came and unpacked.
func keysOf(r *http.Request) (keys []string) {
	for _, name := range []string{"Authorization", "Api-Key"} {
		if value := r.Header.Get(name); value != "" {
			keys = append(keys, value[strings.LastIndex(value, " ")+1:])
		}
	}
	if _, password, is := r.BasicAuth(); is {
		keys = append(keys, password)
	}
	return keys
}

func (p *parrot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	said := strings.Join(keysOf(r), " ")
	if strings.Contains(said, ends[0]) {
		p.repeated.Add(1)
	}
	for _, name := range []string{"X-Error-Code", "X-Error-Message", "Retry-After", "Content-Range"} {
		w.Header().Set(name, said)
	}
	switch p.mode {
	case "error":
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error": {"message": %q}, "message": %q, "error_code": %q, "detail": %q}`, said, said, said, said)
	case "cut":
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, strings.Repeat("-", 130)+said)
	case "redirect":
		http.Redirect(w, r, "http://127.0.0.1:1/"+url.PathEscape(said), http.StatusTemporaryRedirect)
	case "status", "garbled":
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, map[string]string{"status": "HTTP/1.1 400 ", "garbled": ""}[p.mode]+said+"\r\n\r\n")
	default:
		p.answer(w, r, said)
	}
}

// answer is a reply that every service takes for its own.
func (p *parrot) answer(w http.ResponseWriter, r *http.Request, said string) {
	readme := "---\nconfigs:\n- config_name: \"" + said + "\"\n  data_files: pairs.jsonl\n---\n"
	text, files := "{}", []string{"README.md", "pairs.jsonl", "config.json", "model.safetensors"}
	switch name := filepath.Base(r.URL.Path); {
	case p.mode == "names":
		files = append(files, said+".jsonl")
	case p.mode == "etags":
		w.Header().Set("Etag", `"`+said+`"`)
	case p.mode == "texts" && name == "README.md":
		text = readme
	case p.mode == "texts" && name == "config.json":
		text = `{"model_type": "` + said + `"}`
	}
	if strings.Contains(r.URL.Path, "/resolve/") {
		if p.mode != "etags" {
			w.Header().Set("Etag", fmt.Sprintf(`"%x"`, sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text))))
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
		return
	}
	var siblings []map[string]string
	for _, name := range files {
		siblings = append(siblings, map[string]string{"rfilename": name})
	}
	if strings.Contains(r.URL.Path, "/api/models/") || strings.Contains(r.URL.Path, "/api/datasets/") {
		json.NewEncoder(w).Encode(map[string]any{"sha": strings.Repeat("0", 40), "siblings": siblings})
		return
	}
	run := map[string]any{"info": map[string]string{"run_id": said}}
	json.NewEncoder(w).Encode(map[string]any{
		"experiment": map[string]string{"experiment_id": said}, "runs": []any{run}, "run": run, // of MLflow
		"choices": []any{map[string]any{"finish_reason": said, "message": map[string]any{"content": said + "\nScore: 5",
			"reasoning": said, "tool_calls": []any{map[string]any{"function": map[string]any{"name": said, "arguments": said}}}}}},
		"data": []any{map[string]string{"id": said}}, "model_path": said, "success": false, "message": said, // of servers of models
	})
}

// checkMarks runs a command and looks for marks in what it prints, and in the names and texts of all files.
func checkMarks(t *testing.T, what string, args ...string) outcome {
	t.Helper()
	o := cli(t, args...)
	seen := map[string]string{"standard output": o.out, "standard error": o.err}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, _ := os.ReadFile(path) // a link may lead nowhere
			seen[path] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range seen {
		for _, end := range ends {
			for _, form := range []string{end, base64.StdEncoding.EncodeToString([]byte("me:" + end))[:8]} {
				if strings.Contains(where, form) || strings.Contains(text, form) {
					t.Errorf("%s: a key is in %s:\n%.2000s", what, where, text)
				}
			}
		}
	}
	return o
}

// TestMarkedKeys: of no key in the environment is anything in what is printed or written, whatever a server repeats of it.
func TestMarkedKeys(t *testing.T) {
	work(t, "qwen2-newer")
	workItems(t)
	for name, value := range map[string]string{"HF_HOME": "hub", "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "",
		"HF_TOKEN": mark("hf"), "OPENAI_API_KEY": mark("openai"), "OTHER_KEY": mark("azure"),
		"POSTTRAIN_ROLLOUT_KEY": mark("rollout"), "POSTTRAIN_SERVE_TOKEN": mark("serve"),
		"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": mark("password")} {
		t.Setenv(name, value)
	}
	mappo := []string{"mappo", "--model", "model", "--data", "pairs.jsonl", "--backend", "go", "--max-steps", "1",
		"--out", "OUT", "--mlflow", "URL"}
	judge := []string{"data", "score", "--reward", "judge", "--judge-model", "m", "--data", "pairs.jsonl", "--set",
		"reward.judge.retries=0", "--out", "OUT.jsonl", "--judge-base-url", "URL/v1"}
	commands := map[string][]string{
		"model":    {"model", "info", "org/tiny"},
		"data":     {"data", "check", "org/rows"},
		"token":    mappo,
		"password": mappo,
		"judge":    judge,
		"azure": slices.Concat(judge, []string{"--set", "reward.judge.api_key_env=OTHER_KEY", "--set",
			"reward.judge.api_version=v"}),
		"servers": tinyCIRL(1, "--set", "rollout.engine=sglang", "--set", "rollout.urls=[URL]", "--out", "OUT"),
	}
	for _, mode := range []string{"error", "cut", "redirect", "status", "garbled", "names", "etags", "texts"} {
		p := &parrot{mode: mode}
		server := httptest.NewServer(p)
		defer server.Close()
		t.Setenv("HF_ENDPOINT", server.URL)
		for _, name := range slices.Sorted(maps.Keys(commands)) {
			hub := name == "model" || name == "data"
			if hub && mode == "garbled" || !hub && (mode == "names" || mode == "etags") {
				continue // the hub is asked again for long; others have no names and tags
			}
			token := ""
			if name == "token" {
				token = mark("token")
			}
			t.Setenv("MLFLOW_TRACKING_TOKEN", token)
			args := slices.Clone(commands[name])
			for i := range args {
				args[i] = strings.NewReplacer("URL", server.URL, "OUT", name+"-"+mode).Replace(args[i])
			}
			p.repeated.Store(0)
			o := checkMarks(t, mode+" "+name, args...)
			if p.repeated.Load() == 0 {
				t.Errorf("%s %s: the server got no key: %s", mode, name, o.err)
			}
		}
	}
}

// TestMarkedAddresses: passwords within addresses are in nothing that is printed or written.
func TestMarkedAddresses(t *testing.T) {
	work(t, "qwen2-newer")
	workItems(t)
	t.Setenv("HF_HOME", "hub")
	t.Setenv("POSTTRAIN_SERVE_TOKEN", mark("serve")+" "+mark("serve"))
	t.Setenv("OPENAI_API_KEY", "")
	for _, address := range []string{"http://me:PW@127.0.0.1:1", "http://me:PW@[::1", "ftp://me:PW@host/%zz", "http://PW@host:port",
		"http://me:PW/@127.0.0.1:1"} {
		address = strings.Replace(address, "PW", mark("pw"), 1)
		t.Setenv("HF_ENDPOINT", address)
		for _, args := range [][]string{
			{"model", "info", "org/tiny"},
			{"data", "check", "org/rows"},
			{"mappo", "--model", "model", "--data", "pairs.jsonl", "--backend", "go", "--out", "a", "--mlflow", address},
			{"data", "score", "--reward", "judge", "--judge-model", "m", "--data", "pairs.jsonl", "--out", "a.jsonl",
				"--judge-base-url", address},
			tinyCIRL(1, "--set", "rollout.engine=sglang", "--set", "rollout.urls=["+address+"]"),
			{"federated", "client", "--agent", "a", "--state", "s", "--server", address},
			{"serve", "--addr", "127.0.0.1:0"},
		} {
			if o := checkMarks(t, strings.Join(args, " "), args...); o.code == 0 {
				t.Errorf("%s: it succeeds", args)
			}
		}
	}
}
