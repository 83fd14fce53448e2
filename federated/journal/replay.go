package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/federated/wire"
	"github.com/posttrain/posttrain/internal/run"
)

// Report is what [Replay] has found.
type Report struct {
	Form      wire.Form
	Start     int // event of the snapshot that it begins with; 0: the start of the run
	Events    int // all of the journal
	Updates   int
	Accepted  int
	Refused   map[string]int // updates by reason
	Version   int            // at the end
	Params    string         // [Hash] of θ at the end
	Snapshots []Compared     // oldest first
	Torn      int            // number of the last line if a crash, or a server at work, left half of it; else 0
}

// Compared is a snapshot beside what the journal gives at its event.
type Compared struct {
	Dir        string
	Event      int
	Version    int
	Params     string // [Hash] of its θ
	Difference string // the first, in words; "": none
}

// replayer applies a journal to a new server and compares it with the snapshots on the way.
type replayer struct {
	dir    string
	build  func(wire.Form) (protocol.Server, error)
	server protocol.Server
	last   result
	due    []Compared // snapshots that are still to be reached, oldest first
	gone   int        // the events up to this one have no files
	Report
}

// Replay applies the whole journal of a run's folder to a new server, which build makes, and compares each snapshot
// with it bit for bit. It changes nothing, and a server may be at work in the folder. An event that leads to something
// else than before is an error.
func Replay(dir string, build func(wire.Form) (protocol.Server, error)) (Report, error) {
	p := &replayer{dir: dir, build: build, Report: Report{Refused: map[string]int{}}}
	if err := p.findSnapshots(); err != nil {
		return p.Report, err
	}
	r := &reader{path: (&run.Folder{Dir: dir}).Path(Name)}
	nothing := &reader{path: r.path, event: func(Event) error { return nil }, pruned: func(n int) { p.gone = n },
		result: func(Event, result) error { return nil }}
	if err := nothing.read(); err != nil {
		return p.Report, err
	}
	r.event = func(e Event) error { return p.event(*r.form, e) }
	r.result = func(e Event, found result) error {
		if e.N > p.Start && found != p.last {
			return differs(found, p.last)
		}
		return nil
	}
	if err := r.read(); err != nil {
		return p.Report, err
	}
	if _, err := os.Stat(r.path); errors.Is(err, os.ErrNotExist) {
		return p.Report, fmt.Errorf("%s: there is no journal in it (no %s)", dir, Name)
	}
	if r.line == 0 {
		return p.Report, fmt.Errorf("%s has no whole line: there is nothing to replay", r.path)
	}
	if r.torn {
		p.Torn = r.line + 1
	}
	return p.Report, p.end(*r.form)
}

// findSnapshots lists the snapshots; a damaged one is a difference.
func (p *replayer) findSnapshots() error {
	folder := &run.Folder{Dir: p.dir}
	all, err := folder.All()
	if err != nil {
		return err
	}
	for _, c := range all {
		found := Compared{Dir: c.Dir, Version: c.Step}
		err := folder.ReadCheckpoint(c, func(dir string) error {
			s, err := readSnapshot(dir)
			found.Event, found.Params = s.Event, s.Params
			return err
		})
		if err != nil {
			found.Difference = err.Error()
			p.Snapshots = append(p.Snapshots, found)
			continue
		}
		p.due = append(p.due, found)
	}
	slices.SortStableFunc(p.due, func(a, b Compared) int { return a.Event - b.Event })
	return nil
}

// start makes the server, once.
func (p *replayer) start(form wire.Form) (err error) {
	if p.server != nil {
		return nil
	}
	p.Form = form
	if p.server, err = p.build(form); err != nil {
		return err
	}
	if p.gone > 0 {
		return p.skip()
	}
	return p.compare(0)
}

// skip begins at the oldest snapshot after the events whose files were removed.
func (p *replayer) skip() error {
	at := slices.IndexFunc(p.due, func(c Compared) bool { return c.Event >= p.gone })
	if at < 0 {
		return fmt.Errorf("%s: the updates up to event %d were removed, and no snapshot is left to begin with", p.dir,
			p.gone)
	}
	s, err := readSnapshot(p.due[at].Dir)
	if err != nil {
		return err
	}
	state, err := wire.DecodeState(p.Form.Run, s.state)
	if err != nil {
		return err
	}
	p.Start, p.due = s.Event, p.due[at+1:]
	return p.server.Restore(state)
}

func (p *replayer) event(form wire.Form, e Event) error {
	if err := p.start(form); err != nil {
		return err
	}
	if p.Events = e.N; e.N <= p.Start {
		return nil
	}
	u, err := readUpdate(p.dir, form, e)
	if err != nil {
		return err
	}
	receipt, _ := apply(p.server, e, u)
	p.last = resultOf(e, receipt, p.server)
	p.count(e, receipt)
	return p.compare(e.N)
}

func (p *replayer) count(e Event, r protocol.Receipt) {
	if e.Line != Update {
		return
	}
	p.Updates++
	if r.Accepted {
		p.Accepted++
	} else {
		p.Refused[r.Reason]++
	}
}

// compare compares the snapshots of an event with the server.
func (p *replayer) compare(event int) error {
	for len(p.due) > 0 && p.due[0].Event == event {
		c := p.due[0]
		p.due = p.due[1:]
		found, err := readSnapshot(c.Dir)
		if err != nil {
			return err
		}
		want, err := snapshotOf(p.server, p.Form.Run, event)
		if err != nil {
			return err
		}
		c.Difference = p.difference(found, want)
		p.Snapshots = append(p.Snapshots, c)
	}
	return nil
}

func (p *replayer) difference(found, want snapshot) string {
	switch {
	case found.Version != want.Version:
		return fmt.Sprintf("version %d, the journal gives %d", found.Version, want.Version)
	case found.Params != want.Params:
		return fmt.Sprintf("parameters with the SHA-256 %.12s…, the journal gives %.12s…", found.Params, want.Params)
	case bytes.Equal(found.state, want.state):
		return ""
	}
	a, err := wire.DecodeState(p.Form.Run, found.state)
	if err != nil {
		return err.Error()
	}
	b, err := wire.DecodeState(p.Form.Run, want.state)
	if err != nil {
		return err.Error()
	}
	return differenceOf(a, b)
}

// differenceOf names the first difference of two states.
func differenceOf(found, want protocol.State) string {
	if !bytes.Equal(found.Head, want.Head) {
		return fmt.Sprintf("%.200s, the journal gives %.200s", found.Head, want.Head)
	}
	for _, name := range slices.Sorted(maps.Keys(want.Vectors)) {
		a, b := found.Vectors[name], want.Vectors[name]
		if len(a) != len(b) {
			return fmt.Sprintf("%s has %d numbers, the journal gives %d", name, len(a), len(b))
		}
		for i := range a {
			if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
				return fmt.Sprintf("%s[%d] is %v, the journal gives %v", name, i, a[i], b[i])
			}
		}
	}
	return fmt.Sprintf("%d vectors, the journal gives %d", len(found.Vectors), len(want.Vectors))
}

func (p *replayer) end(form wire.Form) error {
	if err := p.start(form); err != nil {
		return err
	}
	for _, c := range p.due {
		c.Difference = fmt.Sprintf("it is of event %d, the journal ends at event %d", c.Event, p.Events)
		p.Snapshots = append(p.Snapshots, c)
	}
	p.Version, p.Params = p.server.Version(), Hash(p.server.Params())
	return nil
}
