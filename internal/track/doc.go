// Package track shows a run to tools beside the run folder: TensorBoard and MLflow. Each is a [run.Watcher] of the
// folder: it hears of a record or a sample after metrics.jsonl or samples.jsonl has it. A run resumes from the folder,
// and what a fault has kept back is read from it again. No fault of theirs stops a training: the first one is a warning.
//
// [Options] are the section tracking of a config, the same for every command that trains, and [Options.Watch] attaches
// what they name.
package track

import (
	"fmt"
	"net/url"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
)

// Options say where a run is shown, beside its folder. They change no result: a run may resume with others.
type Options struct {
	TensorBoard bool   `yaml:"tensorboard,omitempty" flag:"tensorboard" help:"write event files for TensorBoard into RUN/tensorboard"`
	MLflow      string `yaml:"mlflow,omitempty" needs:"hosts" flag:"mlflow" help:"URL of an MLflow server that gets metrics and config"`
	Experiment  string `yaml:"mlflow_experiment,omitempty" help:"the experiment that its run belongs to; empty: posttrain"`
}

// Check refuses a server that is no URL, and an experiment without a server.
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
	return faults
}

// Subject is the run that is shown.
type Subject struct {
	Folder  *run.Folder
	Command string
	Config  []byte // the one in force
	run.Reporter
}

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
	return nil
}
