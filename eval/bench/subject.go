package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"sync"
	"time"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/remote"
)

// chooseBackend settles which engine auto is. A server's model needs no engine, and none is opened for it.
func (a *Agent) chooseBackend(r run.Reporter) {
	if a.Backend != "auto" || a.Way() != Local {
		return
	}
	var warning error
	if a.Backend, _, warning = backend.Auto(backend.Job{Sampling: true}); warning != nil {
		r.Warn("%v", warning)
	}
}

// pin notes what the prompts depend on besides the cases, where the answers have not begun in the folder: the
// template's hash and, if the template prints the date, today. Answers that have begun keep their date, which a config
// file of another folder may lack.
func (a *Agent) pin(dir string) error {
	if a.Way() != Local {
		return nil
	}
	all := Settings{}
	if dir != "" {
		var err error
		if all, err = ReadSettings(dir); err != nil {
			return err
		}
	}
	before, begun := all[StageAnswers]
	if !begun {
		return agentFault(a.Chat.Pin(a.Model, a.Adapter))
	}
	a.Chat.Date = cmp.Or(a.Chat.Date, dateAtEnd.FindString(before["chat"]))
	return nil
}

// dateAtEnd is the date in what Chat.Identify says.
var dateAtEnd = regexp.MustCompile(`\b\d{4}-\d\d-\d\d$`)

// agentFault is an error about a key of a local model, with its section.
func agentFault(err error) error {
	if err != nil {
		err = fmt.Errorf("agent.%w", err)
	}
	return err
}

// Subject is the model under test. A local one is loaded when it is first needed: a run that has all of its answers
// does without.
type Subject struct {
	config Agent
	server *remote.Client // nil: a local model
	load   func() (*local.Model, error)
	loaded *local.Model
}

// grace is how long a stop waits for the answers of a server that are under way.
const grace = time.Minute

// OpenSubject opens the model under test. now: a local one is loaded at once, so that a wrong folder leaves nothing
// behind.
func OpenSubject(c Agent, now bool, r run.Reporter) (s *Subject, err error) {
	s = &Subject{config: c}
	s.load = sync.OnceValues(func() (_ *local.Model, err error) {
		s.loaded, err = local.OpenWith(local.Options{Backend: c.Backend, Model: c.Model, Adapter: c.Adapter,
			CacheGB: c.CacheGB, Chat: c.Chat})
		if err == nil {
			s.loaded.Engine.Report(r.Say, r.Warn)
		}
		return s.loaded, err
	})
	if c.Way() == Remote {
		o := c.Served.Options()
		o.Grace, o.Warn = grace, r.Warn
		s.server, err = remote.New(o)
	} else if now {
		_, err = s.load()
	}
	return s, err
}

// Weigh adds the hash of a local model's weights to the settings of the answers, since a folder can get others under its name.
// Reading them takes long: where nothing is left to ask, the stage keeps the hash that it has.
func (s *Subject) Weigh(dir string, settings map[string]string, left bool) error {
	if s.server != nil {
		return nil
	}
	all, err := ReadSettings(dir)
	hash := all[StageAnswers]["weights"]
	if err == nil && left {
		hash, err = local.HashWeights(s.config.Model, s.config.Adapter)
	}
	if hash != "" {
		settings["weights"] = hash
	}
	return err
}

// Answer implements [ask.Model].
func (s *Subject) Answer(ctx context.Context, questions []ask.Question) ([][]ask.Answer, error) {
	if s.server != nil {
		return s.server.Answer(ctx, questions)
	}
	m, err := s.load()
	if err != nil {
		return nil, err
	}
	return m.Chat(nil).Answer(ctx, questions)
}

// fits says whether a local model has room for a prompt and an answer's first token, and how many tokens the prompt has.
// A server knows its own limit, and counts itself.
func (s *Subject) fits(q ask.Question) (tokens int, fits bool, err error) {
	if s.server != nil {
		return 0, true, nil
	}
	n, positions, err := s.measure(q)
	return n, n < positions, err
}

// opened says whether a prompt ends inside a think block: an answer has a beginning, or the chat template opens the
// block. Of a server the user says so.
func (s *Subject) opened(q ask.Question) (bool, error) {
	if q.Prefill != "" || s.server != nil {
		return q.Prefill != "" || s.config.ThinkOpened, nil
	}
	m, err := s.load()
	if err != nil {
		return false, err
	}
	return m.Chat(nil).Encoder.Opens(q.Prompt, ci.ThinkPrefill)
}

// measure gives the length of a prompt in tokens, and the number of positions of the local model.
func (s *Subject) measure(q ask.Question) (n, positions int, err error) {
	m, err := s.load()
	if err != nil {
		return 0, 0, err
	}
	ids, err := m.Chat(nil).Prompt(&q)
	return len(ids), m.Model.Config.MaxPositions, err
}

// CheckRoom wants at least one of n prompts to fit a local model.
func (s *Subject) CheckRoom(n int, question func(i int) ask.Question) error {
	if s.server != nil {
		return nil
	}
	shortest, positions := math.MaxInt, 0
	for i := range n {
		tokens, room, err := s.measure(question(i))
		if err != nil {
			return err
		}
		if shortest, positions = min(shortest, tokens), room; shortest < positions {
			return nil
		}
	}
	return fmt.Errorf("no prompt fits the model: %s has %d positions, the shortest prompt has %d tokens",
		s.config.Model, positions, shortest)
}

// atOnce says how many calls may be under way, and how many conversations a call has.
func (s *Subject) atOnce() (parallel, batch int) {
	if s.server != nil {
		return s.config.Parallel, 1
	}
	return 1, s.config.Batch
}

// Values are what the progress bar shows: the requests to a server. Without a model there are no requests.
func (s *Subject) Values(Progress) map[string]float64 {
	values := map[string]float64{}
	if s != nil && s.server != nil {
		values["requests"] = float64(s.server.Usage().Requests)
	}
	return values
}

// Close frees a model that was loaded; nil has none.
func (s *Subject) Close() {
	if s != nil && s.loaded != nil {
		s.loaded.Close()
	}
}
