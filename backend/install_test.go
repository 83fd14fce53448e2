package backend_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// tools are the programs that the script needs beside pip and npm.
var tools = []string{"bash", "uname", "mkdir", "mktemp", "rm",
	"sha256sum", "tar", "grep", "tail", "cp", "chmod", "mv", "head"}

// TestInstallRefusesOtherPackages: a package with another SHA-256 is neither unpacked nor installed, and nothing in it
// is run.
func TestInstallRefusesOtherPackages(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the script is for Linux")
	}
	bin, data := t.TempDir(), t.TempDir()
	for _, tool := range tools {
		path, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, tool))
		}
		if err != nil {
			t.Skip(err)
		}
	}
	for name, script := range map[string]string{
		"python3": "exit 1", // no pip
		"npm": "d=package/bin/napi-v6/linux; mkdir -p $d/x64 $d/arm64; echo no library >$d/x64/libonnxruntime.so.1;" +
			" cp $d/x64/* $d/arm64; tar -czf onnxruntime-node-1.30.0.tgz package",
		"gzip": "exec " + lookPath("gzip") + ` "$@"`,
	} {
		text := "#!" + lookPath("bash") + "\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	install := exec.Command(lookPath("bash"), "../scripts/install-onnxruntime.sh", data)
	install.Env = []string{"PATH=" + bin, "TMPDIR=" + t.TempDir()}
	out, err := install.CombinedOutput()
	left, _ := os.ReadDir(data)
	if err == nil || !strings.Contains(string(out), "npm: the package has another SHA-256") || len(left) > 0 {
		t.Errorf("%v: %s; %d files", err, out, len(left))
	}
}

func lookPath(tool string) string {
	path, _ := exec.LookPath(tool)
	return path
}
