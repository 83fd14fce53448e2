package backend

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

const (
	onnxLibraryEnv = "ONNXRUNTIME_SHARED_LIBRARY_PATH"
	onnxHowToGet   = "run scripts/install-onnxruntime.sh, or set " + onnxLibraryEnv + " to a libonnxruntime.so"
)

// dataDir is where the install script puts libraries.
func dataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "posttrain")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "posttrain")
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

// compareVersions compares runs of digits as numbers: libonnxruntime.so.1.9.0 is older than libonnxruntime.so.1.31.1.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		x, restA := leadingNumber(a)
		y, restB := leadingNumber(b)
		if x != y {
			return x - y
		}
		a, b = restA, restB
	}
	return len(a) - len(b)
}

// leadingNumber splits s after its leading digits, whose value it gives; without digits after one byte, with its code.
func leadingNumber(s string) (int, string) {
	n, i := 0, 0
	for i < len(s) && i < 9 && s[i] >= '0' && s[i] <= '9' {
		n = n*10 + int(s[i]-'0')
		i++
	}
	if i == 0 {
		return int(s[0]), s[1:]
	}
	return n, s[i:]
}
