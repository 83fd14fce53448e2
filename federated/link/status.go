package link

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/posttrain/posttrain/federated/protocol"
)

// Status is what a server knows of its run. It is stored as status.json in the run folder.
type Status struct {
	Run     string         `json:"run"`
	Server  string         `json:"server"` // URL
	PID     int            `json:"pid"`
	Version int            `json:"version"`
	Done    bool           `json:"done"`
	Written time.Time      `json:"written"`
	Refused map[string]int `json:"refused"` // updates, by reason
	Agents  []*AgentStatus `json:"agents"`  // by number
}

// AgentStatus is what the server knows of an agent.
type AgentStatus struct {
	Name         string    `json:"name"`
	Number       int       `json:"number"`
	Seen         time.Time `json:"seen"`    // last letter
	Updates      int       `json:"updates"` // accepted
	Delay        int       `json:"delay"`   // of the last one, in versions
	Up           int64     `json:"up"`      // bytes of numbers in its updates
	UpMessages   int       `json:"up_messages"`
	Down         int64     `json:"down"` // bytes of numbers in its tasks
	DownMessages int       `json:"down_messages"`
	Socket       Traffic   `json:"socket"` // what its process counted on its sockets

	Validation *protocol.Validation `json:"validation,omitempty"` // its last one that counts
}

func (a *AgentStatus) seen(l *letter) {
	a.Seen = time.Now()
	if l.Socket != nil && l.Socket.Sent >= a.Socket.Sent { // not a letter that waited
		a.Socket = *l.Socket
	}
}

// Agent finds an agent, or adds it.
func (s *Status) Agent(name string, number int) *AgentStatus {
	for _, a := range s.Agents {
		if a != nil && a.Name == name && a.Number == number {
			return a
		}
	}
	a := &AgentStatus{Name: name, Number: number}
	s.Agents = append(s.Agents, a)
	return a
}

func (s *Status) add(a *AgentStatus) {
	s.Agents = append(s.Agents, a)
	slices.SortFunc(s.Agents, func(a, b *AgentStatus) int { return a.Number - b.Number })
}

// String is the status as a table.
func (s Status) String() string {
	var b strings.Builder
	state := "running"
	if s.Done {
		state = "done"
	}
	fmt.Fprintf(&b, "Run %s (%s): version %d, written %s\n", s.Run, state, s.Version,
		s.Written.Format(time.DateTime))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "agent\tname\tlast contact\tupdates\tdelay\tbytes up\tbytes down\tsocket up\tsocket down")
	for _, a := range s.Agents {
		seen := "never"
		if !a.Seen.IsZero() {
			seen = a.Seen.Format(time.TimeOnly)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", a.Number, a.Name, seen, a.Updates, a.Delay, a.Up,
			a.Down, a.Socket.Sent, a.Socket.Received)
	}
	w.Flush()
	for _, a := range s.Agents {
		if v := a.Validation; v != nil {
			fmt.Fprintf(&b, "validation of agent %d: %v\n", a.Number, v)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Refused)) {
		fmt.Fprintf(&b, "refused (%s): %d\n", reason, s.Refused[reason])
	}
	return b.String()
}
