package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/hubcache"
	"github.com/posttrain/posttrain/internal/run"
)

// modelKind is the kind of models, see [hubcache.Folder].
const modelKind = "models"

// Folder is the folder of a model: name itself, or its snapshot in the cache where name is an id. It asks no server.
func Folder(name string) (string, error) {
	if !IsID(name) {
		return name, nil
	}
	id, _, _ := hubcache.Parse(name)
	r := repo{FromEnv(), id, modelKind}
	if commit := r.cached(); commit != "" {
		return r.snapshot(commit), nil
	}
	return "", fmt.Errorf("%s: there is no folder of this name, and no such model in the cache %s", name, r.hub.Cache)
}

// repo is a model of a hub, or a data set.
type repo struct {
	hub  *Hub
	id   hubcache.ID
	kind string // models or datasets
}

// word is the kind for messages.
func (r repo) word() string {
	if r.kind == hubcache.DataKind {
		return "data set"
	}
	return "model"
}

// folder is the repository's folder in the cache.
func (r repo) folder() string { return hubcache.Folder(r.hub.Cache, r.kind, r.id.Name) }

func (r repo) snapshot(commit string) string { return hubcache.Snapshot(r.folder(), commit) }

func (r repo) refFile() string { return hubcache.RefFile(r.folder(), r.id.Revision) }

// cached is the commit in the cache of the id's revision, "" without one.
func (r repo) cached() string { return hubcache.Commit(r.folder(), r.id.Revision) }

// whole says that a snapshot has all that a use needs, as far as that can be seen without the server's list of files.
func (u use) whole(_ context.Context, r repo, commit string) bool {
	has := func(name string) bool { return exists(filepath.Join(r.snapshot(commit), name)) }
	switch {
	case u == adapterOnly:
		return has(adapterFiles[0]) && has(adapterFiles[1])
	case !has("config.json"), !has("tokenizer.json"):
		return false
	case u == tokenizerOnly, has(weightsFile):
		return true
	}
	shards := r.shards(commit)
	return len(shards) > 0 && !slices.ContainsFunc(shards, func(name string) bool { return !has(name) })
}

// unknown is for models as huggingface_hub does it: an empty file says that the hub has none of this name.
func (u use) unknown(r repo, commit string) (names []string) {
	asked := askedFiles
	if u == adapterOnly {
		asked = templateFiles
	}
	for _, name := range r.missing(commit, asked) {
		if !exists(r.absent(commit, name)) {
			names = append(names, name)
		}
	}
	return names
}

// absent is the empty file that says that the hub does not have a file.
func (r repo) absent(commit, name string) string {
	return filepath.Join(r.folder(), ".no_exist", commit, name)
}

// noteAbsent notes files that the hub does not have. Where the cache takes no more, the hub is asked again.
func (r repo) noteAbsent(commit string, names []string) {
	for _, name := range names {
		if path := r.absent(commit, name); os.MkdirAll(filepath.Dir(path), 0o777) == nil {
			_ = os.WriteFile(path, nil, 0o666)
		}
	}
}

// shards are the files that the index of a snapshot's weights names.
func (r repo) shards(commit string) (names []string) {
	text, err := os.ReadFile(filepath.Join(r.snapshot(commit), indexFile))
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err != nil || json.Unmarshal(text, &index) != nil {
		return nil
	}
	for _, name := range index.WeightMap {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// remember notes the commit of a branch or tag.
func (r repo) remember(commit string) error {
	if hubcache.IsCommit(r.id.Revision) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(r.refFile()), 0o777); err != nil {
		return r.diskError(err)
	}
	if err := files.Replace(r.refFile(), []byte(commit), 0o666); err != nil {
		return r.diskError(err)
	}
	return nil
}

// link puts a blob into a snapshot. Where the system makes no symbolic links it gets a second name.
func (r repo) link(f file) error {
	path := filepath.Join(r.snapshot(f.commit), filepath.FromSlash(f.name))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return r.diskError(err)
	}
	if exists(path) { // another process was faster
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // a link to a blob that was deleted
		return r.diskError(err)
	}
	target, err := filepath.Rel(filepath.Dir(path), r.blob(f))
	if err == nil {
		err = os.Symlink(target, path)
	}
	if err != nil {
		err = os.Link(r.blob(f), path)
	}
	if err != nil && !exists(path) { // where it exists, another process was faster
		return r.diskError(err)
	}
	return nil
}

func (r repo) blob(f file) string { return filepath.Join(r.folder(), "blobs", f.hash) }

// diskError says that the cache takes no more.
func (r repo) diskError(err error) error {
	return fmt.Errorf("%s: the cache %s cannot be written: %w (HF_HUB_CACHE names another folder; the same command "+
		"continues)", r.id.Name, r.hub.Cache, run.Cause(err))
}
