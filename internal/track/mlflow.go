package track

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// Variables of MLflow's own clients.
const (
	tokenVariable    = "MLFLOW_TRACKING_TOKEN"
	userVariable     = "MLFLOW_TRACKING_USERNAME"
	passwordVariable = "MLFLOW_TRACKING_PASSWORD"
)

// mlflowFile keeps in the run folder which run of the server it is, and how much the server has.
const mlflowFile = "mlflow.json"

// Limits of a request log-batch, and of a parameter's value in older servers.
const mostMetrics, mostParams, longestParam = 1000, 100, 500

// MLflow sends what a run logs to an MLflow server, beside the training. A server that fails stops nothing: the first
// fault is a warning, and what was not sent goes with the next record, or when the run is resumed. It sends the records
// of metrics.jsonl in their order, each once: an interrupted run has the same records as one without interruption.
type MLflow struct {
	Subject
	base, experiment string
	http             *retryablehttp.Client
	patience         time.Duration // for what is left when the run ends

	mu      sync.Mutex // guards what follows
	state   mlflowRun
	pending []run.Record // after the first state.Sent
	seen    int          // records in metrics.jsonl; -1: they were not counted since the run was opened or cut
	warned  bool

	opened bool          // the sender has made or found the server's run
	wake   chan struct{} // there is something to send
	cancel context.CancelFunc
	done   chan struct{} // the sender has ended
}

// mlflowRun is the content of mlflow.json.
type mlflowRun struct {
	URL        string `json:"url"`
	Experiment string `json:"experiment_id"`
	Run        string `json:"run_id"`
	Tag        string `json:"tag"`       // of the run, which is found by it where the answer with its name was lost
	Described  bool   `json:"described"` // the server has the parameters
	Sent       int    `json:"sent"`      // records
}

// NewMLflow makes a watcher of a folder, which it does not attach, and starts its sender.
func NewMLflow(o Options, s Subject) (*MLflow, error) {
	m := &MLflow{Subject: s, base: strings.TrimRight(o.MLflow, "/"), experiment: cmp.Or(o.Experiment, "posttrain"),
		http: retryablehttp.NewClient(), patience: 15 * time.Second, seen: -1, wake: make(chan struct{}, 1),
		done: make(chan struct{})}
	m.http.Logger, m.http.RetryMax, m.http.CheckRetry = nil, 2, retry
	m.http.HTTPClient.Timeout = 30 * time.Second
	m.http.ErrorHandler = retryablehttp.PassthroughErrorHandler
	if err := s.Folder.Own(mlflowFile); err != nil {
		return nil, err
	}
	switch text, err := os.ReadFile(s.Folder.Path(mlflowFile)); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("%s cannot be read: %w", s.Folder.Path(mlflowFile), run.Cause(err))
	default:
		if err := json.Unmarshal(text, &m.state); err != nil || m.state.Sent < 0 {
			return nil, fmt.Errorf("%s: not the name of an MLflow run: remove it to begin another",
				s.Folder.Path(mlflowFile))
		}
	}
	if m.state.URL != m.base { // another server has another run
		m.state = mlflowRun{URL: m.base}
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go m.send(ctx)
	return m, nil
}

// Logged has the record sent.
func (m *MLflow) Logged(r run.Record) {
	m.report(m.keep(r))
	select {
	case m.wake <- struct{}{}:
	default: // the sender is about to look
	}
}

// keep adds a record to those that the server lacks, unless it has it from before a resumption.
func (m *MLflow) keep(r run.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen < 0 { // the file has the record
		return m.count()
	}
	if m.seen++; m.seen > m.state.Sent+len(m.pending) {
		m.pending = append(m.pending, r)
	}
	return nil
}

// count reads which records the server lacks, unless that is known.
func (m *MLflow) count() error {
	if m.seen >= 0 {
		return nil
	}
	records, err := m.Folder.ReadMetrics()
	if err == nil {
		m.seen, m.pending = len(records), records[min(m.state.Sent, len(records)):]
	}
	return err
}

// Sampled does nothing: samples stay in the run folder.
func (m *MLflow) Sampled(int, []byte) {}

// Cut forgets what was removed, unless the server has it.
func (m *MLflow) Cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen, m.pending = -1, nil
}

// Close sends what is left and ends the server's run, within the patience.
func (m *MLflow) Close() {
	stop := time.AfterFunc(m.patience, m.cancel)
	defer stop.Stop()
	close(m.wake)
	<-m.done
	m.cancel()
	if m.warned && len(m.pending) > 0 {
		m.Warn("MLflow: %d of %d records were not sent; they are in %s, and a resumed run sends them", len(m.pending),
			m.seen, m.Folder.Path("metrics.jsonl"))
	}
}

