package doctor

import "github.com/posttrain/posttrain/internal/run"

// Attend looks at a run that trains: what a rule finds is said in a line, once.
func Attend(f *run.Folder, say func(line string)) {
	a := &attendance{folder: f, say: say, said: map[string]bool{}}
	a.Cut()
	f.Watch(a)
}

type attendance struct {
	folder *run.Folder
	log    Log
	say    func(line string)
	said   map[string]bool // by rule
}

func (a *attendance) Logged(r run.Record) {
	a.log.Records = append(a.log.Records, r)
	for _, f := range Examine(&a.log).Findings {
		if !a.said[f.Rule] {
			a.said[f.Rule] = true
			a.say(f.Rule + ": " + f.Says + "; what may help: " + f.Advice)
		}
	}
}

// Cut reads what the run has measured before it was resumed. Where that cannot be read, the rest is looked at.
func (a *attendance) Cut() { a.log.Records, _ = a.folder.ReadMetrics() }

func (a *attendance) Sampled(int, []byte) {}

func (a *attendance) Close() {}
