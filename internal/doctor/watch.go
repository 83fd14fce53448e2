package doctor

import "github.com/posttrain/posttrain/internal/run"

// Watch looks at a run that trains: what is found is said in a line, once.
func Watch(f *run.Folder, say func(line string)) {
	w := &watcher{folder: f, say: say, said: map[string]bool{}}
	w.Rewind()
	f.Watch(w)
}

// watcher is a [run.Watcher] that examines the log after each record.
type watcher struct {
	folder *run.Folder
	log    Log
	say    func(line string)
	said   map[string]bool // by symptom
}

func (w *watcher) AddRecord(r run.Record) {
	w.log.Records = append(w.log.Records, r)
	for _, f := range Examine(&w.log).Findings {
		if !w.said[f.Symptom] {
			w.said[f.Symptom] = true
			w.say(f.Symptom + ": " + f.Says + "; what may help: " + f.Advice)
		}
	}
}

// Rewind reads the log again. Where it cannot be read, what follows is looked at.
func (w *watcher) Rewind() { w.log.Records, _ = w.folder.ReadMetrics() }

func (w *watcher) AddSamples(int, []byte) {}

func (w *watcher) Close() {}
