package files

import (
	"fmt"
	"os"
	"path/filepath"
)

// DataDir is where the install scripts put libraries. It is "" if no variable names an absolute folder: a search in the
// current folder would run whatever code lies there.
func DataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) { // XDG: relative paths are to be ignored
		return filepath.Join(dir, "posttrain")
	}
	if home := HomeDir(); home != "" {
		return filepath.Join(home, ".local", "share", "posttrain")
	}
	return ""
}

// HomeDir is the user's home, or "" if it is not known or not absolute.
func HomeDir() string {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return home
}

// Library is the absolute path of a library's file. An error names who asked for it.
func Library(path, who string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: no file %s", who, path)
	case info.IsDir():
		return "", fmt.Errorf("%s: %s is a directory, want the library itself", who, path)
	}
	return filepath.Abs(path)
}
