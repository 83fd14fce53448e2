package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

const (
	onnxLibraryEnv = "ONNXRUNTIME_SHARED_LIBRARY_PATH"
	onnxHowToGet   = "run scripts/install-onnxruntime.sh, or set " + onnxLibraryEnv + " to a libonnxruntime.so"
)

// dataDir is where the install script puts libraries. It is "" if no variable names an absolute folder: a search in the
// current folder would run whatever code lies there.
func dataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) { // XDG: relative paths are to be ignored
		return filepath.Join(dir, "posttrain")
	}
	if home := homeDir(); home != "" {
		return filepath.Join(home, ".local", "share", "posttrain")
	}
	return ""
}

// homeDir is the user's home, or "" if it is not known or not absolute.
func homeDir() string {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return home
}

// findONNXLibrary gives the path of ONNX Runtime's library: the one asked for, the one that the environment names, or
// the newest in dataDir.
func findONNXLibrary(asked string) (string, error) {
	if asked != "" {
		return existingFile(asked, "onnx")
	}
	if path := os.Getenv(onnxLibraryEnv); path != "" {
		return existingFile(path, onnxLibraryEnv)
	}
	dir := dataDir()
	if dir == "" {
		return "", errors.New("no folder to search: neither XDG_DATA_HOME nor HOME is an absolute path")
	}
	found, _ := filepath.Glob(filepath.Join(dir, "libonnxruntime.so*"))
	if len(found) == 0 {
		return "", fmt.Errorf("no libonnxruntime.so in %s", dir)
	}
	return slices.MaxFunc(found, compareVersions), nil
}

// howToGetONNX says what to do if the library is missing. A wrong path in the environment must be corrected first,
// since then no other place is searched.
func howToGetONNX(asked string) string {
	if asked == "" && os.Getenv(onnxLibraryEnv) != "" {
		return "set " + onnxLibraryEnv + " to a libonnxruntime.so, or unset it"
	}
	return onnxHowToGet
}

func existingFile(path, who string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: no file %s", who, path)
	case info.IsDir():
		return "", fmt.Errorf("%s: %s is a directory, want the library itself", who, path)
	}
	return filepath.Abs(path)
}

var digits = regexp.MustCompile(`[0-9]+`)

// compareVersions compares the numbers in two paths: libonnxruntime.so.1.9.0 is older than libonnxruntime.so.1.31.1.
func compareVersions(a, b string) int {
	numbers := func(path string) (all []int) {
		for _, n := range digits.FindAllString(filepath.Base(path), -1) {
			value, _ := strconv.Atoi(n)
			all = append(all, value)
		}
		return all
	}
	return slices.Compare(numbers(a), numbers(b))
}