// send sends what is there whenever there is something, and ends the run when there will be no more.
func (m *MLflow) send(ctx context.Context) {
	defer close(m.done)
	for range m.wake {
		m.report(m.flush(ctx))
	}
	m.report(m.end(ctx))
}

// end sends what is left, also of a run that had ended before it was resumed, and says how the run ended.
func (m *MLflow) end(ctx context.Context) error {
	m.mu.Lock()
	err := m.count()
	m.mu.Unlock()
	if err == nil {
		err = m.flush(ctx)
	}
	if err == nil {
		err = m.finish(ctx)
	}
	return err
}

// report warns of the first fault.
func (m *MLflow) report(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && !m.warned {
		m.warned = true
		m.Warn("MLflow: %v; training continues, and what was not sent is tried again with the next record", err)
	}
}

// flush sends all records that are pending.
func (m *MLflow) flush(ctx context.Context) error {
	for {
		m.mu.Lock()
		batch := firstMetrics(m.pending)
		m.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		if err := m.open(ctx); err != nil {
			return err
		}
		if err := m.call(ctx, "runs/log-batch", map[string]any{"run_id": m.state.Run, "metrics": metricsOf(batch)},
			nil); err != nil {
			return err
		}
		if err := m.sent(len(batch)); err != nil {
			return err
		}
	}
}

// sent notes that the server has the next n records. Those that were cut meanwhile count too: they come again.
func (m *MLflow) sent(n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Sent += n
	m.pending = m.pending[min(n, len(m.pending)):]
	return m.save()
}

// firstMetrics are the first records whose metrics fit into a request; at least one.
func firstMetrics(records []run.Record) []run.Record {
	n := 0
	for i, r := range records {
		if n += len(r.Values) + 1; n > mostMetrics && i > 0 {
			return records[:i]
		}
	}
	return records
}

// metricsOf are the metrics of a request.
func metricsOf(records []run.Record) (all []map[string]any) {
	now := time.Now().UnixMilli()
	for _, r := range records {
		values := maps.Clone(r.Values)
		values["epoch"] = r.Epoch
		for _, name := range slices.Sorted(maps.Keys(values)) {
			all = append(all, map[string]any{"key": name, "value": number(values[name]), "timestamp": now,
				"step": r.Step})
		}
	}
	return all
}

// number is a JSON number, or what protocol buffers write in its place.
func number(x float64) any {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 0):
		return strings.TrimPrefix(fmt.Sprint(x), "+") + "inity"
	}
	return x
}

// open makes the server's run, or continues that of earlier, and gives it the parameters.
func (m *MLflow) open(ctx context.Context) (err error) {
	switch {
	case m.opened:
		return nil
	case m.state.Run == "":
		err = m.create(ctx)
	default:
		err = m.update(ctx, map[string]any{"status": "RUNNING"})
	}
	if err == nil && !m.state.Described {
		err = m.describe(ctx)
	}
	m.opened = err == nil
	return err
}

// once marks the context of a request that makes something. Where no answer comes, or one of a gateway that has lost the
// server's, it is not sent again, since the server may have made it.
type once struct{}

func retry(ctx context.Context, r *http.Response, err error) (bool, error) {
	lost := err != nil || r.StatusCode >= http.StatusInternalServerError && r.StatusCode != http.StatusServiceUnavailable
	if lost && ctx.Value(once{}) != nil {
		return false, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, r, err)
}

// findRun finds the run that an earlier request made, whose answer was lost; "": the server has no such run.
func (m *MLflow) findRun(ctx context.Context) (string, error) {
	var found struct {
		Runs []struct {
			Info struct {
				Run string `json:"run_id"`
			}
		}
	}
	err := m.call(ctx, "runs/search", map[string]any{"experiment_ids": []string{m.state.Experiment}, "max_results": 1,
		"filter": fmt.Sprintf("tags.%s = '%s'", runTag, m.state.Tag)}, &found)
	if err != nil || len(found.Runs) == 0 {
		return "", err
	}
	return found.Runs[0].Info.Run, nil
}

// runTag is the tag by which a run folder finds its run.
const runTag = "posttrain_run"

// create makes a run of the experiment, named after the run folder, unless an earlier attempt did.
func (m *MLflow) create(ctx context.Context) (err error) {
	if m.state.Experiment, err = m.findExperiment(ctx); err != nil {
		return err
	}
	if m.state.Tag != "" {
		if m.state.Run, err = m.findRun(ctx); err != nil || m.state.Run != "" {
			return errors.Join(err, m.save())
		}
	}
	m.state.Tag = cmp.Or(m.state.Tag, rand.Text())
	if err := m.save(); err != nil {
		return err
	}
	return m.createNew(context.WithValue(ctx, once{}, true))
}

