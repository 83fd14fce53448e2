package federated

import (
	"fmt"
	"math"
	"strings"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// Result is what a simulation leaves.
type Result struct {
	Dir     string // the run folder
	Sides   []Side // the method, and the one that it is compared with
	Summary string // in words
}

// String gives the summary.
func (r *Result) String() string { return r.Summary }

// Side is what a method has reached and cost.
type Side struct {
	Method  string  `json:"method"`
	Updates int     `json:"updates"` // or rounds
	Samples int     `json:"samples"`
	Time    float64 `json:"time"` // virtual seconds
	Up      int64   `json:"bytes_up"`
	Down    int64   `json:"bytes_down"`
	Refused int     `json:"refused"`
	Return  Spread  `json:"return"` // of the last updates
	First   Spread  `json:"first_return"`

	records []run.Record
}

// Spread is the mean and the standard deviation of the returns of some updates.
type Spread struct {
	Mean  float64 `json:"mean"`
	Std   float64 `json:"std"`
	Count int     `json:"count"`
}

func (s Spread) String() string {
	if s.Count == 0 {
		return "no episode ended"
	}
	one := form(s.Mean, "")
	return fmt.Sprintf(one+" ± "+one, s.Mean, s.Std)
}

// window is the number of updates or rounds, with an episode that ended, whose returns are averaged.
const window = 10

func (m *simulating) side(records []run.Record) Side {
	last := lastOf(records)
	s := Side{Method: m.Method, Updates: last.Step, Samples: int(last.Values["samples"]), Time: last.Values["time"],
		Refused: int(last.Values["refused"]), records: records}
	s.Up, s.Down = traffic(last, m.Agents)
	returns := run.Series(records, "return")
	n := min(window, len(returns))
	s.First, s.Return = spread(returns[:n]), spread(returns[len(returns)-n:])
	return s
}

func lastOf(records []run.Record) (last run.Record) {
	if n := len(records); n > 0 {
		last = records[n-1]
	}
	return last
}

// traffic are the bytes of all agents, up and down.
func traffic(r run.Record, agents int) (up, down int64) {
	for i := range agents {
		up += int64(r.Values[fmt.Sprintf("bytes_up/%d", i)])
		down += int64(r.Values[fmt.Sprintf("bytes_down/%d", i)])
	}
	return up, down
}

func spread(values []float64) (s Spread) {
	if s.Count = len(values); s.Count == 0 {
		return s
	}
	for _, v := range values {
		s.Mean += v / float64(s.Count)
	}
	for _, v := range values {
		s.Std += (v - s.Mean) * (v - s.Mean) / float64(max(1, s.Count-1))
	}
	s.Std = math.Sqrt(s.Std)
	return s
}

// report writes policy, picture and summary.
func (m *simulating) report(sides []Side) (*Result, error) {
	title := fmt.Sprintf("%s on %s, %s (posttrain %s)", m.Method, m.id.Task, recipe.Count(m.Agents, "agent"), Command)
	if err := m.folder.WritePanels(title, panels(sides, m.Agents)); err != nil {
		return nil, err
	}
	file := map[string]any{"command": Command, "task": m.id.Task, "agents": m.Agents, "seed": m.Seed, "times": m.times(),
		"methods": sides}
	if err := m.folder.WriteSummaryJSON(file); err != nil {
		return nil, err
	}
	records := sides[0].records
	text, err := m.conclude(m.folder, m.id, m.clock.Server.Params(),
		m.words(sides[0])+validationText(records)+m.account(records)+table(sides)+m.speedup(sides))
	if err != nil {
		return nil, err
	}
	return &Result{m.folder.Dir, sides, text}, nil
}

func (m *simulating) words(s Side) string {
	refused := ""
	if s.Refused > 0 {
		refused = fmt.Sprintf(", %d refused", s.Refused)
	}
	return fmt.Sprintf("%s on %s: %s of %s%s, %d samples.\nReturn: %v over the first %s, %v over the last %d "+
		"(mean ± standard deviation).\n", m.Method, m.id.Task, m.count(s.Updates), recipe.Count(m.Agents, "agent"),
		refused, s.Samples, s.First, m.count(s.First.Count), s.Return, s.Return.Count)
}

// validationText has the means over all agents of the first validation and of the last.
func validationText(records []run.Record) string {
	var all []protocol.Validation
	for _, r := range records {
		count, ok := r.Values["eval_count"]
		if !ok {
			continue
		}
		v := protocol.Validation{Count: int(count), Means: map[string]float64{}}
		for key, x := range r.Values {
			if name, ok := strings.CutPrefix(key, "eval_"); ok && name != "count" {
				v.Means[name] = x
			}
		}
		all = append(all, v)
	}
	if all == nil {
		return ""
	}
	return fmt.Sprintf("Validation on agents' own items: %v at first, %v at last.\n", &all[0], &all[len(all)-1])
}

// account says in a line what the sums of a run have revealed, "" without noise.
func (o *Options) account(records []run.Record) string {
	account, ok := o.Account(int(math.Round(lastOf(records).Values["sums"])))
	if !ok {
		return ""
	}
	return fmt.Sprintf("%v. Steps, episodes, returns and validations are not covered.\n", account)
}

// table compares what the methods cost.
func table(sides []Side) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%-12s %8s %9s %10s %11s %11s  %s\n", "", "versions", "samples", "time (s)", "sent up", "sent down",
		"return at the end")
	for _, one := range sides {
		fmt.Fprintf(&s, "%-12s %8d %9d %10.1f %11s %11s  %v\n", one.Method, one.Updates, one.Samples, one.Time,
			bytesText(one.Up), bytesText(one.Down), one.Return)
	}
	return s.String()
}

