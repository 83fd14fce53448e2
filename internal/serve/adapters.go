package serve

import (
	"maps"
	"net/http"
	"slices"

	"github.com/posttrain/posttrain/internal/batch"
)

// Adapter is the served model with an adapter.
type Adapter struct {
	Sampler Sampler
	Encoder *batch.Encoder // with the chat template that it was trained with; nil: the model's
	Close   func()
}

// mostAdapters are kept at a time.
const mostAdapters = 8

// loaded are the adapters that clients have loaded, by name.
func (s *Server) loaded() map[string]*Adapter { return *s.adapters.Load() }

func (s *Server) adapterNames() []string { return slices.Sorted(maps.Keys(s.loaded())) }

// setAdapter adds an adapter, or closes and removes the one of the name where a is nil. Only the goroutine that samples
// calls it.
func (s *Server) setAdapter(name string, a *Adapter) {
	next := maps.Clone(s.loaded())
	if a == nil {
		next[name].Close()
		delete(next, name)
	} else {
		next[name] = a
	}
	s.adapters.Store(&next)
}

// samplerOf finds the sampler of a model by name. It is nil for an unknown name.
func (s *Server) samplerOf(model string) Sampler {
	if model == s.options.Name || model == "" {
		return s.options.Sampler
	}
	if a := s.loaded()[model]; a != nil {
		return a.Sampler
	}
	return nil
}

// encoderOf finds the encoder of a model by name.
func (s *Server) encoderOf(model string) *batch.Encoder {
	if a := s.loaded()[model]; a != nil && a.Encoder != nil {
		return a.Encoder
	}
	return s.options.Encoder
}

// mostName is the longest name of an adapter, which each list of models has.
const mostName = 256

// loadAdapter gives an adapter's folder on this machine a name, which requests then ask for as their model.
func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) {
	var name, folder string
	p := s.readAdapter(w, r, map[string]reader{
		"lora_name": value(&name, "a name"), "lora_path": value(&folder, "a folder of this machine")})
	switch {
	case p != nil:
	case name == "" || len(name) > mostName:
		p = refuse("lora_name", "want a name of at most %d bytes", mostName)
	case folder == "":
		p = refuse("lora_path", "want a folder of this machine")
	default:
		p = s.change(r, func() *problem { return s.addAdapter(name, folder) })
	}
	if p != nil {
		p.write(w)
		return
	}
	s.options.Log("200: new adapter " + short([]byte(name)))
	writeJSON(w, http.StatusOK, "Success: LoRA adapter '"+name+"' added successfully.")
}

func (s *Server) addAdapter(name, folder string) *problem {
	switch all := s.loaded(); {
	case name == s.options.Name || all[name] != nil:
		return refuse("lora_name", "there is a model %s already: want another name", short([]byte(name)))
	case len(all) >= mostAdapters:
		return refuse("lora_name", "%d adapters are loaded: unload one", mostAdapters)
	}
	a, err := s.options.LoadAdapter(folder)
	if err != nil {
		return refuse("lora_path", "%v", err)
	}
	s.setAdapter(name, a)
	return nil
}

// unloadAdapter frees an adapter. Answers under way are finished first.
func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) {
	var name string
	p := s.readAdapter(w, r, map[string]reader{"lora_name": value(&name, "a name")})
	if p == nil {
		p = s.change(r, func() *problem {
			if s.loaded()[name] == nil {
				return newProblem(http.StatusNotFound, "model_not_found", "there is no adapter %s", short([]byte(name)))
			}
			s.setAdapter(name, nil)
			return nil
		})
	}
	if p != nil {
		p.write(w)
		return
	}
	writeJSON(w, http.StatusOK, "Success: LoRA adapter '"+name+"' removed successfully.")
}

// readAdapter reads a request about an adapter.
func (s *Server) readAdapter(w http.ResponseWriter, r *http.Request, readers map[string]reader) *problem {
	if s.options.LoadAdapter == nil {
		return fixedWeights("takes no adapters", "load them")
	}
	return s.readFields(w, r, readers)
}
