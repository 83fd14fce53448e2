package track

import (
	"io"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestPrometheus scrapes a run between two records, and not when it has ended.
func TestPrometheus(t *testing.T) {
	f, heard := newFolder(t), &testkit.Ear{}
	must(t, Options{Listen: "127.0.0.1:0"}.Watch(Subject{Folder: f, Command: "mappo", Reporter: heard}))
	url := strings.TrimPrefix(heard.Said[0], "metrics for Prometheus: ")
	must(t, f.Log(run.Record{Step: 3, Epoch: 0.5, Values: map[string]float64{"eval_loss": 0.25}}),
		f.Log(run.Record{Step: 4, Epoch: 0.75, Values: map[string]float64{"rewards/margins": math.Inf(1)}}))
	response, err := http.Get(url)
	must(t, err)
	text, err := io.ReadAll(response.Body)
	must(t, err, response.Body.Close())
	for _, want := range []string{
		"# HELP posttrain_eval_loss The last eval_loss in metrics.jsonl.\n# TYPE posttrain_eval_loss gauge\n" +
			`posttrain_eval_loss{command="mappo",run="run"} 0.25` + "\n",
		`posttrain_epoch{command="mappo",run="run"} 0.75`, `posttrain_step{command="mappo",run="run"} 4`,
		`posttrain_rewards_margins{command="mappo",run="run"} +Inf`, "go_goroutines ",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	must(t, f.Close())
	if _, err := http.Get(url); err == nil {
		t.Error("it is served after the end")
	}
}

// TestPrometheusAndOtherSites: a page of a site whose name was pointed here reads nothing, whatever the address.
func TestPrometheusAndOtherSites(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", ":0"} {
		f, heard := newFolder(t), &testkit.Ear{}
		must(t, Options{Listen: listen}.Watch(Subject{Folder: f, Command: "mappo", Reporter: heard}))
		_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(heard.Said[0],
			"metrics for Prometheus: http://"), "/metrics"))
		must(t, err)
		for _, c := range []struct {
			method, path, host string
			want               int
		}{
			{"GET", "/metrics", "", 200}, {"GET", "/metrics", "localhost:" + port, 200},
			{"GET", "/metrics", "[::1]:80", 200}, {"GET", "/metrics", "attacker.test", 403},
			{"GET", "/metrics", "127.0.0.1.attacker.test:" + port, 403}, {"GET", "/", "attacker.test", 403},
			{"GET", "/metrics/../../etc/passwd", "", 404}, {"OPTIONS", "/metrics", "", 405}, {"POST", "/metrics", "", 405},
		} {
			q, err := http.NewRequest(c.method, "http://127.0.0.1:"+port+c.path, nil)
			must(t, err)
			q.Host = c.host
			response, err := http.DefaultClient.Do(q)
			must(t, err)
			text, err := io.ReadAll(response.Body)
			must(t, err, response.Body.Close())
			if response.StatusCode != c.want || response.Header.Get("Access-Control-Allow-Origin") != "" ||
				c.want != 200 && strings.Contains(string(text), "posttrain_step") {
				t.Errorf("%s, %+v: %d %s", listen, c, response.StatusCode, text)
			}
		}
		must(t, f.Close())
	}
}

// TestPrometheusOfAnyFolder: a folder's name that is no UTF-8 cannot be a label as it is.
func TestPrometheusOfAnyFolder(t *testing.T) {
	labels := labelsOf("mappo", filepath.Join(t.TempDir(), "r\xff"))
	if labels["run"] != "r?" || labels["command"] != "mappo" {
		t.Error(labels)
	}
	_, err := prometheus.NewConstMetric(prometheus.NewDesc("m", "help", nil, labels), prometheus.GaugeValue, 1)
	must(t, err)
}

func TestPrometheusAddressIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	addr := l.Addr().String()
	err = Options{Listen: addr}.Watch(Subject{Folder: newFolder(t), Reporter: run.Listen(nil)})
	expect.Error(t, err, "tracking.metrics_listen "+addr+": bind: address already in use")
	expect.Error(t, Options{Listen: addr}.Try(), "tracking.metrics_listen "+addr+": bind: address already in use")
	must(t, Options{Listen: "127.0.0.1:0"}.Try(), Options{}.Try())
	faults := Options{Listen: "9000"}.Check()
	if len(faults) != 1 || faults[0].Error() != `metrics_listen "9000": want HOST:PORT, such as 127.0.0.1:9100` {
		t.Error(faults)
	}
}
