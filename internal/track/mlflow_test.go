package track

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestMain(m *testing.M) { os.Exit(expect.NoLeaks(m)) }

// fakeMLflow keeps what it is sent. fault may answer in its place.
type fakeMLflow struct {
	*httptest.Server
	mu       sync.Mutex
	calls    []string
	params   map[string]string
	metrics  []string
	statuses []string
	made     map[string]string                                  // names of runs by their tags
	lost     int                                                // answers to runs/create that do not arrive
	gateway  int                                                // the status that something answers in their place
	created  int                                                // calls of runs/create
	to       string                                             // where a redirect goes
	fault    func(call string, n int) (status int, body string) // n: how often it was called before; status 0: none
}

func newFakeMLflow(t *testing.T) *fakeMLflow {
	f := &fakeMLflow{params: map[string]string{}, made: map[string]string{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeMLflow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/")
	n := 0
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	f.calls = append(f.calls, call)
	if f.fault != nil {
		if status, body := f.fault(call, n); status != 0 {
			w.Header().Set("Location", f.to)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
			return
		}
	}
	var body struct {
		Run     string `json:"run_id"`
		Name    string `json:"run_name"`
		Status  string
		Filter  string
		Tags    []struct{ Key, Value string }
		Params  []struct{ Key, Value string }
		Metrics []struct {
			Key   string
			Value any
			Step  int
			Time  int64 `json:"timestamp"`
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch call {
	case "experiments/get-by-name":
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error_code":"RESOURCE_DOES_NOT_EXIST","message":"no %s"}`,
			r.URL.Query().Get("experiment_name"))
	case "experiments/create":
		fmt.Fprint(w, `{"experiment_id":"7"}`)
	case "runs/search":
		for tag := range f.made {
			if body.Filter == "tags.posttrain_run = '"+tag+"'" {
				fmt.Fprintf(w, `{"runs":[{"info":{"run_id":"abc %s"}}]}`, f.made[tag])
				return
			}
		}
		fmt.Fprint(w, "{}")
	case "runs/create":
		for _, tag := range body.Tags {
			if tag.Key == "posttrain_run" {
				f.made[tag.Value] = body.Name
			}
		}
		f.created++
		if f.lost--; f.lost >= 0 && f.gateway > 0 {
			w.WriteHeader(f.gateway)
			return
		} else if f.lost >= 0 { // the run is made, and the connection breaks
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, `{"run":{"info":{"run_id":"abc %s"}}}`, body.Name)
	case "runs/update":
		f.statuses = append(f.statuses, body.Run+" "+body.Status)
	case "runs/log-batch":
		for _, p := range body.Params {
			f.params[p.Key] = p.Value
		}
		for _, m := range body.Metrics {
			if m.Key != "epoch" && m.Time > 0 {
				f.metrics = append(f.metrics, fmt.Sprintf("%d %s %v", m.Step, m.Key, m.Value))
			}
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// warner keeps the warnings.
type warner struct {
	run.Reporter
	lines *[]string
}

func (w warner) Warn(format string, args ...any) {
	*w.lines = append(*w.lines, fmt.Sprintf(format, args...))
}

// watched opens a run folder again, or makes it, with a watcher that waits for nothing. The warnings are collected.
func watched(t *testing.T, dir, url string, warnings *[]string) *run.Folder {
	t.Helper()
	folder, err := run.Open(dir)
	if err != nil {
		folder = expect.Must(run.Create(dir, "mappo"))(t)
		expect.OK(t, folder.WriteConfig([]byte("command: mappo\n")))
	}
	s := Subject{Folder: folder, Command: "mappo", Config: []byte("seed: 3\nloss:\n  type: dpo\nlong: " +
		strings.Repeat("x", 600) + "\n"), Reporter: warner{run.Listen(nil), warnings}}
	m := expect.Must(NewMLflow(Options{MLflow: url + "/"}, s))(t)
	m.api.http.RetryWaitMin, m.api.http.RetryWaitMax = time.Microsecond, time.Microsecond
	folder.Watch(m)
	return folder
}

// TestMLflowResumes logs three steps, goes back to the first in a new process and ends: each metric is there once.
func TestMLflowResumes(t *testing.T) {
	server, dir, warnings := newFakeMLflow(t), filepath.Join(t.TempDir(), "my-run"), []string(nil)
	f := watched(t, dir, server.URL, &warnings)
	expect.OK(t, f.Log(loss(1, 9)), f.Log(loss(2, 8)), f.Log(loss(3, math.NaN())), f.Close())
	f = watched(t, dir, server.URL, &warnings)
	_, err := f.CutMetrics(1)
	expect.OK(t, err, f.Log(loss(2, 8)), f.Log(loss(3, math.NaN())), f.Log(loss(4, math.Inf(-1))),
		f.WriteSummary("done"), f.Close())
	want := []string{"1 loss 9", "2 loss 8", "3 loss NaN", "4 loss -Infinity"}
	if !slices.Equal(server.metrics, want) {
		t.Errorf("metrics %q, want %q", server.metrics, want)
	}
	want = []string{"abc my-run KILLED", "abc my-run RUNNING", "abc my-run FINISHED"}
	if !slices.Equal(server.statuses, want) {
		t.Errorf("statuses %q, want %q", server.statuses, want)
	}
	if p := server.params; p["seed"] != "3" || p["loss.type"] != "dpo" || len([]rune(p["long"])) != longestParam {
		t.Errorf("params %v", p)
	}
	if warnings != nil {
		t.Errorf("warnings %q", warnings)
	}
}

// TestMLflowAnswerIsLost: the server makes the run and its answer is lost; with the next record, or when the run is
// resumed, the same run is found: there is never a second one.
func TestMLflowAnswerIsLost(t *testing.T) {
	for _, c := range []struct {
		lost    int
		gateway int
	}{{1, 0}, {9, 0}, {1, 502}, {9, 502}, {1, 503}, {9, 503}} {
		server, dir, warnings := newFakeMLflow(t), filepath.Join(t.TempDir(), "run"), []string(nil)
		server.lost, server.gateway = c.lost, c.gateway
		f := watched(t, dir, server.URL, &warnings)
		expect.OK(t, f.Log(loss(1, 9)), f.Close())
		f = watched(t, dir, server.URL, &warnings)
		expect.OK(t, f.Log(loss(2, 8)), f.WriteSummary("done"), f.Close())
		if want := []string{"1 loss 9", "2 loss 8"}; server.created != 1 || !slices.Equal(server.metrics, want) {
			t.Errorf("%+v: %d runs, metrics %q, want %q", c, server.created, server.metrics, want)
		}
		if n := len(server.statuses); n == 0 || server.statuses[n-1] != "abc run FINISHED" {
			t.Errorf("%q", server.statuses)
		}
	}
}

// TestMLflowIsDown trains with a server that does not answer, and resumes when it does.
func TestMLflowIsDown(t *testing.T) {
	server, dir, warnings := newFakeMLflow(t), filepath.Join(t.TempDir(), "run"), []string(nil)
	down := httptest.NewServer(nil)
	down.Close()
	f := watched(t, dir, down.URL, &warnings)
	expect.OK(t, f.Log(loss(1, 9)), f.Log(loss(2, 8)), f.Close())
	if len(warnings) != 2 || !strings.HasPrefix(warnings[0], "MLflow: "+down.URL+": experiments/get-by-name: ") ||
		!strings.HasSuffix(warnings[0], "; training continues, and what was not sent is tried again with the next "+
			"record") ||
		warnings[1] != "MLflow: 2 of 2 records were not sent; they are in "+f.Path("metrics.jsonl")+
			", and a resumed run sends them" {
		t.Errorf("warnings %q", warnings)
	}
	f = watched(t, dir, server.URL, &warnings)
	expect.OK(t, f.Log(loss(3, 7)), f.Close())
	if want := []string{"1 loss 9", "2 loss 8", "3 loss 7"}; !slices.Equal(server.metrics, want) {
		t.Errorf("metrics %q, want %q", server.metrics, want)
	}
	if records, err := f.ReadMetrics(); err != nil || len(records) != 3 {
		t.Errorf("%v %v", records, err)
	}
}

// TestMLflowOfAnEndedRun: a run ended while the server was down; resumed, it trains nothing and sends what is missing.
func TestMLflowOfAnEndedRun(t *testing.T) {
	server, dir, warnings := newFakeMLflow(t), filepath.Join(t.TempDir(), "run"), []string(nil)
	f := watched(t, dir, server.URL, &warnings)
	expect.OK(t, f.Log(loss(1, 9)), f.Close())
	server.fault = func(string, int) (int, string) { return http.StatusBadRequest, `{"message":"down"}` }
	f = watched(t, dir, server.URL, &warnings)
	expect.OK(t, f.Log(loss(2, 8)), f.Log(loss(3, 7)), f.WriteSummary("done"), f.Close())
	server.fault = nil
	f = watched(t, dir, server.URL, &warnings)
	expect.OK(t, f.Close())
	if want := []string{"1 loss 9", "2 loss 8", "3 loss 7"}; !slices.Equal(server.metrics, want) {
		t.Errorf("metrics %q, want %q", server.metrics, want)
	}
	if n := len(server.statuses); n == 0 || server.statuses[n-1] != "abc run FINISHED" {
		t.Errorf("statuses %q", server.statuses)
	}
}

// TestMLflowFaults: each fault comes to the first calls of a kind; the training goes on and every metric arrives once.
func TestMLflowFaults(t *testing.T) {
	first := func(of string, times, status int, body string) func(string, int) (int, string) {
		return func(call string, n int) (int, string) {
			if call == of && n < times {
				return status, body
			}
			return 0, ""
		}
	}
	for _, c := range []struct {
		name  string
		fault func(string, int) (int, string)
		want  string // the warning; "": no warning
	}{
		{"busy", first("runs/log-batch", 2, 503, "later"), ""},
		{"busy with a run", first("runs/create", 1, 503, "later"), "runs/create: 503 Service Unavailable"},
		{"too many requests", first("runs/log-batch", 1, 429, ""), ""},
		{"no key", first("experiments/get-by-name", 1, 401, "<html>who are you</html>"),
			"experiments/get-by-name: 401 Unauthorized"},
		{"refused", first("runs/log-batch", 1, 400, `{"error_code":"INVALID_PARAMETER_VALUE","message":"a\nb"}`),
			"runs/log-batch: 400 Bad Request INVALID_PARAMETER_VALUE a b"},
		{"not MLflow", first("runs/create", 1, 200, "hello"),
			"runs/create: the reply is not MLflow's: invalid character 'h' looking for beginning of value"},
		{"no run", first("runs/create", 1, 200, "{}"), "the reply to runs/create names no run: want an MLflow server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, dir, warnings := newFakeMLflow(t), filepath.Join(t.TempDir(), "run"), []string(nil)
			server.fault = c.fault
			f := watched(t, dir, server.URL, &warnings)
			expect.OK(t, f.Log(loss(1, 9)), f.Log(loss(2, 8)), f.Close())
			if want := []string{"1 loss 9", "2 loss 8"}; !slices.Equal(server.metrics, want) {
				t.Errorf("metrics %q, want %q", server.metrics, want)
			}
			if got := strings.Join(warnings, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) ||
				len(warnings) > 1 {
				t.Errorf("warnings %q, want %q", warnings, c.want)
			}
		})
	}
}

// TestMLflowKeys: a key goes to no other address, and is in no warning and no file, also where the server repeats it.
func TestMLflowKeys(t *testing.T) {
	const token, password = "SECRETTOK123", "SECRETPW123"
	basic := base64.StdEncoding.EncodeToString([]byte("me:" + password))
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	for name, fault := range map[string]func(call string) (int, string){
		"an error":   func(string) (int, string) { return 400, `{"message":"no: ` + token + " " + basic + `"}` },
		"a page":     func(string) (int, string) { return 200, token + password },
		"a redirect": func(string) (int, string) { return 307, "" },
		"a run's name": func(call string) (int, string) {
			if call == "runs/create" {
				return 200, `{"run":{"info":{"run_id":"run-` + password + `"}}}`
			}
			return 0, ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("MLFLOW_TRACKING_USERNAME", "me")
			t.Setenv("MLFLOW_TRACKING_PASSWORD", password)
			t.Setenv("MLFLOW_TRACKING_TOKEN", token)
			server, dir, warnings := newFakeMLflow(t), filepath.Join(t.TempDir(), "run"), []string(nil)
			server.fault = func(call string, _ int) (int, string) { return fault(call) }
			server.to = other.URL
			f := watched(t, dir, server.URL, &warnings)
			expect.OK(t, f.Log(loss(1, 9)), f.Close())
			said := strings.Join(warnings, "\n")
			if text, err := os.ReadFile(filepath.Join(dir, mlflowFile)); err == nil {
				said += string(text)
			}
			if strings.Contains(said, token) || strings.Contains(said, password) || strings.Contains(said, basic) {
				t.Errorf("a key is in %q", said)
			}
			if name == "a redirect" && (elsewhere > 0 || !strings.Contains(said, "sends requests to another address")) {
				t.Errorf("%d requests went elsewhere: %q", elsewhere, said)
			}
		})
	}
}

// TestMLflowSendsManyAtOnce: a request has at most 1000 metrics.
func TestMLflowSendsManyAtOnce(t *testing.T) {
	var records []run.Record
	for step := range 1500 {
		records = append(records, loss(step, 1))
	}
	if n := len(firstMetrics(records)); n != mostMetrics/2 { // loss and epoch
		t.Errorf("%d records, want %d", n, mostMetrics/2)
	}
	if n := len(firstMetrics(records[:3])); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
}

func TestMLflowFileIsDamaged(t *testing.T) {
	f := newFolder(t)
	expect.OK(t, os.WriteFile(f.Path(mlflowFile), []byte("{"), 0o666))
	err := Options{MLflow: "http://localhost:5000"}.Watch(Subject{Folder: f})
	expect.Error(t, err, "tracking.mlflow: "+f.Path(mlflowFile)+": not the name of an MLflow run: remove it to "+
		"begin another")
}

func TestOptionsFaults(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{MLflow: "localhost:5000"}, `mlflow "localhost:5000": want the URL of an MLflow server, such as ` +
			`http://localhost:5000, without a key in it (MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and ` +
			`MLFLOW_TRACKING_PASSWORD, have it)`},
		{Options{MLflow: "http://u:p@host"}, `mlflow "http://…@host": want the URL of an MLflow server`},
		{Options{Experiment: "e"}, `mlflow_experiment "e": tracking.mlflow names no server; give it, or remove this`},
	} {
		faults := c.o.Check()
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.o, faults, c.want)
		}
	}
	if faults := (Options{TensorBoard: true, MLflow: "https://host:1/path", Experiment: "e"}).Check(); faults != nil {
		t.Error(faults)
	}
}
