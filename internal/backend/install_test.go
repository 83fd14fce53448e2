package backend_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// tools are the programs that the scripts need beside python3 and npm.
var tools = []string{"bash", "dirname", "uname", "mkdir", "mktemp", "rm",
	"sha256sum", "tar", "gzip", "grep", "tail", "cp", "chmod", "mv", "head"}

// TestInstallRefusesOtherPackages: a package with another SHA-256 is not installed, and nothing in it is run.
func TestInstallRefusesOtherPackages(t *testing.T) {
	for _, tc := range []struct{ script, python, npm, want string }{
		{"install-onnxruntime.sh", "exit 1", // no pip
			"d=package/bin/napi-v6/linux; mkdir -p $d/x64 $d/arm64; echo no library >$d/x64/libonnxruntime.so.1;" +
				" cp $d/x64/* $d/arm64; tar -czf onnxruntime-node-1.30.0.tgz package",
			"npm: the package has another SHA-256"},
		{"install-pjrt-cpu.sh", // a pip that does not look at hashes
			"case \"$*\" in *zipfile*) d=$5/xla_plugins/xla_cpu_pjrt; mkdir -p $d; echo no >$d/xla_cpu_pjrt.so;; esac",
			"exit 1", "xla_cpu_pjrt.so is another one: its SHA-256 differs"},
	} {
		t.Run(tc.script, func(t *testing.T) {
			if runtime.GOOS != "linux" || tc.npm == "exit 1" && runtime.GOARCH != "amd64" {
				need.Lack(t, "linux", "the script is not for this machine")
			}
			bin, data := t.TempDir(), t.TempDir()
			for _, tool := range tools {
				path, err := exec.LookPath(tool)
				need.Linux(t, err)
				writeScript(t, bin, tool, "exec "+path+` "$@"`)
			}
			writeScript(t, bin, "python3", tc.python)
			writeScript(t, bin, "npm", tc.npm)
			install := exec.Command(lookPath("bash"), "../../scripts/"+tc.script, data)
			install.Env = []string{"PATH=" + bin, "TMPDIR=" + t.TempDir()}
			out, err := install.CombinedOutput()
			left, _ := os.ReadDir(data)
			if err == nil || !strings.Contains(string(out), tc.want) || len(left) > 0 {
				t.Errorf("%v: %s; %d files", err, out, len(left))
			}
		})
	}
}

func writeScript(t *testing.T, dir, name, text string) {
	t.Helper()
	text = "#!" + lookPath("bash") + "\n" + text + "\n"
	expect.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
}

func lookPath(tool string) string {
	path, _ := exec.LookPath(tool)
	return path
}
