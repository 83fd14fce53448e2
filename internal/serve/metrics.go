package serve

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what /metrics gives to Prometheus.
type metrics struct {
	registry      *prometheus.Registry
	requests      *prometheus.CounterVec   // by path and status
	seconds       *prometheus.HistogramVec // of answered requests, by path
	prompt, drawn prometheus.Counter       // tokens of answered requests
}

func newMetrics(q *queue) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "posttrain_requests_total",
			Help: "Requests for answers that have ended; status 499: the client had gone."},
			[]string{"path", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "posttrain_request_seconds",
			Help:    "Seconds from a request to the end of its answers, of those that the sampler got.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 14)}, []string{"path"}),
		prompt: prometheus.NewCounter(prometheus.CounterOpts{Name: "posttrain_prompt_tokens_total",
			Help: "Tokens of the prompts of requests that were answered."}),
		drawn: prometheus.NewCounter(prometheus.CounterOpts{Name: "posttrain_generated_tokens_total",
			Help: "Tokens of the answers to requests that were answered."}),
	}
	count := func(name, help string, which func(running, waiting int) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			return float64(which(q.counts()))
		})
	}
	m.registry.MustRegister(m.requests, m.seconds, m.prompt, m.drawn,
		count("posttrain_requests_running", "Requests under way.", func(running, _ int) int { return running }),
		count("posttrain_requests_waiting", "Requests that wait.", func(_, waiting int) int { return waiting }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.HandlerFunc {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP
}

// refuse counts a request that did not get into the queue.
func (m *metrics) refuse(path string, status int) {
	m.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
}

// answer counts a request that left the queue after some seconds.
func (m *metrics) answer(path string, status int, seconds float64, j *job) {
	m.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(path).Observe(seconds)
	if status == http.StatusOK {
		m.prompt.Add(float64(len(j.requests[0].Prompt)))
		m.drawn.Add(float64(j.countTokens()))
	}
}
