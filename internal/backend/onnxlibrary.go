package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/posttrain/posttrain/internal/files"
)

const (
	onnxLibraryEnv = "ONNXRUNTIME_SHARED_LIBRARY_PATH"
	onnxHowToGet   = "run scripts/install-onnxruntime.sh, or set " + onnxLibraryEnv + " to a libonnxruntime.so"
)

// findONNXLibrary gives the path of ONNX Runtime's library: the one asked for, the one that the environment names, or
// the newest in [files.DataDir].
func findONNXLibrary(asked string) (string, error) {
	if asked != "" {
		return files.Library(asked, "onnx")
	}
	if path := os.Getenv(onnxLibraryEnv); path != "" {
		return files.Library(path, onnxLibraryEnv)
	}
	dir := files.DataDir()
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