func (m *MLflow) createNew(ctx context.Context) error {
	dir, err := filepath.Abs(m.Folder.Dir)
	if err != nil {
		return err
	}
	tag := func(key, value string) map[string]string { return map[string]string{"key": key, "value": value} }
	var made struct {
		Run struct {
			Info struct {
				Run string `json:"run_id"`
			}
		}
	}
	if err := m.call(ctx, "runs/create", map[string]any{
		"experiment_id": m.state.Experiment, "run_name": filepath.Base(dir), "start_time": time.Now().UnixMilli(),
		"tags": []any{tag("mlflow.source.name", "posttrain "+m.Command), tag("mlflow.source.type", "LOCAL"),
			tag(runTag, m.state.Tag)},
	}, &made); err != nil {
		return err
	}
	if m.state.Run = made.Run.Info.Run; m.state.Run == "" {
		return fmt.Errorf("%s: the reply to runs/create names no run: want an MLflow server", m.base)
	}
	return m.save()
}

// findExperiment finds the experiment by its name, or makes it.
func (m *MLflow) findExperiment(ctx context.Context) (string, error) {
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		}
	}
	err := m.call(ctx, "experiments/get-by-name?experiment_name="+url.QueryEscape(m.experiment), nil, &found)
	if missing := (*mlflowError)(nil); errors.As(err, &missing) && missing.Code == "RESOURCE_DOES_NOT_EXIST" {
		var made struct {
			ID string `json:"experiment_id"`
		}
		err = m.call(ctx, "experiments/create", map[string]any{"name": m.experiment}, &made)
		return made.ID, err
	}
	return found.Experiment.ID, err
}

// describe gives the server's run the keys of the config as parameters.
func (m *MLflow) describe(ctx context.Context) error {
	keys, err := config.Changes(nil, m.Config)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(keys, mostParams) {
		var params []map[string]string
		for _, k := range part {
			params = append(params, map[string]string{"key": k.Key, "value": shorten(k.Now)})
		}
		if err := m.call(ctx, "runs/log-batch", map[string]any{"run_id": m.state.Run, "params": params},
			nil); err != nil {
			return err
		}
	}
	m.state.Described = true
	return m.save()
}

// shorten cuts a value that is longer than a parameter may be.
func shorten(value string) string {
	if all := []rune(value); len(all) > longestParam {
		return string(all[:longestParam-1]) + "…"
	}
	return value
}

// finish says how the run ended. One that was stopped, or failed, has no summary.
func (m *MLflow) finish(ctx context.Context) error {
	if m.state.Run == "" {
		return nil
	}
	status := "KILLED"
	if run.Finished(m.Folder.Dir) {
		status = "FINISHED"
	}
	return m.update(ctx, map[string]any{"status": status, "end_time": time.Now().UnixMilli()})
}

func (m *MLflow) update(ctx context.Context, what map[string]any) error {
	what["run_id"] = m.state.Run
	return m.call(ctx, "runs/update", what, nil)
}

func (m *MLflow) save() error {
	text, err := json.MarshalIndent(m.state, "", "  ")
	if err != nil {
		return err
	}
	return m.Folder.WriteFile(mlflowFile, append(text, '\n'))
}

// mlflowError is a reply of the server that refuses a request.
type mlflowError struct {
	Code    string `json:"error_code"`
	Message string `json:"message"`
	where   string
	status  string
}

func (e *mlflowError) Error() string {
	said := strings.Join(strings.Fields(e.Code+" "+e.Message), " ")
	if all := []rune(said); len(all) > 200 {
		said = string(all[:200]) + "…"
	}
	return fmt.Sprintf("%s: %s %s", e.where, e.status, said)
}

// call sends a request of the REST interface, and again where that may help. A body of nil is a GET.
func (m *MLflow) call(ctx context.Context, path string, body, reply any) error {
	request, err := m.request(ctx, path, body)
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(path, "?")
	response, err := m.http.Do(request)
	if err != nil {
		if cause := (*url.Error)(nil); errors.As(err, &cause) {
			err = cause.Err
		}
		return fmt.Errorf("%s: %s: %s", m.base, name, strings.Join(strings.Fields(err.Error()), " "))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("%s: %s: the reply is incomplete: %w", m.base, name, err)
	}
	if response.StatusCode != http.StatusOK {
		refused := &mlflowError{where: m.base + ": " + name, status: response.Status}
		_ = json.Unmarshal(text, refused) // another server's reply has no code
		return refused
	}
	if reply == nil {
		return nil
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("%s: %s: the reply is not MLflow's: %w", m.base, name, err)
	}
	return nil
}

func (m *MLflow) request(ctx context.Context, path string, body any) (*retryablehttp.Request, error) {
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := retryablehttp.NewRequestWithContext(ctx, method, m.base+"/api/2.0/mlflow/"+path, text)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token := os.Getenv(tokenVariable); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	} else if user := os.Getenv(userVariable); user != "" {
		request.SetBasicAuth(user, os.Getenv(passwordVariable))
	}
	return request, nil
}
