// Package hubcache reads the cache on disk that the clients of the Hugging Face hub share, without a network. Package
// hub fills it.
//
// It knows the names of models and data sets, where their files are, and which files of a data set make a split: those
// that the front matter of its README.md declares, else those whose names say so.
package hubcache

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ID names a model or a data set of the hub.
type ID struct {
	Name     string // org/name
	Revision string // a branch, a tag or a commit
}

func (id ID) String() string { return id.Name + "@" + id.Revision }

var (
	nameForm     = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)
	revisionForm = regexp.MustCompile(`^\w[\w.-]*(/\w[\w.-]*)*$`)
	commitForm   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	partForm     = regexp.MustCompile(`^[^<>:/\\|?*\x00-\x1f]+$`) // names of configs, as Hugging Face has them
)

const defaultRevision = "main"

// IsCommit says that a revision is a commit.
func IsCommit(revision string) bool { return commitForm.MatchString(revision) }

// Parse reads org/name or org/name@revision. ok is false where the text has another form: it names nothing of a hub.
func Parse(text string) (id ID, ok bool, err error) {
	name, revision, has := strings.Cut(text, "@")
	if !nameForm.MatchString(name) || strings.Contains(name, "..") || strings.Contains(name, "--") {
		return ID{}, false, nil
	}
	if !has {
		return ID{name, defaultRevision}, true, nil
	}
	if !revisionForm.MatchString(revision) || strings.Contains(revision, "..") {
		return ID{}, true, fmt.Errorf("%s: revision %q: want a branch, a tag or a commit", name, revision)
	}
	return ID{name, revision}, true, nil
}

// DataID names rows of a data set of the hub.
type DataID struct {
	ID
	Parts []string // config and split, one of them, or nothing
}

func (id DataID) String() string {
	return strings.Join(append([]string{id.ID.String()}, id.Parts...), ":")
}

// fileNames end the names of files: data/train.jsonl is no data set.
var fileNames = []string{".jsonl", ".json", ".parquet", ".gz", ".csv", ".tsv", ".txt", ".arrow", ".zst", ".yaml",
	".yml", ".py", ".zip", ".bz2", ".xz"}

// ParseData reads org/name[@revision][:config][:split]. ok is false where the text has another form, such as a file's
// name.
func ParseData(text string) (id DataID, ok bool, err error) {
	parts := strings.Split(text, ":")
	if id.ID, ok, err = Parse(parts[0]); !ok || err != nil {
		return DataID{}, ok, err
	}
	if slices.Contains(fileNames, strings.ToLower(path.Ext(id.Name))) {
		return DataID{}, false, nil
	}
	bad := func(part string) bool { return !partForm.MatchString(part) }
	if id.Parts = parts[1:]; len(id.Parts) > 2 || slices.ContainsFunc(id.Parts, bad) {
		return DataID{}, true, fmt.Errorf("%s: want org/name[@revision][:config][:split]", text)
	}
	return id, true, nil
}

// IsData says that a name is a data set's, and not a file's on this machine.
func IsData(name string) bool {
	_, ok, err := ParseData(name)
	return ok && err == nil && !Exists(name)
}

// Exists says that there is a file or a folder.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Default is the cache's folder, which HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE or HF_HOME names.
func Default() string {
	return cmp.Or(EnvFolder("HF_HUB_CACHE"), EnvFolder("HUGGINGFACE_HUB_CACHE"), filepath.Join(Home(), "hub"))
}

// EnvFolder is the folder that a variable names, in which huggingface_hub reads ~ and $NAME.
func EnvFolder(variable string) string {
	dir := os.Getenv(variable)
	if below, ok := strings.CutPrefix(dir, "~"); ok && (below == "" || os.IsPathSeparator(below[0])) {
		dir = userHome() + below
	}
	return os.Expand(dir, func(name string) string {
		if value, ok := os.LookupEnv(name); ok {
			return value
		}
		return "$" + name // else a folder of the root would be meant
	})
}

func userHome() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return os.TempDir()
	}
	return home
}

// Home is the folder of the hub's clients: HF_HOME, else huggingface among the user's caches.
func Home() string {
	if dir := EnvFolder("HF_HOME"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "huggingface")
	}
	return filepath.Join(userHome(), ".cache", "huggingface")
}

// Commit is the commit in the cache that a revision is at, "" without one. folder is the model's or data set's.
func Commit(folder, revision string) string {
	commit := revision
	if !IsCommit(commit) {
		text, err := os.ReadFile(RefFile(folder, revision))
		if commit = strings.TrimSpace(string(text)); err != nil || !IsCommit(commit) {
			return ""
		}
	}
	if !Exists(Snapshot(folder, commit)) {
		return ""
	}
	return commit
}

// Folder is where the cache has a model or a data set; kind is models or datasets.
func Folder(cache, kind, name string) string {
	return filepath.Join(cache, kind+"--"+strings.ReplaceAll(name, "/", "--"))
}

// RefFile has the commit that a branch or tag was at.
func RefFile(folder, revision string) string {
	return filepath.Join(folder, "refs", filepath.FromSlash(revision))
}

// Snapshot is the folder of a commit's files.
func Snapshot(folder, commit string) string { return filepath.Join(folder, "snapshots", commit) }

// reservedForm are names that are devices on Windows, whatever they end in.
var reservedForm = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$) *(\.|:|$)`)

// isLocal says that the name of a file from a hub, with slashes, stays in its folder on every system: Windows has
// backslashes and drives, drops dots and spaces at an end, and gives devices names.
func isLocal(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.Trim(part, ". ") == "" || reservedForm.MatchString(part) {
			return false
		}
	}
	return !strings.ContainsAny(name, "\\\x00") && !driveForm.MatchString(name) &&
		filepath.IsLocal(filepath.FromSlash(name))
}

var driveForm = regexp.MustCompile(`^[A-Za-z]:`)

// CheckNames names the first file of a model or data set that would be put elsewhere than into its folder.
func CheckNames(names []string) error {
	for _, name := range names {
		if !isLocal(name) {
			return fmt.Errorf("it has a file %.80q: want names that lead out of no folder and are no device, on any "+
				"system", name)
		}
	}
	return nil
}
