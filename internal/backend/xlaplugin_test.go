package backend

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// For a plugin in Python's site-packages XLA_FLAGS names CUDA's tools. Flags that a plugin knows, and that make it slow,
// are turned off. What the user has set stays.
func TestPluginEnvironment(t *testing.T) {
	site := t.TempDir()
	plugin := filepath.Join(site, "jax_plugins", "xla_cuda13", "xla_cuda_plugin.so")
	for _, dir := range []string{filepath.Dir(plugin), filepath.Join(site, "nvidia", "cu12"),
		filepath.Join(site, "nvidia", "cu13"), filepath.Join(site, "nvidia", "cudnn")} {
		expect.OK(t, os.MkdirAll(dir, 0o755))
	}
	data := "--xla_gpu_cuda_data_dir=" + filepath.Join(site, "nvidia", "cu13")
	for _, tc := range []struct {
		name, plugin, flags, checks string
		want                        map[string]string
	}{
		{"site-packages", plugin, "", "", map[string]string{"XLA_FLAGS": data, "GOPJRT_CUDA_CHECKS": "0"}},
		{"other flags stay", plugin, "--xla_dump_to=x", "", map[string]string{"XLA_FLAGS": "--xla_dump_to=x " + data,
			"GOPJRT_CUDA_CHECKS": "0"}},
		{"the user's folder stays", plugin, "--xla_gpu_cuda_data_dir=/mine", "1", map[string]string{}},
		{"slow flags", "cuda.so", "", "0", map[string]string{
			"XLA_FLAGS": "--xla_gpu_experimental_enable_fusion_autotuner=false --xla_gpu_enable_triton_gemm=false " +
				"--xla_gpu_dot_merger_threshold_mb=0"}},
		{"the user's flag stays", "cuda.so", "--xla_gpu_enable_triton_gemm=true", "0", map[string]string{
			"XLA_FLAGS": "--xla_gpu_enable_triton_gemm=true --xla_gpu_experimental_enable_fusion_autotuner=false " +
				"--xla_gpu_dot_merger_threshold_mb=0"}},
		{"no site-packages", filepath.Join(t.TempDir(), "plugin.so"), "", "0", map[string]string{}},
		{"by name", "cuda", "", "0", map[string]string{}},
		{"devices of a CPU", "cpu.so", "", "0", map[string]string{
			"XLA_FLAGS": "--xla_cpu_collective_call_terminate_timeout_seconds=86400"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("XLA_FLAGS", tc.flags)
			t.Setenv("GOPJRT_CUDA_CHECKS", tc.checks)
			known, flags := func(string) bool { return tc.plugin == "cpu.so" || tc.plugin == "cuda.so" }, slowFlags
			if tc.plugin == "cpu.so" {
				flags = []xlaFlag{patience}
			}
			if got := pluginEnvironment(tc.plugin, flags, known); !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Without a name CUDA's plugin is taken, then the CPU's, then any.
func TestFindPlugin(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(pluginPathEnv, dir)
	for _, tc := range []struct{ file, name, want string }{
		{"", "", ""}, {"pjrt_c_api_amx_plugin.so", "", "pjrt_c_api_amx_plugin.so"},
		{"pjrt_c_api_cpu_plugin.so", "", "pjrt_c_api_cpu_plugin.so"},
		{"pjrt_c_api_cuda_plugin.so", "", "pjrt_c_api_cuda_plugin.so"},
		{"", "amx", "pjrt_c_api_amx_plugin.so"}, {"", "cpu", "pjrt_c_api_cpu_plugin.so"}, {"", "cp", ""},
		{"xla_gpu_plugin.so", "gpu", "xla_gpu_plugin.so"},
		{"", "tpu", ""},
	} {
		if tc.file != "" {
			expect.Write(t, filepath.Join(dir, tc.file), "")
		}
		if got := findPlugin(tc.name); strings.TrimPrefix(got, dir+"/") != tc.want {
			t.Errorf("%q: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
