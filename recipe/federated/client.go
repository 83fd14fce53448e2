package federated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/federated/link"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// Client is an agent's process.
type Client struct {
	Server      string        // URL; "": the credentials' server
	Agent       string        // name; "": the credentials' agent
	Credentials string        // file; "": none, for a loopback address
	State       string        // folder
	Allow       config.Grants // what the server's configuration may have done
	Data        string        // file with the agent's own items or pairs; "": those that it is dealt
}

// TakePart works for a run until its server ends it.
func TakePart(ctx context.Context, c Client, r run.Reporter) error {
	r = run.Listen(r)
	if _, err := os.Stat(c.Data); c.Data != "" && err != nil {
		return fmt.Errorf("--data %s: %w", c.Data, run.Cause(err))
	}
	w := &working{data: c.Data, allow: c.Allow, fetch: func(o *Options) error {
		o.heard = r
		return hub.FromEnv().Pin(ctx, o, hub.Models, r)
	}}
	defer w.close()
	o := link.AgentOptions{Server: c.Server, Name: c.Agent, Dir: c.State, Build: w.build, Say: r.Say, Warn: r.Warn}
	if c.Credentials != "" {
		read, err := link.ReadCredentials(c.Credentials)
		if err != nil {
			return err
		}
		o.Credentials, o.Server, o.Name = read, cmp.Or(o.Server, read.Server), cmp.Or(o.Name, read.Agent)
		if info, err := os.Stat(c.Credentials); err == nil && info.Mode().Perm()&0o077 != 0 {
			r.Warn("credentials %s: other users may read the secret key in it: want chmod 600 %s", c.Credentials,
				c.Credentials)
		}
	}
	switch {
	case o.Server == "":
		return errors.New("--server is missing: want a URL such as nats://127.0.0.1:4222, or --credentials FILE")
	case o.Name == "":
		return errors.New("--agent is missing: want the agent's name, or --credentials FILE")
	}
	err := link.RunAgent(ctx, o)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: the same command continues", recipe.ErrInterrupted)
	}
	return err
}

// working has the options of a run that an agent takes part in.
type working struct {
	*Options
	data  string // the agent's own file
	allow config.Grants
	fetch func(*Options) error // a model of the hub; nil: the cache has it
}

func (w *working) close() {
	if w.Options != nil {
		w.Options.Close()
	}
}

// build makes the worker from the server's configuration.
func (w *working) build(number int, text string) (link.Worker, int, error) {
	o, err := agentSpec.Parse("the server's configuration", []byte(text),
		config.Input{Allow: w.allow})
	if err != nil {
		return nil, 0, err
	}
	if w.data != "" && !o.ofModels() {
		return nil, 0, fmt.Errorf("--data %s: workload %s has no data: remove it, or take part in one of workload %s "+
			"or %s", w.data, o.Workload, CIRLName, MaPPOName)
	}
	if w.fetch != nil {
		if err := w.fetch(o); err != nil {
			return nil, 0, err
		}
	}
	w.close()
	o.items, w.Options = w.data, o
	work, err := o.NewWorkload(number)
	if err != nil {
		return nil, 0, err
	}
	a, err := protocol.NewAgent(number, work, o.Options)
	return a, len(work.Start()), err
}

// Invitation asks for the credentials of an agent.
type Invitation struct {
	Run    string // folder
	Agent  string
	Server string // URL that the agent connects to; "": as the server was started
	Out    string // file; "": AGENT.json
}

// Invite writes credentials, and says what it did.
func Invite(i Invitation) (string, error) {
	linked, err := readLinked(i.Run)
	if err != nil {
		return "", err
	}
	keys, err := link.OpenKeys(filepath.Join(i.Run, keysName))
	if err != nil {
		return "", err
	}
	i.Out, i.Server = cmp.Or(i.Out, i.Agent+".json"), cmp.Or(i.Server, linked.Server)
	c, err := keys.Invite(linked.Run, i.Agent, i.Server)
	if err != nil {
		return "", err
	}
	if err := c.Write(i.Out); err != nil {
		return "", errors.Join(err, keys.Revoke(i.Agent))
	}
	return fmt.Sprintf("Credentials of agent %s: %s (secret: give them to this agent alone)\nIt takes part with: "+
		"posttrain federated client --credentials %s\n", i.Agent, i.Out, i.Out), nil
}

// Revoke takes an agent's credentials back, and says so.
func Revoke(dir, agent string) (string, error) {
	if _, err := readLinked(dir); err != nil {
		return "", err
	}
	keys, err := link.OpenKeys(filepath.Join(dir, keysName))
	if err == nil {
		err = keys.Revoke(agent)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Agent %s is revoked.\n", agent), nil
}
