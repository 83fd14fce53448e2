// Package track shows a run to tools beside the run folder: TensorBoard, an MLflow server, Prometheus. Each is a
// [run.Watcher] of the folder: it hears of a record or a sample after metrics.jsonl or samples.jsonl has it. The folder
// stays what a run resumes from, and what is sent anew after a fault.
//
// [Options] are the section tracking of a config, the same for every command that trains, and [Options.Watch] attaches
// what they name.
package track

import (
	"github.com/posttrain/posttrain/run"
)

// Options say where a run is shown, beside its folder. They change no result: a run may resume with others.
type Options struct {
	// event files in RUN/tensorboard
	TensorBoard bool `yaml:"tensorboard,omitempty"`
}

// Watch attaches to a run folder what the options name. The folder closes it.
func (o Options) Watch(f *run.Folder) error {
	if o.TensorBoard {
		f.Watch(NewTensorBoard(f))
	}
	return nil
}
