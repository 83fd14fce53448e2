package link

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
)

// NewRunID draws the id of a run.
func NewRunID() string {
	b := make([]byte, 8)
	rand.Read(b)
	return hex.EncodeToString(b)
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)

// CheckName refuses a name of an agent that cannot be part of a subject.
func CheckName(name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("agent %q: want 1 to 32 letters, digits, - or _, the first a letter or digit", name)
}

// Subjects and buckets of a run. An agent publishes to up and ask and listens to to and ping, under its own name.
func subject(run, what, agent string) string     { return "fed." + run + "." + what + "." + agent }
func instanceOf(subject, instance string) string { return subject + "." + instance }
func logName(run string) string                  { return "FED_" + run }
func bucketName(run, direction, agent string) string {
	return "fed-" + run + "-" + direction + "-" + agent
}
func inboxPrefix(agent string) string { return "_INBOX_" + agent }

// everyInstance is the name of all processes of an agent.
const everyInstance = "all"

// openRun is where an agent without credentials asks for the run's id.
const openRun = "fed.run"

// Rights are the subjects that one client of the broker may publish to and listen to.
type Rights struct {
	Publish   []string `json:"publish"`
	Subscribe []string `json:"subscribe"`
}

// RightsOf lists what an agent may do: its own subjects, its own two buckets, and nothing else.
func RightsOf(run, agent string) Rights {
	up, down := bucketName(run, "up", agent), bucketName(run, "down", agent)
	publish := []string{subject(run, "up", agent), subject(run, "ask", agent), "$O." + up + ".>",
		"$JS.API.DIRECT.GET.OBJ_" + down}
	return Rights{publish, []string{subject(run, "to", agent) + ".>", subject(run, "ping", agent) + ".>",
		inboxPrefix(agent) + ".>"}}
}
