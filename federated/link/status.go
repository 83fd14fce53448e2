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
	Name    string    `json:"name"`
	Number  int       `json:"number"`
	Seen    time.Time `json:"seen"`    // last envelope to this process of the server
	Updates int       `json:"updates"` // that count, of a batch each
	Up      int64     `json:"up"`      // bytes of numbers in its updates
	Down    int64     `json:"down"`    // bytes of numbers in its tasks

	Validation *protocol.Validation `json:"validation,omitempty"` // its last one that counts
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
	fmt.Fprintln(w, "agent\tname\tlast contact\tupdates\tbytes up\tbytes down")
	for _, a := range s.Agents {
		seen := "never"
		if !a.Seen.IsZero() {
			seen = a.Seen.Format(time.TimeOnly)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%d\n", a.Number, a.Name, seen, a.Updates, a.Up, a.Down)
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
