package view

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

const hostile = `</script><script>window.harm=1</script><img src=x onerror="window.harm=1">`

// write writes a file of a run.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// extend appends to metrics.jsonl.
func extend(t *testing.T, dir, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, metricsName), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err == nil {
		_, err = f.WriteString(text)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// twoRuns are a run of mappo that goes on and one of TRL.
func twoRuns(t *testing.T) (ours, trls string) {
	root := t.TempDir()
	ours, trls = filepath.Join(root, "ours"), filepath.Join(root, "trl")
	write(t, ours, configName, "command: mappo\nseed: 1\nloss:\n  beta: 0.1\n")
	write(t, ours, metricsName, `{"step":0,"epoch":0,"eval_loss":0.7,"eval_runtime":2}`+"\n"+
		`{"step":2,"epoch":0.5,"loss":0.6,"num_tokens":100,"step_time":1.5}`+"\n"+
		`{"step":4,"epoch":1,"loss":null,"num_tokens":200,"step_time":2,"note":"loss is NaN"}`+"\n"+
		`{"step":4,"epoch":1,"eval_loss":0.5,"eval_runtime":1}`+"\n"+`{"step":6,"ep`)
	write(t, trls, "trainer_state.json", `{"log_history":[{"step":1,"epoch":0.1,"loss":0.69},`+
		`{"step":2,"epoch":0.2,"loss":0.5}]}`)
	return ours, trls
}

func open(t *testing.T, paths ...string) *View {
	t.Helper()
	v, err := Open(paths)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ask is an answer of a server, decoded.
func ask[T any](t *testing.T, v *View, address string) (out T) {
	t.Helper()
	w := httptest.NewRecorder()
	v.Handler(nil).ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/api/"+address, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", address, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("%s: %v: %s", address, err, w.Body)
	}
	return out
}

type runsAnswer struct{ Runs []shownRun }
type curvesAnswer struct {
	Curves []struct {
		Run      int
		Steps    []int
		Axes     map[string][]float64
		Values   []*float64
		Smooth   [][]*float64
		Last     *struct{ Step, Value float64 }
		Lost     int
		LostStep int `json:"lost_step"`
	}
}

// TestRuns: the list of runs, and what is new in a run that goes on. By hand: the clock is 2 s of the first
// validation, 2 steps of 1.5 s, 2 of 2 s, 1 s of the second validation.
func TestRuns(t *testing.T) {
	ours, trls := twoRuns(t)
	v := open(t, ours, trls)
	runs := ask[runsAnswer](t, v, "runs").Runs
	if a, b := runs[0], runs[1]; a.Name != "ours" || a.Kind != "posttrain" || a.Command != "mappo" || a.Finished ||
		a.Step != 4 || a.Records != 4 || strings.Join(a.Axes, " ") != "epoch time tokens" ||
		strings.Join(a.First, " ") != "loss eval_loss" || b.Name != "trl" || b.Kind != "TRL" ||
		b.Step != 2 || !b.Finished || strings.Join(b.Axes, " ") != "epoch" {
		t.Errorf("%+v", runs)
	}
	got := ask[curvesAnswer](t, v, "curves?metric=eval_loss").Curves
	if len(got) != 1 || fmt.Sprint(got[0].Steps, got[0].Axes["time"], got[0].Axes["tokens"], got[0].Last) !=
		"[0 4] [2 10] [0 200] &{4 0.5}" {
		t.Errorf("%+v", got)
	}
	got = ask[curvesAnswer](t, v, "curves?metric=loss").Curves
	if len(got) != 2 || got[0].Lost != 1 || got[0].LostStep != 4 || got[0].Values[1] != nil || got[1].Run != 1 ||
		*got[1].Values[1] != 0.5 {
		t.Errorf("%+v", got)
	}
	extend(t, ours, `och":1.5,"loss":0.4}`+"\n")
	if now := ask[runsAnswer](t, v, "runs").Runs[0]; now.Step != 6 || now.Stamp == runs[0].Stamp {
		t.Errorf("%+v", now)
	}
	if last := ask[curvesAnswer](t, v, "curves?metric=loss").Curves[0].Last; last.Value != 0.4 || last.Step != 6 {
		t.Errorf("%+v", last)
	}
}

// TestResumed: a run that resumes writes its metrics anew, cut and then longer; nothing of before stays.
func TestResumed(t *testing.T) {
	ours, _ := twoRuns(t)
	v := open(t, ours)
	write(t, ours, "new", strings.Repeat(`{"step":1,"epoch":0.1,"loss":0.9}`+"\n", 20))
	if err := os.Rename(filepath.Join(ours, "new"), filepath.Join(ours, metricsName)); err != nil {
		t.Fatal(err)
	}
	if r := ask[runsAnswer](t, v, "runs").Runs[0]; r.Step != 1 || r.Records != 20 || len(r.Metrics) != 1 {
		t.Errorf("%+v", r)
	}
	if err := os.Truncate(filepath.Join(ours, metricsName), 0); err != nil {
		t.Fatal(err)
	}
	if r := ask[runsAnswer](t, v, "runs").Runs[0]; r.Records != 0 {
		t.Errorf("%+v", r)
	}
	extend(t, ours, "{\"step\":\"x\"}\n")
	want := metricsName + `:1: not a line of metrics: step "x": want a whole number`
	if r := ask[runsAnswer](t, v, "runs").Runs[0]; !strings.HasSuffix(r.Problem, want) {
		t.Errorf("%+v", r)
	}
	write(t, ours, metricsName, `{"step":3,"epoch":0.1,"loss":0.9}`+"\n") // the same file, other lines
	if r := ask[runsAnswer](t, v, "runs").Runs[0]; r.Problem != "" || r.Step != 3 {
		t.Errorf("%+v", r)
	}
}

// TestCheckpoints: the state that TRL writes into a newer checkpoint is shown, though the checkpoint was there before.
func TestCheckpoints(t *testing.T) {
	dir := t.TempDir()
	state := func(step int) {
		write(t, filepath.Join(dir, fmt.Sprint("checkpoint-", step)), "trainer_state.json",
			fmt.Sprintf(`{"log_history":[{"step":%d,"epoch":0.1,"loss":0.5}]}`, step))
	}
	state(1)
	write(t, filepath.Join(dir, "checkpoint-2"), "model.safetensors", "")
	v := open(t, dir)
	if r := ask[runsAnswer](t, v, "runs").Runs[0]; r.Step != 1 {
		t.Errorf("%+v", r)
	}
	state(2)
	if r := ask[runsAnswer](t, v, "runs").Runs[0]; r.Step != 2 {
		t.Errorf("%+v", r)
	}
}

// TestThin: no more points than asked for, in their order, and every part keeps its extremes and what is not finite.
func TestThin(t *testing.T) {
	values := make([]float64, 100_000)
	for i := range values {
		values[i] = math.Sin(float64(i) / 500)
	}
	values[31_234], values[67_891], values[80_000] = 50, -50, math.NaN()
	kept := thin(values, 2000)
	if len(kept) > 2001 || !slices.IsSorted(kept) || kept[0] != 0 || kept[len(kept)-1] != len(values)-1 {
		t.Errorf("%d points, from %d to %d", len(kept), kept[0], kept[len(kept)-1])
	}
	for _, i := range []int{31_234, 67_891, 80_000} {
		if !slices.Contains(kept, i) {
			t.Errorf("%d is lost", i)
		}
	}
	for n, want := range map[int]int{0: 0, 1: 1, 7: 7, 8: 8} {
		if got := thin(values[:n], 8); len(got) != want {
			t.Errorf("%d values: %v", n, got)
		}
	}
}

// TestSmooth: by hand, with weight 0.6: 10; (0.6·4 + 0.4·20)/(1-0.36); the value that is not finite stays one.
func TestSmooth(t *testing.T) {
	got := smooth([]float64{10, 20, math.NaN(), 0}, 0.6)
	want := []float64{10, 10.4 / 0.64, math.NaN(), 6.24 / 0.784}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 || math.IsNaN(got[i]) != math.IsNaN(want[i]) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestClock: a federated run has a clock of its own; a value that fell does not bring an axis back.
func TestClock(t *testing.T) {
	table := newTable()
	for i, values := range []map[string]float64{{"time": 4, "samples": 9}, {"time": 3, "return": 1},
		{"time": math.NaN(), "samples": 12}} {
		table.add(run.Record{Step: i + 1, Values: values})
	}
	if got := fmt.Sprint(table.axes, table.first()); got != "map[samples:[9 9 12] time:[4 4 4]] [return]" {
		t.Error(got)
	}
}

// TestConfigs: keys that differ, and keys that a run does not have.
func TestConfigs(t *testing.T) {
	ours, trls := twoRuns(t)
	other := filepath.Join(t.TempDir(), "other")
	write(t, other, configName, "command: mappo\nseed: 2\nloss:\n  beta: 0.1\n")
	got := ask[struct{ Settings []setting }](t, open(t, ours, other, trls), "config").Settings
	text, err := json.Marshal(got)
	want := `[{"key":"command","values":["mappo","mappo",null],"differs":true},` +
		`{"key":"loss.beta","values":["0.1","0.1",null],"differs":true},` +
		`{"key":"seed","values":["1","2",null],"differs":true}]`
	if err != nil || string(text) != want {
		t.Errorf("%s %v", text, err)
	}
	got = ask[struct{ Settings []setting }](t, open(t, ours, other), "config").Settings
	if got[1].Differs || !got[2].Differs {
		t.Errorf("%+v", got)
	}
}

func TestOpenFaults(t *testing.T) {
	ours, _ := twoRuns(t)
	root := t.TempDir()
	empty, done, bad := filepath.Join(root, "empty"), filepath.Join(root, "done"), filepath.Join(root, "bad")
	write(t, empty, "notes.txt", "hello")
	write(t, done, configName, "command: mappo\n")
	write(t, done, "summary.txt", "done")
	measured := filepath.Join(root, "measured")
	write(t, measured, configName, "command: eval ci\n")
	write(t, measured, "summary.json", "{}")
	write(t, bad, configName, "command: mappo\n")
	write(t, bad, metricsName, `{"step":1}`+"\n{\n")
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{[]string{filepath.Join(root, "none")}, "none cannot be read: no such file or directory"},
		{[]string{empty}, empty + ": there is no log of a run in it: want a run folder of posttrain, "},
		{[]string{filepath.Join(empty, "notes.txt")}, "notes.txt: it has no metrics: "},
		{[]string{done}, done + ": there is nothing to show in it"},
		{[]string{measured}, measured + ": there is nothing to show in it"},
		{[]string{bad}, metricsName + ":2: not a line of metrics: "},
		{[]string{ours, ours + "/."}, "ours/.: this run is named twice: want each once"},
	} {
		_, err := Open(c.paths)
		expect.Error(t, err, c.want)
	}
	err := Run(t.Context(), Options{Runs: []string{ours}, Listen: "nowhere"}, nil)
	expect.Error(t, err, "--listen nowhere: ", "want HOST:PORT")
}

// TestNames: two folders of one name are called by their paths.
func TestNames(t *testing.T) {
	ours, _ := twoRuns(t)
	again, _ := twoRuns(t)
	runs := ask[runsAnswer](t, open(t, ours, again), "runs").Runs
	if runs[0].Name != filepath.ToSlash(ours) || runs[1].Name != filepath.ToSlash(again) {
		t.Errorf("%+v", runs)
	}
}

// TestServer: what is asked under a foreign name, or is not an answer, is refused; no file of the disk is served.
func TestServer(t *testing.T) {
	ours, _ := twoRuns(t)
	handler := open(t, ours).Handler([]string{"lab.example.org"})
	for _, c := range []struct {
		method, url string
		code        int
	}{
		{"GET", "http://127.0.0.1:80/", 200},
		{"GET", "http://[::1]/api/runs", 200},
		{"GET", "http://localhost/api/config", 200},
		{"GET", "http://lab.example.org/api/runs", 200},
		{"GET", "http://evil.example/", 403},
		{"GET", "http://evil.example/api/runs", 403},
		{"GET", "http://127.0.0.1.evil.example/api/runs", 403},
		{"GET", "http://127.0.0.1/api/none", 404},
		{"GET", "http://127.0.0.1/api/runs/x", 404},
		{"GET", "http://127.0.0.1/config.yaml", 404},
		{"GET", "http://127.0.0.1/api/..%2f..%2fetc%2fpasswd", 404},
		{"POST", "http://127.0.0.1/api/runs", 405},
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(c.method, c.url, nil))
		if w.Code != c.code || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.url, w.Code, c.code, w.Body)
		}
		if policy := w.Header().Get("Content-Security-Policy"); w.Code == 200 && strings.HasSuffix(c.url, "80/") &&
			(!strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe")) {
			t.Errorf("%s: policy %q", c.url, policy)
		}
	}
}

