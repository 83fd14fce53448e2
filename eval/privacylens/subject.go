package privacylens

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

// subject is the model under test. A local one is loaded when it is first needed: a run that has all of its actions
// does without.
type subject struct {
	server *rollout.Remote // nil: a local model
	load   func() (*local.Model, error)
	loaded *local.Model
}

// grace is how long a stop waits for the answers of a server that are under way.
const grace = time.Minute

// openSubject opens the model under test. A local one is loaded at once for a new run, so that a wrong folder leaves
// nothing behind.
func (e *evaluation) openSubject() (err error) {
	c, s := e.Agent, &subject{}
	e.subject = s
	s.load = sync.OnceValues(func() (m *local.Model, err error) {
		s.loaded, err = local.OpenWith(local.Options{Backend: c.Backend, Model: c.Model, Adapter: c.Adapter,
			CacheGB: c.CacheGB})
		return s.loaded, err
	})
	if c.Way() == AgentServer {
		s.server, err = rollout.NewRemote(rollout.RemoteOptions{
			BaseURL: c.BaseURL, Model: c.APIModel, Key: os.Getenv(c.KeyEnv), KeyName: c.KeyEnv,
			Parallel: c.Parallel, Timeout: c.Timeout, Grace: grace, Warn: e.reporter.Warn,
		})
	} else if !e.continues {
		_, err = s.load()
	}
	return err
}

// Answer implements [rollout.Chat].
func (s *subject) Answer(ctx context.Context, talks []rollout.Conversation) ([][]rollout.Answer, error) {
	if s.server != nil {
		return s.server.Answer(ctx, talks)
	}
	m, err := s.load()
	if err != nil {
		return nil, err
	}
	return m.Chat(nil).Answer(ctx, talks)
}

// fits says whether a local model has room for a prompt and an answer's first token.
func (s *subject) fits(talk rollout.Conversation) (bool, error) {
	n, positions, err := s.measure(talk)
	return n < positions, err
}

// measure gives the length of a prompt in tokens, and the number of positions of the local model.
func (s *subject) measure(talk rollout.Conversation) (n, positions int, err error) {
	m, err := s.load()
	if err != nil {
		return 0, 0, err
	}
	ids, err := m.Chat(nil).Prompt(talk)
	return len(ids), m.Model.Config.MaxPositions, err
}

// askSettings is how the model under test is asked.
func (e *evaluation) askSettings() asking {
	if e.subject.server != nil {
		return asking{Chat: e.subject, Seed: e.Seed, Parallel: e.Agent.Parallel}
	}
	return asking{Chat: e.subject, Seed: e.Seed, Batch: e.Agent.Batch, Fits: e.subject.fits}
}

// progress returns what the progress bar shows: the requests to a server, and replies that cannot be read.
func (s *subject) progress(p progress) map[string]float64 {
	values := map[string]float64{}
	if s.server != nil {
		values["requests"] = float64(s.server.Usage().Requests)
	}
	if p.Unparsed > 0 {
		values["unparsed"] = float64(p.Unparsed)
	}
	return values
}

func (s *subject) close() {
	if s.loaded != nil {
		s.loaded.Close()
	}
}

// prepareProbe opens the model under test.
func (e *evaluation) prepareProbe() error {
	if !e.runs(StageProbe) {
		return nil
	}
	return e.openSubject()
}

// prepareActions opens the model under test and reads its prompts.
func (e *evaluation) prepareActions() (err error) {
	a := e.Agent
	if way := a.Way(); !e.runs(StageActions) || way == AgentRecorded || way == "" { // a replay needs no agent
		return nil
	}
	if err := e.openSubject(); err != nil {
		return err
	}
	o := &e.actions
	o.asking, o.Sampling, o.Think = e.askSettings(), a.Sampling, a.Prompt == CoT
	if a.Prefill {
		o.Prefill = ci.ThinkPrefill
	}
	if a.Recorded != "" {
		o.Prompts, err = readAgentPrompts(a.Recorded, a.Prompt, e.cases)
	} else {
		o.Prompts, err = e.prompts.Agent(a.Prompt)
	}
	if err != nil {
		return err
	}
	if o.Settings, err = e.settingsOfActions(); err != nil || e.continues || e.subject.server != nil {
		return err
	}
	return e.checkRoom()
}

// checkRoom wants at least one prompt that fits the local model.
func (e *evaluation) checkRoom() error {
	shortest, positions := math.MaxInt, 0
	for i := range e.cases {
		talk, err := e.actions.Conversation(&e.cases[i])
		if err != nil {
			return err
		}
		n, room, err := e.subject.measure(talk)
		if err != nil {
			return err
		}
		if shortest, positions = min(shortest, n), room; shortest < positions {
			return nil
		}
	}
	return fmt.Errorf("no prompt fits the model: %s has %d positions, the shortest prompt has %d tokens",
		e.Agent.Model, positions, shortest)
}

// checkKeys wants the keys without which servers refuse.
func (e *evaluation) checkKeys() error {
	if a := e.Agent; a.Way() == AgentServer && (e.runs(StageActions) || e.runs(StageProbe)) {
		if err := checkKey("agent", a.KeyEnv, a.BaseURL); err != nil {
			return err
		}
	}
	if j := e.Judge; j.Kind == KindModel && e.runs(StageJudge) {
		return checkKey("judge", j.KeyEnv, j.BaseURL)
	}
	return nil
}

// MissingKey is the error for a server's key that is not in the environment.
type MissingKey struct {
	Section  string // of the options: agent or judge
	Variable string // the environment variable
	URL      string // of the server
}

func (m MissingKey) Error() string {
	return fmt.Sprintf("no key for the %s: the environment variable %s is not set, and %s wants a key; "+
		"set it, or name another with %s.api_key_env", m.Section, m.Variable, m.URL, m.Section)
}

// checkKey wants a key from OpenAI's own server, and wherever its variable is not the default one: other servers often
// need no key.
func checkKey(section, variable, url string) error {
	key := os.Getenv(variable)
	switch {
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("the environment variable %s contains white space or other characters that no key has: "+
			"set it again", variable)
	case key == "" && (variable != DefaultKeyEnv || strings.TrimRight(url, "/") == DefaultBaseURL):
		return MissingKey{section, variable, url}
	}
	return nil
}
