// Package track shows a run to tools beside the run folder: TensorBoard, an MLflow server, Prometheus. Each is a
// [run.Watcher] of the folder: it hears of a record or a sample after metrics.jsonl or samples.jsonl has it. A run
// resumes from the folder, and what a fault has kept back is read from it again. No fault of theirs stops a training:
// the first one is a warning.
//
// [Options] are the section tracking of a config, the same for every command that trains, and [Options.Watch] attaches
// what they name.
package track

import (
	"fmt"
	"net"
	"net/url"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
)

// Options say where a run is shown, beside its folder. They change no result: a run may resume with others.
type Options struct {
	TensorBoard bool   `yaml:"tensorboard,omitempty" flag:"tensorboard" help:"write event files for TensorBoard into RUN/tensorboard"`
	MLflow      string `yaml:"mlflow,omitempty" needs:"hosts" flag:"mlflow" help:"URL of an MLflow server that gets metrics and config"`
	Experiment  string `yaml:"mlflow_experiment,omitempty" help:"the experiment that its run belongs to; empty: posttrain"`
	Listen      string `yaml:"metrics_listen,omitempty" flag:"metrics-listen" help:"HOST:PORT where /metrics is served to Prometheus while the run goes on"`
}

// Check refuses a server that is no URL, an experiment without a server, and an address without a port.
func (o Options) Check() []fault.Fault {
	faults := fault.Check(o)
	if u, err := url.Parse(o.MLflow); o.MLflow != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "") {
		faults.Add("mlflow", o.MLflow, "want the URL of an MLflow server, such as http://localhost:5000, without a "+
			"key in it (%s, or %s and %s, have it)", tokenVariable, userVariable, passwordVariable)
	}
	if o.Experiment != "" && o.MLflow == "" {
		faults.Add("mlflow_experiment", o.Experiment, "tracking.mlflow names no server; give it, or remove this")
	}
	if _, _, err := net.SplitHostPort(o.Listen); o.Listen != "" && err != nil {
		faults.Add("metrics_listen", o.Listen, "want HOST:PORT, such as 127.0.0.1:9100")
	}
	return faults
}

// Try says whether the address can be served, ahead of a run, so that a taken one leaves no run folder behind.
func (o Options) Try() error {
	if o.Listen == "" {
		return nil
	}
	l, err := listen(o.Listen)
	if err != nil {
		return err
	}
	return l.Close()
}

// Subject is the run that is shown.
type Subject struct {
	Folder  *run.Folder
	Command string
	Config  []byte // the one in force
	run.Reporter
}

// quiet is the part of a watcher that shows records alone.
type quiet struct{}

// Sampled does nothing: samples stay in the run folder.
func (quiet) Sampled(int, []byte) {}

// Cut does nothing: what was removed is measured again.
func (quiet) Cut() {}

// Watch attaches to a run's folder what the options name. The folder closes it.
func (o Options) Watch(s Subject) error {
	if o.TensorBoard {
		s.Folder.Watch(NewTensorBoard(s.Folder, s.Reporter))
	}
	if o.MLflow != "" {
		m, err := NewMLflow(o, s)
		if err != nil {
			return fmt.Errorf("tracking.mlflow: %w", err)
		}
		s.Folder.Watch(m)
	}
	if o.Listen != "" {
		p, err := NewPrometheus(o.Listen, s)
		if err != nil {
			return err
		}
		s.Folder.Watch(p)
	}
	return nil
}
