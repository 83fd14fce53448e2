package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// outcome is a reply about weights, as SGLang's servers give it.
type outcome struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Paused  int    `json:"num_paused_requests"`
}

// change runs f while the sampler has no request. Requests that have begun are answered first, with the weights that
// they began with; others wait.
func (s *Server) change(r *http.Request, f func() *problem) *problem {
	s.queue.locked(func(q *queue) { q.holds++ })
	defer s.queue.news.set()
	defer s.queue.locked(func(q *queue) { q.holds-- })
	done := make(chan *problem, 1)
	select {
	case s.changes <- func() { done <- f() }:
		return <-done
	case <-r.Context().Done():
		return refuse("", "%v", r.Context().Err())
	}
}

// fixedWeights refuses what a server does not let its clients do.
func fixedWeights(does, allows string) *problem {
	return newProblem(http.StatusForbidden, "weights_fixed", "this server %s: start it with --weight-updates to let "+
		"clients %s", does, allows)
}

// update replaces the weights by the weights of a folder on this machine.
func (s *Server) update(w http.ResponseWriter, r *http.Request) {
	var folder, version string
	p := s.readFields(w, r, map[string]reader{
		"model_path":     value(&folder, "a folder of this machine"),
		"weight_version": value(&version, "a text"),
	})
	switch {
	case p != nil:
	case s.options.Reload == nil:
		p = fixedWeights("keeps its weights", "replace them")
	case folder == "":
		p = refuse("model_path", "want a folder of this machine")
	}
	if p != nil {
		p.write(w)
		return
	}
	p = s.change(r, func() *problem {
		if names := s.adapterNames(); len(names) > 0 {
			return refuse("", "the adapters %s share the weights: unload them first", strings.Join(names, ", "))
		}
		if err := s.options.Reload(folder); err != nil {
			return refuse("", "%v", err)
		}
		s.queue.locked(func(q *queue) { q.version = version })
		return nil
	})
	if p != nil {
		writeJSON(w, http.StatusBadRequest, outcome{Message: p.Message})
		s.options.Log("400: the weights stay: " + p.Message)
		return
	}
	s.options.Log("200: new weights " + short([]byte(version)))
	writeJSON(w, http.StatusOK, outcome{Success: true, Message: fmt.Sprintf("the weights are those of %s", folder)})
}

// setPaused keeps new requests back, or lets them go on.
func (s *Server) setPaused(paused bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := s.readFields(w, r, nil)
		if p == nil && s.options.Reload == nil {
			p = fixedWeights("keeps its weights", "pause it")
		}
		if p != nil {
			p.write(w)
			return
		}
		s.queue.locked(func(q *queue) { q.paused = paused })
		if !paused {
			s.queue.news.set()
		}
		_, waiting, _ := s.queue.counts()
		writeJSON(w, http.StatusOK, outcome{Success: true, Paused: waiting})
	}
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
