package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/hubcache"
	"github.com/posttrain/posttrain/internal/secret"
)

// Bounds of what a server says about a model or data set, in bytes, and of its list of files, which has some hundred
// bytes for each; and of the bytes of a file without weights or rows.
const (
	mostInfo  = 32 << 20
	mostFiles = 1 << 18
	mostSmall = 64 << 20
)

// info is what the hub says about a revision.
type info struct {
	Commit string `json:"sha"`
	Files  []struct {
		Name string `json:"rfilename"`
	} `json:"siblings"`
}

func (i info) names() (names []string) {
	for _, f := range i.Files {
		names = append(names, f.Name)
	}
	return names
}

// ask asks which commit the revision is, and which files it has. Without a network it fails at once: the cache may have
// what is wanted.
func (r repo) ask(ctx context.Context) (said info, err error) {
	address := fmt.Sprintf("%s/api/%s/%s/revision/%s", r.hub.Endpoint, r.kind, r.id.Name,
		url.PathEscape(r.id.Revision))
	ctx, cancel := context.WithCancel(context.WithValue(ctx, quick{}, true))
	defer cancel()
	resp, err := r.send(ctx, http.MethodGet, address, nil)
	if err != nil {
		return said, err
	}
	defer resp.Body.Close()
	watch := time.AfterFunc(r.hub.stall, cancel)
	defer watch.Stop()
	text, err := files.ReadAll(resp.Body, mostInfo)
	switch {
	case err != nil && ctx.Err() != nil: // where its user has ended the command, Pin says so
		return said, fmt.Errorf("%s does not answer in time", r.hub.shown())
	case err != nil:
		return said, r.transportError(err)
	}
	if err := r.hub.checkToken(text); err != nil {
		return said, err
	}
	if n := bytes.Count(text, []byte("{")); n > mostFiles {
		return said, fmt.Errorf("%s says that it has %d files, want at most %d", r.hub.shown(), n, mostFiles)
	}
	if json.Unmarshal(text, &said) != nil || !hubcache.IsCommit(said.Commit) {
		return said, fmt.Errorf("%s does not speak the hub's protocol: want the address of a Hugging Face hub in "+
			"HF_ENDPOINT", r.hub.shown())
	}
	return said, nil
}

// checkToken refuses a text that has the user's token: its names of files and configs get into folders and messages.
func (h *Hub) checkToken(text []byte) error {
	token := secret.New(h.Token)
	if len(token) >= secret.Shortest && token.Hide(string(text)) != string(text) {
		return fmt.Errorf("%s repeats the token: want the address of a Hugging Face hub in HF_ENDPOINT", h.shown())
	}
	return nil
}

// file is one of a commit, as the head of its address has it.
type file struct {
	commit string
	name   string
	size   int64  // in bytes
	hash   string // of the content: SHA-256, or git's SHA-1 of small files
}

// hashForm keeps the name of a blob within its folder. Mirrors may have other hashes, which cannot be checked.
var hashForm = regexp.MustCompile(`^[A-Za-z0-9][\w.-]{7,127}$`)

// head asks for the size and the hash of a file.
func (r repo) head(ctx context.Context, commit, name string) (f file, err error) {
	resp, err := r.send(ctx, http.MethodHead, r.address(commit, name), nil)
	if err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	resp.Body.Close()
	pick := func(first, second string) string {
		return cmp.Or(resp.Header.Get(first), resp.Header.Get(second))
	}
	tag := strings.TrimPrefix(pick("X-Linked-Etag", "Etag"), "W/")
	f = file{commit: commit, name: name, hash: strings.Trim(tag, `"`)}
	f.size, err = strconv.ParseInt(pick("X-Linked-Size", "Content-Length"), 10, 64)
	if err != nil || f.size < 0 || !hashForm.MatchString(f.hash) {
		return f, fmt.Errorf("%s: %s gives no size or no hash of it: want the address of a Hugging Face hub in "+
			"HF_ENDPOINT", name, r.hub.shown())
	}
	if slices.Contains(smallFiles, name) && f.size > mostSmall {
		return f, fmt.Errorf("%s: %s says that it has %d bytes, want at most %d", name, r.hub.shown(), f.size, mostSmall)
	}
	return f, nil
}

