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
