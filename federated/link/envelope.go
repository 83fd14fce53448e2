package link

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/posttrain/posttrain/federated/protocol"
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
// name: updates, other envelopes, and requests for chunks of a task; the server's envelopes, and its requests for
// chunks of an update.
func subject(run, what, agent string) string     { return "fed." + run + "." + what + "." + agent }
func instanceOf(subject, instance string) string { return subject + "." + instance }
func inboxPrefix(agent string) string            { return "_INBOX_" + agent }

// openRun is where an agent without credentials asks for the run's id.
const openRun = "fed.run"

// op says what an envelope is for.
type op string

// Envelopes of agents, and the server's answers.
const (
	opHello  op = "hello"  // agent: who am I, and what does the run train?
	opJoin   op = "join"   // agent: this is what I train; server: a task, or wait
	opAsk    op = "ask"    // agent: what is my task, and what became of my update?
	opBye    op = "bye"    // agent: it ends
	opUpdate op = "update" // agent: what it has made
	opConfig op = "config" // server, to hello
	opTask   op = "task"   // server: the current task, with a receipt where there is one
	opWait   op = "wait"   // server: nothing to do now; with a receipt where there is one
	opRefuse op = "refuse" // server: the agent must end
)

// envelope is what server and agent send each other. The line of JSON comes first, then the blob.
type envelope struct {
	Op       op     `json:"op"`
	Run      string `json:"run"`
	Agent    string `json:"agent"`
	Instance string `json:"instance"` // process of the agent
	Protocol int    `json:"protocol"`

	// What the blob is: a message, in the envelope or as an object that the receiver pulls.
	Key    taskKey `json:"key"` // of the task, or the update
	Object *object `json:"object,omitempty"`

	Identity *protocol.Identity `json:"identity,omitempty"` // join
	Whole    bool               `json:"whole,omitempty"`    // join: the agent wants its task with all vectors
	Config   *runConfig         `json:"config,omitempty"`   // config
	Receipt  *receipt           `json:"receipt,omitempty"`
	Reason   string             `json:"reason,omitempty"` // refuse: one line

	blob []byte
}

// taskKey names a task of an agent, and the update that answers it.
type taskKey struct {
	Kind    protocol.Kind `json:"kind,omitempty"`
	Version int           `json:"version"`
	Step    int           `json:"step"`
	Attempt int           `json:"attempt,omitempty"`
}

func keyOfTask(t protocol.Task) taskKey     { return taskKey{t.Kind, t.Version, t.Step, t.Attempt} }
func keyOfUpdate(u protocol.Update) taskKey { return taskKey{u.Kind, u.Version, u.Step, u.Attempt} }

func (k taskKey) String() string {
	return fmt.Sprintf("%s-%d-%d-%d", k.Kind, k.Version, k.Step, k.Attempt)
}

// object is a blob that the sender offers.
type object struct {
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
}

// receipt is what became of an update.
type receipt struct {
	Key      taskKey `json:"key"`
	Accepted bool    `json:"accepted"`
	Reason   string  `json:"reason,omitempty"`
	Detail   string  `json:"detail,omitempty"`
	Bound    float64 `json:"bound,omitempty"`
	Version  int     `json:"version"` // of the server after it
}

// runConfig is what an agent needs to build its workload.
type runConfig struct {
	Number int    `json:"number"` // of the agent
	Text   string `json:"text"`   // the run's configuration, YAML
	Type   string `json:"type"`   // of numbers on the wire
}

// Headers of an envelope.
const (
	sumHeader       = "Sum"
	signatureHeader = "Sig"
)

// seal writes an envelope. With a key it is signed.
func (e *envelope) seal(subject string, key nkeys.KeyPair) (*nats.Msg, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	m := nats.NewMsg(subject)
	m.Data = append(append(line, '\n'), e.blob...)
	sum := sha256.Sum256(m.Data)
	m.Header.Set(sumHeader, hex.EncodeToString(sum[:]))
	if key != nil {
		sig, err := key.Sign(sum[:])
		if err != nil {
			return nil, err
		}
		m.Header.Set(signatureHeader, base64.RawURLEncoding.EncodeToString(sig))
	}
	return m, nil
}

// unseal reads an envelope. A public key checks its signature.
func unseal(m *nats.Msg, run, public string) (*envelope, error) {
	sum := sha256.Sum256(m.Data)
	if m.Header.Get(sumHeader) != hex.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("%w: its SHA-256 is not that of its header", ErrDamaged)
	}
	if public != "" {
		if err := verify(public, sum[:], m.Header.Get(signatureHeader)); err != nil {
			return nil, fmt.Errorf("%w: not signed with the sender's key", ErrForeign)
		}
	}
	line, blob, ok := bytes.Cut(m.Data, []byte{'\n'})
	l := new(envelope)
	if !ok || json.Unmarshal(line, l) != nil || !l.Key.Kind.Known() && l.Key.Kind != "" {
		return nil, fmt.Errorf("%w: not a message of posttrain federated", ErrForeign)
	}
	if l.Run != run {
		return nil, fmt.Errorf("%w: found run %q, want %q", ErrForeign, l.Run, run)
	}
	l.blob = blob
	return l, nil
}

// verify checks that the holder of a public key has signed a text.
func verify(public string, text []byte, signature string) error {
	pair, err := nkeys.FromPublicKey(public)
	if err != nil {
		return err
	}
	sig, err := base64.RawURLEncoding.DecodeString(signature)
	return errors.Join(err, pair.Verify(text, sig))
}
