package hub

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/hubcache"
	"github.com/posttrain/posttrain/internal/run"
)

// use is what the tag hub of an option says it is for: a model, a model without its weights, an adapter, or rows of a
// data set.
type use string

const (
	wholeModel    use = "model"
	tokenizerOnly use = "tokenizer"
	adapterOnly   use = "adapter"
	dataRows      use = "data"
)

const (
	configFile   = "config.json"
	weightsFile  = "model.safetensors"
	templateFile = "chat_template.jinja"
	indexFile    = "model.safetensors.index.json"
)

var (
	adapterFiles  = []string{"adapter_config.json", "adapter_model.safetensors"}
	templateFiles = []string{"tokenizer_config.json", templateFile} // of an adapter that has its own
	smallFiles    = []string{configFile, "generation_config.json", "tokenizer.json", "tokenizer_config.json",
		"special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
		templateFile}
	// askedFiles are small files that change what a model says, and that another program may not have asked for.
	askedFiles   = []string{"tokenizer_config.json", "generation_config.json", templateFile}
	shardForm    = regexp.MustCompile(`^model[\w.-]*-\d+-of-\d+\.safetensors$`)
	otherWeights = regexp.MustCompile(`\.(bin|gguf|pth)$`)
)

// mostShards bounds the files of a model's weights, which are asked for one after the other. The largest have hundreds.
const mostShards = 1 << 13

// Used says that options have a field with the tag hub.
func Used(options any) bool {
	found := false
	walk(reflect.ValueOf(options), func(reflect.Value, use) error { found = true; return nil })
	return found
}

// Pin goes through the fields of options, a pointer to a struct, that have a tag hub:"model", hub:"tokenizer" (a model
// without its weights), hub:"adapter" or hub:"data" (rows of a data set). It gives each id in them the commit that its
// revision is at, an id of rows also config and split, and downloads the files that the cache lacks. A file or folder
// on this machine stays as it is. A Hub gives a name the same commit each time. Errors are lines.
func (h *Hub) Pin(ctx context.Context, options any, of Uses, out run.Reporter) error {
	return walk(reflect.ValueOf(options), func(v reflect.Value, u use) error {
		u, wanted := of[u]
		key := string(u) + " " + v.String()
		pinned, known := h.pinned[key]
		if wanted && !known {
			var err error
			if pinned, err = h.pinName(ctx, v.String(), u, run.Listen(out)); err != nil {
				return err
			}
			h.pinned[key] = pinned
		}
		if wanted {
			v.SetString(pinned)
		}
		return nil
	})
}

// Uses are those that Pin cares for, with what it does for each.
type Uses map[use]use

