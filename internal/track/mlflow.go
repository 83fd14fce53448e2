package track

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/web"
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
	api        mlflowAPI
	experiment string
	patience   time.Duration // for what is left when the run ends

	// Of the sender alone, until done.
	state  mlflowRun
	opened bool // it has made or found the server's run
	warned bool

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
	m := &MLflow{Subject: s, experiment: cmp.Or(o.Experiment, "posttrain"), patience: 15 * time.Second,
		api: mlflowAPI{strings.TrimRight(o.MLflow, "/"), web.Retrying(web.Options{Timeout: 30 * time.Second}, 2, retry),
			environmentKeys()},
		wake: make(chan struct{}, 1), done: make(chan struct{})}
	if err := s.Folder.Own(mlflowFile); err != nil {
		return nil, err
	}
	switch text, err := os.ReadFile(s.Folder.Path(mlflowFile)); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("%s cannot be read: %w", s.Folder.Path(mlflowFile), run.Cause(err))
	case json.Unmarshal(text, &m.state) != nil || m.state.Sent < 0:
		return nil, fmt.Errorf("%s: not the name of an MLflow run: remove it to begin another",
			s.Folder.Path(mlflowFile))
	}
	if m.state.URL != m.api.base { // another server has another run
		m.state = mlflowRun{URL: m.api.base}
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go m.send(ctx)
	return m, nil
}

// retry sends a request again where a server is busy, but for one that makes a run: a gateway may say 503 of a server
// that has made it. Where an answer was lost, the run is looked for by its tag: see create.
func retry(ctx context.Context, r *http.Response, err error) (bool, error) {
	busy := err == nil && (r.StatusCode == http.StatusTooManyRequests ||
		r.StatusCode == http.StatusServiceUnavailable && !strings.HasSuffix(r.Request.URL.Path, "/runs/create"))
	return busy, ctx.Err()
}

// AddRecord has the sender look at metrics.jsonl.
func (m *MLflow) AddRecord(run.Record) {
	select {
	case m.wake <- struct{}{}:
	default: // the sender is about to look
	}
}

// AddSamples does nothing: samples stay in the run folder.
func (*MLflow) AddSamples(int, []byte) {}

// Rewind does nothing: what was removed is measured again.
func (*MLflow) Rewind() {}

// Close sends what is left and ends the server's run, within the patience.
func (m *MLflow) Close() {
	stop := time.AfterFunc(m.patience, m.cancel)
	defer stop.Stop()
	close(m.wake)
	<-m.done
	m.cancel()
	if records, _ := m.Folder.ReadMetrics(); m.warned && len(records) > m.state.Sent {
		m.Warn("MLflow: %d of %d records were not sent; they are in %s, and a resumed run sends them",
			len(records)-m.state.Sent, len(records), m.Folder.Path("metrics.jsonl"))
	}
}

// send sends what is there whenever there is something, and ends the run when there will be no more.
func (m *MLflow) send(ctx context.Context) {
	defer close(m.done)
	for range m.wake {
		m.report(m.flush(ctx))
	}
	err := m.flush(ctx)
	if err == nil && m.state.Run != "" {
		status := "KILLED" // one that was stopped, or failed, has no summary
		if run.Finished(m.Folder.Dir) {
			status = "FINISHED"
		}
		err = m.update(ctx, status, map[string]any{"end_time": time.Now().UnixMilli()})
	}
	m.report(err)
}

// report warns of the first fault.
func (m *MLflow) report(err error) {
	if err != nil && !m.warned {
		m.warned = true
		m.Warn("MLflow: %v; training continues, and what was not sent is tried again with the next record", err)
	}
}

// flush sends the records that the server lacks. Those that it has from before a resumption come again in the file.
func (m *MLflow) flush(ctx context.Context) error {
	records, err := m.Folder.ReadMetrics()
	if err != nil || len(records) <= m.state.Sent {
		return err
	}
	if err := m.open(ctx); err != nil {
		return err
	}
	for m.state.Sent < len(records) {
		batch := firstMetrics(records[m.state.Sent:])
		if err := m.log(ctx, "metrics", metricsOf(batch)); err != nil {
			return err
		}
		m.state.Sent += len(batch)
		if err := m.save(); err != nil {
			return err
		}
	}
	return nil
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

// open makes the server's run, or continues the earlier one, and gives it the keys of the config as parameters.
func (m *MLflow) open(ctx context.Context) (err error) {
	switch {
	case m.opened:
		return nil
	case m.state.Run == "":
		err = m.create(ctx)
	default:
		err = m.update(ctx, "RUNNING", map[string]any{})
	}
	if err == nil && !m.state.Described {
		err = m.describe(ctx)
	}
	m.opened = err == nil
	return err
}

// create makes a run of the experiment, named after the run folder, unless an earlier attempt did whose answer was lost.
func (m *MLflow) create(ctx context.Context) (err error) {
	if m.state.Experiment, err = m.api.experiment(ctx, m.experiment); err != nil {
		return err
	}
	if m.state.Tag == "" {
		m.state.Tag = rand.Text()
	} else if m.state.Run, err = m.api.find(ctx, m.state.Experiment, m.state.Tag); err != nil {
		return err
	}
	if err := m.save(); err != nil || m.state.Run != "" {
		return err
	}
	dir, err := filepath.Abs(m.Folder.Dir)
	if err == nil {
		m.state.Run, err = m.api.create(ctx, m.state.Experiment, filepath.Base(dir), "posttrain "+m.Command, m.state.Tag)
	}
	if err != nil {
		return err
	}
	return m.save()
}

func (m *MLflow) describe(ctx context.Context) error {
	keys, err := config.Changes(nil, m.Config)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(keys, mostParams) {
		var params []map[string]string
		for _, k := range part {
			params = append(params, map[string]string{"key": k.Key, "value": shorten(k.Now, longestParam)})
		}
		if err := m.log(ctx, "params", params); err != nil {
			return err
		}
	}
	m.state.Described = true
	return m.save()
}

// log sends some metrics or params.
func (m *MLflow) log(ctx context.Context, what string, all any) error {
	return m.api.post(ctx, "runs/log-batch", map[string]any{"run_id": m.state.Run, what: all}, nil)
}

func (m *MLflow) update(ctx context.Context, status string, what map[string]any) error {
	what["run_id"], what["status"] = m.state.Run, status
	return m.api.post(ctx, "runs/update", what, nil)
}

func (m *MLflow) save() error {
	text, err := json.MarshalIndent(m.state, "", "  ")
	if err != nil {
		return err
	}
	return m.Folder.WriteFile(mlflowFile, append(text, '\n'))
}
