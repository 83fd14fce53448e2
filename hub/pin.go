package hub

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/run"
)

// use is what the tag hub of an option says it is for: a model, a model without its weights, or an adapter.
type use string

const (
	wholeModel    use = "model"
	tokenizerOnly use = "tokenizer"
	adapterOnly   use = "adapter"
)

const (
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
)

var (
	adapterFiles = []string{"adapter_config.json", "adapter_model.safetensors"}
	smallFiles   = []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
		"special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model",
		"chat_template.jinja"}
	shardForm = regexp.MustCompile(`^model[\w.-]*-\d+-of-\d+\.safetensors$`)
)

// Used says that options have a field with the tag hub.
func Used(options any) bool {
	found := false
	walk(reflect.ValueOf(options), func(reflect.Value, use) error { found = true; return nil })
	return found
}

// Pin goes through the fields of options, a pointer to a struct, that have a tag hub:"model", hub:"tokenizer" (a model
// without its weights) or hub:"adapter". It gives each id in them the commit that its revision is at, and downloads the
// files that the cache lacks. A folder on this machine stays as it is. Errors are lines.
func (h *Hub) Pin(ctx context.Context, options any, out run.Reporter) error {
	return walk(reflect.ValueOf(options), func(v reflect.Value, u use) error {
		pinned, err := h.pin(ctx, v.String(), u, run.Listen(out))
		if err == nil {
			v.SetString(pinned)
		}
		return err
	})
}

// walk calls visit for the tagged texts of a struct.
func walk(v reflect.Value, visit func(reflect.Value, use) error) error {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	for i := 0; v.Kind() == reflect.Struct && i < v.NumField(); i++ {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		err := error(nil)
		if tag := field.Tag.Get("hub"); tag != "" {
			err = visit(v.Field(i), use(tag))
		} else if field.Type.Kind() == reflect.Struct {
			err = walk(v.Field(i), visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pin is Pin of one name.
func (h *Hub) pin(ctx context.Context, name string, u use, out run.Reporter) (string, error) {
	id, ok, err := Parse(name)
	if err != nil || !ok {
		return name, err
	}
	if exists(name) {
		out.Say("%s: the folder of this name is used; the hub is not asked", name)
		return name, nil
	}
	r := repo{h, id}
	commit, err := r.get(ctx, u, out)
	if ctx.Err() != nil {
		return name, context.Cause(ctx)
	}
	if err != nil {
		return name, fmt.Errorf("%s: there is no folder of this name, and %w", name, err)
	}
	return ID{id.Name, commit}.String(), nil
}

// get gives the commit of the model's revision, of which the cache has all files. A commit that the cache has is taken
// without a question to the server; a branch where the server gives no answer.
func (r repo) get(ctx context.Context, u use, out run.Reporter) (string, error) {
	have := r.cached()
	if have != "" && !r.whole(have, u) {
		have = ""
	}
	switch {
	case have != "" && (r.hub.Offline || have == r.id.Revision):
		out.Say("%s: commit %.12s, in the cache", r.id.Name, have)
		return have, nil
	case r.hub.Offline:
		return "", fmt.Errorf("the cache %s does not have all of it; without --offline and HF_HUB_OFFLINE it is "+
			"downloaded", r.hub.Cache)
	}
	said, err := r.ask(ctx)
	if err != nil && have != "" && ctx.Err() == nil {
		out.Warn("%s: commit %.12s in the cache is used, which may be old: %v", r.id.Name, have, err)
		return have, nil
	}
	if err != nil {
		return "", err
	}
	return said.Commit, r.complete(ctx, said, u, out)
}

// complete brings what a use needs of a commit into the cache.
func (r repo) complete(ctx context.Context, said info, u use, out run.Reporter) error {
	names, err := u.of(said.names())
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(names, func(name string) bool {
		return exists(filepath.Join(r.snapshot(said.Commit), name))
	})
	if len(missing) == 0 {
		out.Say("%s: commit %.12s, in the cache", r.id.Name, said.Commit)
		return r.remember(said.Commit)
	}
	out.Say("%s: commit %.12s from %s into %s: %s", r.id.Name, said.Commit, r.hub.Endpoint, r.folder(),
		strings.Join(missing, ", "))
	if err := r.download(ctx, said.Commit, missing, out); err != nil {
		return err
	}
	return r.remember(said.Commit)
}

// of chooses the files that a use needs among those of a repository.
func (u use) of(names []string) ([]string, error) {
	keep := func(wanted func(string) bool) (chosen []string) {
		for _, name := range names {
			if wanted(name) {
				chosen = append(chosen, name)
			}
		}
		return chosen
	}
	small := keep(func(name string) bool { return slices.Contains(smallFiles, name) })
	var weights []string
	want := weightsFile
	switch {
	case u == tokenizerOnly:
		return small, nil
	case u == adapterOnly:
		small, want = nil, adapterFiles[1]
		if slices.Contains(names, want) {
			weights = keep(func(name string) bool { return slices.Contains(adapterFiles, name) })
		}
	case slices.Contains(names, weightsFile):
		weights = []string{weightsFile}
	case slices.Contains(names, indexFile):
		weights = keep(func(name string) bool { return name == indexFile || shardForm.MatchString(name) })
	}
	if len(weights) == 0 {
		return nil, fmt.Errorf("on the hub it has no %s: want weights in this form%s", want, others(names))
	}
	return append(small, weights...), nil
}

// others names weights in other forms.
func others(names []string) string {
	for _, name := range names {
		if strings.HasSuffix(name, ".bin") || strings.HasSuffix(name, ".gguf") || strings.HasSuffix(name, ".pth") {
			return ", found " + name
		}
	}
	return ""
}
