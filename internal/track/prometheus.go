package track

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// Prometheus serves the last values of a run's metrics at /metrics.
type Prometheus struct {
	quiet
	server *http.Server
	labels prometheus.Labels

	mu     sync.Mutex
	step   int
	values map[string]float64
}

// NewPrometheus listens on an address and serves a run, whose folder it does not watch yet.
func NewPrometheus(addr string, s Subject) (*Prometheus, error) {
	dir, err := filepath.Abs(s.Folder.Dir)
	if err != nil {
		return nil, err
	}
	l, err := listen(addr)
	if err != nil {
		return nil, err
	}
	p := &Prometheus{values: map[string]float64{}, labels: labelsOf(s.Command, dir)}
	registry := prometheus.NewRegistry()
	registry.MustRegister(p, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	p.server = &http.Server{Handler: ownHosts(mux, addr), ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	go p.server.Serve(l) // until Close
	s.Say("metrics for Prometheus: http://%s/metrics", l.Addr())
	return p, nil
}

// ownHosts refuses requests that use another name than this machine's or the one of tracking.metrics_listen: those of
// pages of a site that points its own name here (DNS rebinding).
func ownHosts(next http.Handler, addr string) http.Handler {
	hosts := config.OwnHosts(config.HostOf(addr))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hosts.Own(r.Host) {
			http.Error(w, "want an address, localhost, this machine's name or the host of tracking.metrics_listen in "+
				"the place of this host name", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// labelsOf names a run by its command and its folder. Labels are UTF-8, and a folder's name need not be.
func labelsOf(command, dir string) prometheus.Labels {
	return prometheus.Labels{"command": command, "run": strings.ToValidUTF8(filepath.Base(dir), "?")}
}

// listen opens the address tracking.metrics_listen.
func listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err // without the address again
	}
	if err != nil {
		return nil, fmt.Errorf("tracking.metrics_listen %s: %w", addr, err)
	}
	return l, nil
}

// Logged keeps the record's values. A metric that it lacks, such as one of a validation, keeps its last one.
func (p *Prometheus) Logged(r run.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = r.Step
	p.values["epoch"] = r.Epoch
	maps.Copy(p.values, r.Values)
}

// Close ends the server; a scrape under way has a second.
func (p *Prometheus) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close() // the process would close it too
	}
}

// Describe gives nothing: which metrics there are shows while a run goes on.
func (p *Prometheus) Describe(chan<- *prometheus.Desc) {}

// Collect gives the last values as gauges.
func (p *Prometheus) Collect(to chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gauge := func(name, help string, x float64) {
		desc := prometheus.NewDesc(name, help, nil, p.labels)
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, x)
	}
	gauge("posttrain_step", "Updates done.", float64(p.step))
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		gauge(gaugeName(name), "The last "+name+" in metrics.jsonl.", p.values[name])
	}
}

// gaugeName is a metric's name of the characters that Prometheus allows: rewards/margins is posttrain_rewards_margins.
func gaugeName(metric string) string {
	return "posttrain_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, metric)
}
