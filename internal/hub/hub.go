// Package hub finds models and data sets where people keep them: on the Hugging Face hub, or in the cache on disk that
// the hub's own clients share. An id is org/name or org/name@revision, where a revision is a branch, a tag or a commit;
// the id of rows of a data set may end in :config:split.
//
// [Hub.Pin] goes through a command's options once, ahead of its work. It downloads what is missing and writes the
// commit into each id, so that the run's config names the very files. After it [Folder] finds them without a network.
//
// The cache has the layout of huggingface_hub, which other programs read and fill:
//
//	models--org--name/refs/main              the commit that a branch or tag was at
//	models--org--name/snapshots/COMMIT/FILE  a link to a blob
//	models--org--name/.no_exist/COMMIT/FILE  empty: the hub does not have the file
//	models--org--name/blobs/HASH             the file; HASH.incomplete is what an interrupted download left
//	.locks/models--org--name/HASH.lock       locked while a process downloads the blob
//
// Data sets are in datasets--org--name. Beside them is what the hub has, from which a split's files are chosen:
//
//	datasets--org--name/.files/COMMIT        the names of all files
package hub

import (
	"cmp"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/posttrain/posttrain/internal/hubcache"
	"github.com/posttrain/posttrain/internal/secret"
	"github.com/posttrain/posttrain/internal/web"
)

// Hub is a server of models and data sets, and the cache of what was downloaded.
type Hub struct {
	Endpoint string // of the server, such as https://huggingface.co; messages have it without a user's name and password
	Token    string // of the user; it is sent to the endpoint's host alone
	Cache    string // the cache's folder
	Offline  bool   // the cache is all there is
	client   *retryablehttp.Client
	stall    time.Duration // a download that brings nothing for so long is lost

	pinned map[string]string // by use and name: what Pin has found, so that a name keeps its meaning
}

// FromEnv gives the hub that the variables of Hugging Face's own programs name: HF_ENDPOINT, HF_TOKEN (else the file
// that logging in wrote), HF_HUB_CACHE, HF_HOME and HF_HUB_OFFLINE, and the older HUGGINGFACE_HUB_CACHE and
// TRANSFORMERS_OFFLINE.
func FromEnv() *Hub {
	home := hubcache.Home()
	h := &Hub{
		Endpoint: strings.TrimRight(cmp.Or(os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/"),
		Token:    strings.TrimSpace(os.Getenv("HF_TOKEN")),
		Cache:    hubcache.Default(),
		Offline: slices.Contains([]string{"1", "ON", "YES", "TRUE"},
			strings.ToUpper(cmp.Or(os.Getenv("HF_HUB_OFFLINE"), os.Getenv("TRANSFORMERS_OFFLINE")))),
		stall:  time.Minute,
		pinned: map[string]string{},
	}
	if h.Token == "" {
		stored, _ := os.ReadFile(cmp.Or(hubcache.EnvFolder("HF_TOKEN_PATH"), filepath.Join(home, "token"))) // there may be none
		h.Token = strings.TrimSpace(string(stored))
	}
	h.client = web.Retrying(web.Options{Tune: tune, Follow: true}, 4, tryAgain)
	return h
}

// shown is the endpoint for messages.
func (h *Hub) shown() string { return secret.HideUsers(h.Endpoint) }

// tune bounds how long a server may be silent. Its downloads take as long as they need.
func tune(t *http.Transport) {
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	t.ResponseHeaderTimeout = time.Minute
}

// Short is how people call a model: without folders or commit.
func Short(name string) string {
	if id, ok, err := hubcache.Parse(name); ok && err == nil && !exists(name) {
		name = id.Name
	}
	if whole, err := filepath.Abs(name); err == nil {
		return filepath.Base(whole)
	}
	return name
}

// IsID says that a name is an id, and not the name of a folder on this machine.
func IsID(name string) bool {
	_, ok, err := hubcache.Parse(name)
	return ok && err == nil && !exists(name)
}

func exists(path string) bool { return hubcache.Exists(path) }