var (
	AllUses = Uses{wholeModel: wholeModel, tokenizerOnly: tokenizerOnly, adapterOnly: adapterOnly, dataRows: dataRows}
	// Shapes leave out the weights of models.
	Shapes = Uses{wholeModel: tokenizerOnly, tokenizerOnly: tokenizerOnly, adapterOnly: adapterOnly, dataRows: dataRows}
	// Models leave out the rows of data sets.
	Models = Uses{wholeModel: wholeModel, tokenizerOnly: tokenizerOnly, adapterOnly: adapterOnly}
)

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
			err = each(v.Field(i), func(text reflect.Value) error { return visit(text, use(tag)) })
		} else if field.Type.Kind() == reflect.Struct {
			err = walk(v.Field(i), visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls visit for a text, or for each text of a list.
func each(v reflect.Value, visit func(reflect.Value) error) error {
	if v.Kind() != reflect.Slice {
		return visit(v)
	}
	for i := range v.Len() {
		if err := visit(v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// need says which files of a repository a command needs.
type need interface {
	// whole says that the cache has them.
	whole(ctx context.Context, r repo, commit string) bool
	// unknown are those that the cache lacks, while nothing says that the hub lacks them, too.
	unknown(r repo, commit string) []string
	// files chooses them among those that the hub has.
	files(ctx context.Context, r repo, said info) ([]string, error)
}

// pinName is Pin of one name.
func (h *Hub) pinName(ctx context.Context, name string, u use, out run.Reporter) (string, error) {
	if u == dataRows {
		return h.pinData(ctx, name, out)
	}
	id, ok, err := hubcache.Parse(name)
	if err != nil || !ok {
		return name, err
	}
	if exists(name) {
		out.Say("%s: the folder of this name is used; the hub is not asked", name)
		return name, nil
	}
	commit, err := repo{h, id, modelKind}.fetch(ctx, u, out)
	if err != nil {
		return name, missing(ctx, name, "folder", err)
	}
	return hubcache.ID{Name: id.Name, Revision: commit}.String(), nil
}

// missing says that a name means nothing on this machine, and why the hub does not help.
func missing(ctx context.Context, name, what string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%s: there is no %s of this name, and %w", name, what, err)
}

// fetch gives the commit of the id's revision, of which the cache has all files. A commit that the cache has is taken
// without a question to the server, but where another program may have left out files; a branch where the server gives
// no answer.
func (r repo) fetch(ctx context.Context, n need, out run.Reporter) (string, error) {
	have := r.cached()
	if have != "" && !n.whole(ctx, r, have) {
		have = ""
	}
	switch {
	case have != "" && (r.hub.Offline || have == r.id.Revision && len(n.unknown(r, have)) == 0):
		out.Say("%s: commit %.12s, in the cache", r.id.Name, have)
		r.warnOf(n, have, out)
		return have, nil
	case r.hub.Offline:
		return "", fmt.Errorf("the cache %s does not have all of it; without --offline and HF_HUB_OFFLINE it is "+
			"downloaded", r.hub.Cache)
	}
	said, err := r.ask(ctx)
	if err != nil && have != "" && ctx.Err() == nil {
		old := ", which may be old"
		if have == r.id.Revision {
			old = ""
		}
		out.Warn("%s: commit %.12s in the cache is used%s: %v", r.id.Name, have, old, err)
		r.warnOf(n, have, out)
		return have, nil
	}
	if err != nil {
		return "", err
	}
	names, err := n.files(ctx, r, said)
	if err != nil {
		return "", err
	}
	if err := r.complete(ctx, said.Commit, names, out); err != nil {
		return "", err
	}
	r.noteAbsent(said.Commit, n.unknown(r, said.Commit))
	return said.Commit, nil
}

// warnOf names files that the hub may have. Most models have the template in tokenizer_config.json, and no file of its
// own.
func (r repo) warnOf(n need, commit string, out run.Reporter) {
	lacks := slices.DeleteFunc(n.unknown(r, commit), func(name string) bool { return name == templateFile })
	if len(lacks) > 0 {
		out.Warn("%s: the cache has no %s of it, and nobody noted that the hub has none: the chat template or the "+
			"ends of texts may differ from the model's", r.id.Name, strings.Join(lacks, " and no "))
	}
}

// complete brings files of a commit into the cache.
func (r repo) complete(ctx context.Context, commit string, names []string, out run.Reporter) error {
	if err := hubcache.CheckNames(names); err != nil {
		return err
	}
	missing := r.missing(commit, names)
	if len(missing) == 0 {
		out.Say("%s: commit %.12s, in the cache", r.id.Name, commit)
		return r.remember(commit)
	}
	out.Say("%s: commit %.12s from %s into %s: %s", r.id.Name, commit, r.hub.shown(), r.folder(),
		hubcache.List(missing))
	if err := r.download(ctx, commit, missing, out); err != nil {
		return err
	}
	return r.remember(commit)
}

// missing are the files that the cache lacks.
func (r repo) missing(commit string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return exists(filepath.Join(r.snapshot(commit), filepath.FromSlash(name)))
	})
}

func (u use) files(_ context.Context, _ repo, said info) ([]string, error) { return u.of(said.names()) }

// of chooses the files of a repository that a use needs.
func (u use) of(names []string) ([]string, error) {
	keep := func(wanted func(string) bool) (chosen []string) {
		for _, name := range names {
			if wanted(name) {
				chosen = append(chosen, name)
			}
		}
		return chosen
	}
	small := keep(func(name string) bool {
		return slices.Contains(smallFiles, name) || path.Dir(name) == "additional_chat_templates"
	})
	var weights []string
	want := weightsFile
	switch {
	case u == tokenizerOnly: // config.json last: with it in the cache, all is there
		config := func(name string) bool { return name == configFile }
		return append(slices.DeleteFunc(small, config), keep(config)...), nil
	case u == adapterOnly:
		small = keep(func(name string) bool { return slices.Contains(templateFiles, name) })
		want = adapterFiles[1]
		if slices.Contains(names, want) {
			weights = keep(func(name string) bool { return slices.Contains(adapterFiles, name) })
		}
	case slices.Contains(names, weightsFile):
		weights = []string{weightsFile}
	case slices.Contains(names, indexFile):
		weights = keep(func(name string) bool { return name == indexFile || shardForm.MatchString(name) })
	}
	if len(weights) > mostShards {
		return nil, fmt.Errorf("on the hub it has %d files of weights, want at most %d", len(weights), mostShards)
	}
	if len(weights) == 0 {
		found := ""
		if others := keep(otherWeights.MatchString); others != nil {
			found = ", found " + others[0]
		}
		return nil, fmt.Errorf("on the hub it has no %s: want weights in this form%s", want, found)
	}
	return append(small, weights...), nil
}
