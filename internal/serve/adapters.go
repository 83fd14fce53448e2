package serve

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
)

// Adapter is the served model with an adapter.
type Adapter struct {
	Sampler Sampler
	Close   func()
}

// mostAdapters are kept at a time.
const mostAdapters = 8

// adapters are those that clients have loaded, by name.
type adapters struct {
	mu  sync.Mutex
	all map[string]*Adapter
}

func (a *adapters) get(name string) *Adapter {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[name]
}

func (a *adapters) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.all))
}

func (a *adapters) add(name string, adapter *Adapter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]*Adapter{}
	}
	a.all[name] = adapter
}

// remove closes an adapter.
func (a *adapters) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if adapter := a.all[name]; adapter != nil { // another client may have unloaded it meanwhile
		adapter.Close()
		delete(a.all, name)
	}
}

func (a *adapters) closeAll() {
	for _, name := range a.names() {
		a.remove(name)
	}
}

// errUnloaded ends jobs whose adapter was unloaded before they began.
var errUnloaded = errors.New("the adapter was unloaded")

// samplerOf finds the sampler of a model by name. It is nil for an unknown name.
func (s *Server) samplerOf(model string) Sampler {
	if model == s.options.Name || model == "" {
		return s.options.Sampler
	}
	if a := s.adapters.get(model); a != nil {
		return a.Sampler
	}
	return nil
}

// loadAdapter gives an adapter's folder on this machine a name, which requests then ask for as their model.
func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) {
	var name, folder string
	p := s.readAdapter(w, r, map[string]reader{
		"lora_name": value(&name, "a name"), "lora_path": value(&folder, "a folder of this machine")})
	switch {
	case p != nil:
	case name == "":
		p = refuse("lora_name", "want a name")
	case folder == "":
		p = refuse("lora_path", "want a folder of this machine")
	case s.checkName(name) == nil:
		p = refuse("lora_name", "there is a model %s already: want another name", short([]byte(name)))
	case len(s.adapters.names()) >= mostAdapters:
		p = refuse("lora_name", "%d adapters are loaded: unload one", mostAdapters)
	}
	if p != nil {
		p.write(w)
		return
	}
	err := s.change(r, func() error {
		if s.adapters.get(name) != nil {
			return errors.New("another client has loaded an adapter of this name")
		}
		if len(s.adapters.names()) >= mostAdapters {
			return fmt.Errorf("%d adapters are loaded: unload one", mostAdapters)
		}
		a, err := s.options.LoadAdapter(folder)
		if err == nil {
			s.adapters.add(name, a)
		}
		return err
	})
	if err != nil {
		refuse("lora_path", "%v", err).write(w)
		return
	}
	s.options.Log("200: new adapter " + short([]byte(name)))
	writeJSON(w, http.StatusOK, "Success: LoRA adapter '"+name+"' added successfully.")
}

// unloadAdapter frees an adapter. Answers under way are finished first.
func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) {
	var name string
	p := s.readAdapter(w, r, map[string]reader{"lora_name": value(&name, "a name")})
	if p == nil && s.adapters.get(name) == nil {
		p = newProblem(http.StatusNotFound, "model_not_found", "there is no adapter %s", short([]byte(name)))
	}
	if p != nil {
		p.write(w)
		return
	}
	err := s.change(r, func() error {
		s.adapters.remove(name)
		return nil
	})
	if err != nil {
		newProblem(http.StatusInternalServerError, "sampling_failed", "%v", err).write(w)
		return
	}
	writeJSON(w, http.StatusOK, "Success: LoRA adapter '"+name+"' removed successfully.")
}

// readAdapter reads a request about an adapter.
func (s *Server) readAdapter(w http.ResponseWriter, r *http.Request, readers map[string]reader) *problem {
	if p := s.readFields(w, r, readers); p != nil {
		return p
	}
	if s.options.LoadAdapter == nil {
		return newProblem(http.StatusForbidden, "weights_fixed", "this server takes no adapters: start it with "+
			"--weight-updates to let clients load them")
	}
	return nil
}
