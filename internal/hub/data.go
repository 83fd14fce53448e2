package hub

import (
	"context"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/internal/hubcache"
	"github.com/posttrain/posttrain/internal/run"
)

// pinData is Pin of rows of a data set.
func (h *Hub) pinData(ctx context.Context, name string, out run.Reporter) (string, error) {
	id, ok, err := hubcache.ParseData(name)
	if err != nil || !ok {
		return name, err
	}
	if exists(name) {
		out.Say("%s: the file or folder of this name is used; the hub is not asked", name)
		return name, nil
	}
	rows := &rowsOf{parts: id.Parts}
	commit, err := repo{h, id.ID, hubcache.DataKind}.fetch(ctx, rows, out)
	if err != nil && h.Offline && rows.fault != nil {
		err = fmt.Errorf("%w: %w", err, rows.fault)
	}
	if err != nil {
		return name, missing(ctx, name, "file", err)
	}
	out.Say("%s: config %s, split %s, %s", id.Name, rows.choice.Config, rows.choice.Split,
		hubcache.List(rows.choice.Files))
	id.Revision, id.Parts = commit, []string{rows.choice.Config, rows.choice.Split}
	return id.String(), nil
}

// rowsOf needs the files of a split, and README.md, which may say which these are.
type rowsOf struct {
	parts  []string
	choice hubcache.Choice
	fault  error // of the cache
}

func (n *rowsOf) whole(ctx context.Context, r repo, commit string) bool {
	n.choice, n.fault = hubcache.Look(ctx, r.folder(), commit, n.parts)
	return n.fault == nil
}

// unknown is nothing: the cache has the names of all files.
func (n *rowsOf) unknown(repo, string) []string { return nil }

// files notes the names of all files first: without them a part of a split would be taken for the whole.
func (n *rowsOf) files(ctx context.Context, r repo, said info) (names []string, err error) {
	if err := hubcache.KeepListing(r.folder(), said.Commit, said.names()); err != nil {
		return nil, r.diskError(err)
	}
	if slices.Contains(said.names(), readMe) {
		names = []string{readMe}
		if err := r.download(ctx, said.Commit, r.missing(said.Commit, names), run.Listen(nil)); err != nil {
			return nil, err
		}
	}
	text, err := hubcache.ReadMe(r.snapshot(said.Commit))
	if err == nil {
		n.choice, err = hubcache.Choose(ctx, said.names(), text, n.parts)
	}
	return append(names, n.choice.Files...), err
}

const readMe = "README.md"
