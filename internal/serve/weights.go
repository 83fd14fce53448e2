package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// pausing is whether a client has paused the server.
type pausing struct {
	mu sync.Mutex
	on bool
}

// outcome is a reply about weights, as SGLang's servers give it.
type outcome struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Paused  int    `json:"num_paused_requests"`
}

// change runs f while the sampler has no request. Requests that have begun are answered first, with the weights that
// they began with; others wait.
func (s *Server) change(r *http.Request, f func() error) error {
	s.queue.hold()
	defer s.queue.release()
	done := make(chan error, 1)
	select {
	case s.changes <- func() { done <- f() }:
		return <-done
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// update replaces the weights by those of a folder on this machine.
func (s *Server) update(w http.ResponseWriter, r *http.Request) {
	var folder, version string
	p := s.readFields(w, r, map[string]reader{
		"model_path":     value(&folder, "a folder of this machine"),
		"weight_version": value(&version, "a text"),
	})
	switch {
	case p != nil:
	case s.options.Reload == nil:
		p = newProblem(http.StatusForbidden, "weights_fixed", "this server keeps its weights: start it with "+
			"--weight-updates to let clients replace them")
	case folder == "":
		p = refuse("model_path", "want a folder of this machine")
	}
	if p != nil {
		p.write(w)
		return
	}
	err := s.change(r, func() error {
		if names := s.adapters.names(); len(names) > 0 {
			return fmt.Errorf("the adapters %s share the weights: unload them first", strings.Join(names, ", "))
		}
		err := s.options.Reload(folder)
		if err == nil {
			s.queue.setVersion(version)
		}
		return err
	})
	if err != nil {
		writeJSON(w, http.StatusBadRequest, outcome{Message: err.Error()})
		s.options.Log("400: the weights stay: " + err.Error())
		return
	}
	s.options.Log("200: new weights " + short([]byte(version)))
	writeJSON(w, http.StatusOK, outcome{Success: true, Message: fmt.Sprintf("the weights are those of %s", folder)})
}

// pause keeps new requests back until unpause.
func (s *Server) pause(w http.ResponseWriter, r *http.Request) { s.setPaused(w, r, true) }

func (s *Server) unpause(w http.ResponseWriter, r *http.Request) { s.setPaused(w, r, false) }

func (s *Server) setPaused(w http.ResponseWriter, r *http.Request, paused bool) {
	if p := s.readFields(w, r, nil); p != nil {
		p.write(w)
		return
	}
	if s.options.Reload == nil {
		newProblem(http.StatusForbidden, "weights_fixed", "this server keeps its weights: start it with "+
			"--weight-updates to let clients pause it").write(w)
		return
	}
	s.pausing.mu.Lock()
	defer s.pausing.mu.Unlock()
	switch {
	case paused && !s.pausing.on:
		s.queue.hold()
	case !paused && s.pausing.on:
		s.queue.release()
	}
	s.pausing.on = paused
	_, waiting := s.queue.counts()
	writeJSON(w, http.StatusOK, outcome{Success: true, Paused: waiting})
}

// neutralUpdate are fields of requests about weights whose values change nothing here.
var neutralUpdate = map[string][]any{
	"mode":                 {"retract", "keep", "in_place"},
	"load_format":          {"safetensors", "auto"},
	"flush_cache":          {true},
	"abort_all_requests":   {false},
	"is_async":             {false},
	"torch_empty_cache":    {true, false},
	"keep_pause":           {false},
	"recapture_cuda_graph": {false},
}

// readFields reads a JSON object; an empty body is one without fields.
func (s *Server) readFields(w http.ResponseWriter, r *http.Request, readers map[string]reader) *problem {
	body, p := s.body(w, r)
	if p != nil || len(body) == 0 {
		return p
	}
	var fields object
	if err := json.Unmarshal(body, &fields); err != nil {
		return refuse("", "the body is not a JSON object")
	}
	if name, err := fields.read(readers, neutralUpdate, "leave it out"); err != nil {
		return refuse(name, "%v", err)
	}
	return nil
}
