package hubcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// DataKind is the kind of data sets, see [Folder].
const DataKind = "datasets"

// Files gives the files on disk of the rows that an id of a data set names, from the cache. is is false where name is
// another, such as a file's.
func Files(name string) (paths []string, is bool, err error) {
	if !IsData(name) {
		return nil, false, nil
	}
	id, _, _ := ParseData(name)
	folder := Folder(Default(), DataKind, id.Name)
	commit := Commit(folder, id.Revision)
	if commit == "" {
		return nil, true, fmt.Errorf("%s: there is no file of this name, and no such data set in the cache %s", name,
			Default())
	}
	choice, err := Look(context.Background(), folder, commit, id.Parts) // it was chosen before, and is bounded
	if err != nil {
		return nil, true, fmt.Errorf("%s: %w", name, err)
	}
	for _, f := range choice.Files {
		paths = append(paths, filepath.Join(Snapshot(folder, commit), filepath.FromSlash(f)))
	}
	return paths, true, nil
}

// Look chooses a split of a data set in the cache, see [Choose]. A file of it that the cache lacks is an error.
func Look(ctx context.Context, folder, commit string, parts []string) (Choice, error) {
	snapshot := Snapshot(folder, commit)
	files, whole, err := listing(folder, commit)
	if err != nil {
		return Choice{}, err
	}
	readme, err := ReadMe(snapshot)
	if err != nil {
		return Choice{}, err
	}
	c, err := Choose(ctx, files, readme, parts)
	if err != nil {
		return c, err
	}
	for _, f := range c.Files {
		if !Exists(filepath.Join(snapshot, filepath.FromSlash(f))) {
			return c, fmt.Errorf("the cache does not have %s", f)
		}
	}
	if !whole {
		err = missingShard(c.Files)
	}
	return c, err
}

// maxReadMe bounds a README.md in bytes.
const maxReadMe = 8 << 20

// ReadMe is the text of a snapshot's README.md, nil without one.
func ReadMe(snapshot string) ([]byte, error) {
	path := filepath.Join(snapshot, "README.md")
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil
	}
	if info.Size() > maxReadMe {
		return nil, fmt.Errorf("README.md is longer than %d MiB", maxReadMe>>20)
	}
	return os.ReadFile(path)
}

// listingFile has the names of all files of a commit on the hub, one a line. Other clients write none.
func listingFile(folder, commit string) string { return filepath.Join(folder, ".files", commit) }

// KeepListing notes the names of all files of a commit.
func KeepListing(folder, commit string, files []string) error {
	path := listingFile(folder, commit)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	temporary := path + "." + strconv.Itoa(os.Getpid())
	file, err := os.Create(temporary)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strings.Join(files, "\n"))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil { // a power cut would leave an empty list
		return err
	}
	return os.Rename(temporary, path)
}

// listing names the files of a commit: all that the hub has, whole, or the snapshot's where another client made it.
func listing(folder, commit string) (files []string, whole bool, err error) {
	text, err := os.ReadFile(listingFile(folder, commit))
	if err == nil {
		return strings.Split(string(text), "\n"), true, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	snapshot := Snapshot(folder, commit)
	err = filepath.WalkDir(snapshot, func(path string, d fs.DirEntry, err error) error {
		if name, relErr := filepath.Rel(snapshot, path); err == nil && relErr == nil && !d.IsDir() {
			files = append(files, filepath.ToSlash(name))
		}
		return err
	})
	return files, false, err
}

var numberedForm = regexp.MustCompile(`^(.*-)([0-9]{5})-of-([0-9]{5})(.*)$`)

// missingShard names a file of numbered ones that is not there.
func missingShard(files []string) error {
	seen := map[string]bool{} // each series is looked at once
	for _, f := range files {
		m := numberedForm.FindStringSubmatch(f)
		if m == nil || seen[m[1]+m[3]] {
			continue
		}
		seen[m[1]+m[3]] = true
		n, _ := strconv.Atoi(m[3])
		for i := range n {
			want := fmt.Sprintf("%s%05d-of-%s", m[1], i, m[3])
			if !slices.ContainsFunc(files, func(g string) bool { return strings.HasPrefix(g, want) }) {
				return fmt.Errorf("the cache does not have %s%s", want, m[4])
			}
		}
	}
	return nil
}

var snapshotForm = regexp.MustCompile(
	`(?:^|.*[/\\])datasets--([\w.-]+?)--([\w.-]+)[/\\]snapshots[/\\][0-9a-f]{40}[/\\](.+)$`)

// Short names a file of a data set in the cache as people do: org/name/train.jsonl. Another name stays.
func Short(path string) string {
	m := snapshotForm.FindStringSubmatch(path)
	if m == nil {
		return path
	}
	return m[1] + "/" + m[2] + "/" + filepath.ToSlash(m[3])
}
