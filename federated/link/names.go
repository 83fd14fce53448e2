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

// Subjects of a run. An agent publishes to up, ask and get, and listens to to and its own process's get, under its own
// name: updates, other letters, and requests for chunks of a task; the server's letters, and its requests for chunks of
// an update.
func subject(run, what, agent string) string     { return "fed." + run + "." + what + "." + agent }
func instanceOf(subject, instance string) string { return subject + "." + instance }
func inboxPrefix(agent string) string            { return "_INBOX_" + agent }

// everyInstance is the name of all processes of an agent.
const everyInstance = "all"

// openRun is where an agent without credentials asks for the run's id.
const openRun = "fed.run"

// rightsOf lists the subjects that an agent may publish to and listen to: its own, and no other.
func rightsOf(run, agent string) (publish, subscribe []string) {
	return []string{subject(run, "up", agent), subject(run, "ask", agent), subject(run, "get", agent)},
		[]string{subject(run, "to", agent) + ".>", subject(run, "get", agent) + ".>", inboxPrefix(agent) + ".>"}
}