func bytesText(n int64) string {
	switch {
	case n < 1e4:
		return fmt.Sprintf("%d B", n)
	case n < 1e7:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// speedup compares the times of an asynchronous and a synchronous method with the formula.
func (m *simulating) speedup(sides []Side) string {
	if len(sides) < 2 || protocol.Asynchronous(sides[0].Method) == protocol.Asynchronous(sides[1].Method) {
		return ""
	}
	async, sync := sides[0], sides[1]
	if !protocol.Asynchronous(async.Method) {
		async, sync = sync, async
	}
	return fmt.Sprintf("Virtual time per sample: %s is %.2f times as fast as %s; t_max/(N·t̄) is %.2f.\n", async.Method,
		sync.Time/float64(sync.Samples)/(async.Time/float64(async.Samples)), sync.Method, federated.Speedup(m.times()))
}

// panels are return against samples and against time, lateness or KL, and bytes. The first two are always there.
func panels(sides []Side, agents int) (drawn []run.Panel) {
	for i, p := range []struct{ label, x, at, of string }{
		{"mean return", "samples of all agents", "samples", "return"},
		{"mean return", "virtual time, seconds", "time", "return"},
		{"delay in versions", "virtual time, seconds", "time", "delay"},
		{"KL of the step", "virtual time, seconds", "time", "kl"},
		{"MB sent, up and down", "virtual time, seconds", "time", ""},
	} {
		panel := run.Panel{Label: p.label, X: p.x}
		for _, s := range sides {
			line := run.Line{Name: s.Method}
			for _, r := range s.records {
				y, ok := r.Values[p.of]
				if p.of == "" {
					up, down := traffic(r, agents)
					y, ok = float64(up+down)/1e6, true
				}
				if ok {
					line.X, line.Y = append(line.X, r.Values[p.at]), append(line.Y, y)
				}
			}
			if len(line.X) > 0 {
				panel.Lines = append(panel.Lines, line)
			}
		}
		if i < 2 || len(panel.Lines) > 0 {
			drawn = append(drawn, panel)
		}
	}
	return drawn
}