// TestRun: the server answers until the context ends.
func TestRun(t *testing.T) {
	ours, _ := twoRuns(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o := Options{Runs: []string{ours}, Listen: "127.0.0.1:0"}
	o.Ready = func(url string) {
		go func() {
			defer stop()
			reply, err := http.Get(url)
			if err != nil {
				t.Error(err)
				return
			}
			defer reply.Body.Close()
			text, err := io.ReadAll(reply.Body)
			if err != nil || reply.StatusCode != 200 || !strings.Contains(string(text), "<title>ours</title>") {
				t.Errorf("%v %d %.200s", err, reply.StatusCode, text)
			}
		}()
	}
	if err := Run(ctx, o, nil); err != nil {
		t.Error(err)
	}
}

// TestWrite: a page in a file has the answers with it, as text alone, and the policy's hashes are of its own scripts.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run <b>&")
	write(t, dir, configName, "command: mappo\nmodel: '"+hostile+"'\n")
	name, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, metricsName, fmt.Sprintf(`{"step":1,"epoch":0,"loss":0.5,%s:1}`+"\n", name))
	path := filepath.Join(t.TempDir(), "page.html")
	if err := Run(t.Context(), Options{Runs: []string{dir}, Out: path}, nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	page := string(text)
	if err != nil || strings.Contains(page, hostile) || strings.Count(page, "<script") != 3 ||
		strings.Count(page, pageScript) != 1 || strings.Count(page, plotScript) != 1 ||
		strings.Count(page, pageStyle) != 1 {
		t.Errorf("%v, %d scripts", err, strings.Count(page, "<script"))
	}
	if !strings.Contains(page, "<title>run &lt;b&gt;&amp;</title>") || !strings.Contains(page, `"curves?metric=loss"`) {
		t.Error("the title or the curves are not in the page")
	}
	_, filed, _ := strings.Cut(page, `id="filed">`)
	filed, _, _ = strings.Cut(filed, "</script>")
	var answers map[string]json.RawMessage
	if err := json.Unmarshal([]byte(filed), &answers); err != nil {
		t.Fatal(err)
	}
	if answers["curves?metric="+escape(hostile)] == nil || answers["runs"] == nil || answers["config"] == nil {
		t.Errorf("%d answers", len(answers))
	}
	for _, text := range []string{pageScript, plotScript} {
		for _, word := range []string{"innerHTML =", "eval(", "</script"} {
			if strings.Contains(text, word) {
				t.Errorf("%s is in a script: it makes HTML or code of text", word)
			}
		}
	}
	expect.Error(t, Run(t.Context(), Options{Runs: []string{dir}, Out: filepath.Join(path, "x")}, nil), "not written: ")
}

// TestPlotLibrary: the files of uPlot are those that scripts/page/uplot.sh brought, and its license is with them.
func TestPlotLibrary(t *testing.T) {
	sums, err := os.ReadFile("page/uplot/SHA256SUMS")
	if err != nil || strings.Count(string(sums), "\n") != 3 {
		t.Fatalf("%v: %s", err, sums)
	}
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got, err := files.SHA256(filepath.Join("page", "uplot", name)); err != nil || got != want {
			t.Errorf("%s: %v, %s, want %s", name, err, got, want)
		}
	}
}