func (r repo) address(commit, name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return fmt.Sprintf("%s/resolve/%s/%s", r.page(), commit, strings.Join(parts, "/"))
}

// page is the address where people read about the model or data set.
func (r repo) page() string {
	if r.kind == hubcache.DataKind {
		return r.hub.Endpoint + "/datasets/" + r.id.Name
	}
	return r.hub.Endpoint + "/" + r.id.Name
}

// send sends a request. A reply other than 2xx, or 3xx to a HEAD, is an error.
func (r repo) send(ctx context.Context, method, address string, header http.Header) (*http.Response, error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, fmt.Errorf("HF_ENDPOINT %s: want a URL such as https://huggingface.co", r.hub.shown())
	}
	for key, values := range header {
		req.Header[key] = values
	}
	req.Header.Set("User-Agent", "posttrain")
	req.Header.Set("Accept-Encoding", "identity") // else sizes are of compressed texts
	if r.hub.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.hub.Token)
	}
	resp, err := r.hub.client.Do(req)
	if err != nil {
		return nil, r.transportError(err)
	}
	if resp.StatusCode/100 == 2 || resp.StatusCode/100 == 3 && method == http.MethodHead {
		return resp, nil
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection can be used again
	resp.Body.Close()
	return nil, r.statusError(resp)
}

// quick marks the context of a request that is not sent again where the server cannot be reached.
type quick struct{}

// longestPause is the longest that a server may ask for ahead of another try. A longer one ends the command: its user
// decides when to try again.
const longestPause = time.Minute

// tryAgain is the library's rule, but for quick requests and for servers that ask for a long pause.
func tryAgain(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if dial := (*net.OpError)(nil); ctx.Value(quick{}) != nil && errors.As(err, &dial) && dial.Op == "dial" {
		return false, err
	}
	if resp != nil && retryablehttp.DefaultBackoff(0, 0, 0, resp) > longestPause { // of the header Retry-After
		return false, err
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// transportError says that there was no whole reply.
func (r repo) transportError(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("%s does not answer in time", r.hub.shown())
	}
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	return fmt.Errorf("%s cannot be reached: %w", r.hub.shown(), err)
}

// statusError says what a reply's status means, and what to do.
func (r repo) statusError(resp *http.Response) error {
	switch code, said := resp.StatusCode, resp.Header.Get("X-Error-Code"); {
	case said == "GatedRepo" || code == http.StatusForbidden:
		return fmt.Errorf("access is refused (%d): accept the %s's terms at %s, and set HF_TOKEN to a token of "+
			"that account", code, r.word(), secret.HideUsers(r.page()))
	case said == "RevisionNotFound":
		return fmt.Errorf("the %s has no revision %q (%d)", r.word(), r.id.Revision, code)
	case said == "EntryNotFound":
		return fmt.Errorf("the hub does not have it (%d)", code)
	case said == "RepoNotFound" || code == http.StatusNotFound:
		return fmt.Errorf("%s has no such %s (%d), or a private one: then set HF_TOKEN", r.hub.shown(), r.word(), code)
	case code == http.StatusUnauthorized && r.hub.Token != "":
		return fmt.Errorf("%s refuses the token (%d): set HF_TOKEN to a valid one", r.hub.shown(), code)
	case code == http.StatusUnauthorized:
		return fmt.Errorf("%s wants a token (%d): set HF_TOKEN", r.hub.shown(), code)
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("%s gets too many requests (%d): try later, or set HF_TOKEN", r.hub.shown(), code)
	default:
		return fmt.Errorf("%s fails (%d %s)", r.hub.shown(), code, http.StatusText(code))
	}
}
