package backend

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/files"
)

const (
	pluginPathEnv = "PJRT_PLUGIN_LIBRARY_PATH"
	xlaHowToGet   = "run scripts/install-pjrt-cpu.sh for a CPU, or give a plugin as xla:/path/plugin.so (of JAX: " +
		"jax_plugins/xla_cuda13/xla_cuda_plugin.so in its site-packages), or name the folder that holds it in " +
		pluginPathEnv + " (docs/scale.md)"
	compilerHowToGet = "no compiler for CUDA: run scripts/install-cuda-compiler.sh, which gets jax-cuda12-pjrt and " +
		"nvidia-cuda-nvcc-cu12 from PyPI, or name the folder of such a xla_cuda_plugin.so in " + pluginPathEnv
)

// pluginPatterns are the names of plugin files.
var pluginPatterns = []string{"pjrt_c_api_*_plugin.so", "pjrt_plugin_*.so", "pjrt-plugin-*.so", "xla_*_plugin.so"}

// PluginFolders lists the folders that are searched for plugins, without the system's library folders. Relative ones
// are left out.
func PluginFolders() []string {
	if paths := os.Getenv(pluginPathEnv); paths != "" {
		return slices.DeleteFunc(filepath.SplitList(paths), func(p string) bool { return !filepath.IsAbs(p) })
	}
	var folders []string
	if dir := files.DataDir(); dir != "" {
		folders = append(folders, dir)
	}
	if home := files.HomeDir(); home != "" {
		folders = append(folders, filepath.Join(home, ".local", "lib", "go-xla"))
	}
	folders = append(folders, "/usr/local/lib/go-xla")
	for _, p := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if filepath.IsAbs(p) {
			folders = append(folders, p)
		}
	}
	return folders
}

// findPlugins lists the plugin files in PluginFolders. It opens none, since opening a plugin runs its code.
func findPlugins() []string {
	var found []string
	for _, folder := range PluginFolders() {
		for _, pattern := range pluginPatterns {
			matches, _ := filepath.Glob(filepath.Join(folder, pattern))
			found = append(found, matches...)
		}
	}
	return found
}

// compilerPlugin finds a plugin that compiles for CUDA without a GPU. scripts/install-cuda-compiler.sh installs one in a
// folder of its own, where no engine looks for it. Without that it is the plugin of the engine xla:cuda. It is "" where
// there is neither.
func compilerPlugin() string {
	if dir := files.DataDir(); dir != "" {
		path := filepath.Join(dir, "cuda-compiler", "jax_plugins", "xla_cuda12", "xla_cuda_plugin.so")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return findPlugin("cuda")
}

// pluginName is the part of a plugin file's name that the patterns leave open, such as cpu.
func pluginName(path string) string {
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".so"), "_plugin")
	for _, prefix := range []string{"pjrt_c_api_", "pjrt_plugin_", "pjrt-plugin-", "xla_"} {
		name = strings.TrimPrefix(name, prefix)
	}
	return name
}

// findPlugin gives the first plugin file with a name such as cpu or cuda. If the name is "", CUDA's comes before cpu's,
// and that before all others. It is "" if there is no such file.
func findPlugin(name string) string {
	found := findPlugins()
	if name == "" && len(found) > 0 {
		return cmp.Or(findPlugin("cuda"), findPlugin("cpu"), found[0])
	}
	named := regexp.MustCompile(`[_-]` + regexp.QuoteMeta(name) + `[_.-]`)
	for _, path := range found {
		if named.MatchString(filepath.Base(path)) {
			return path
		}
	}
	return ""
}

// xlaConfig turns the text after "xla:", [PLUGIN][,option...], into go-xla's configuration and the plugin's absolute
// path. A path must name a file; a name, or "" for any plugin, means a file in PluginFolders.
func xlaConfig(arg string) (config, plugin string, err error) {
	plugin, options, hasOptions := strings.Cut(arg, ",")
	if strings.Contains(plugin, "/") {
		if plugin, err = files.Library(plugin, "xla"); err != nil {
			return "", "", err
		}
	} else if plugin = findPlugin(plugin); plugin == "" {
		return "", "", noPluginError(arg)
	}
	if hasOptions {
		return plugin + "," + options, plugin, nil
	}
	return plugin, plugin, nil
}

// noPluginError says where no plugin of the name before the comma was found.
func noPluginError(arg string) error {
	if len(PluginFolders()) == 0 {
		return fmt.Errorf("%s=%s: want absolute paths of folders", pluginPathEnv, os.Getenv(pluginPathEnv))
	}
	name, _, _ := strings.Cut(arg, ",")
	return fmt.Errorf("no PJRT plugin %sin %s", strings.TrimLeft(name+" ", " "), strings.Join(PluginFolders(), ", "))
}

// cudaTools is the flag that says where CUDA's tools are.
const cudaTools = "xla_gpu_cuda_data_dir"

// xlaFlag is a flag of XLA's compiler.
type xlaFlag struct{ name, value string }

// slowFlags turn off what XLA for GPUs does where nothing is said. With the first two it compiles tens of kernels for every
// product and tries which is fastest: a program of the embedded model took minutes on an H200, and 4 s without, for steps
// that are as fast. With the third it makes one product of two that have a side in common, and to that end joins their
// weights in every step of sampling: 3 GB for a model of 1.5B.
var slowFlags = []xlaFlag{{"xla_gpu_experimental_enable_fusion_autotuner", "false"},
	{"xla_gpu_enable_triton_gemm", "false"}, {"xla_gpu_dot_merger_threshold_mb", "0"}}

// patience is how long the devices of a CPU wait for each other, in seconds. XLA's own limit is 40, and its end is the end
// of the process: four devices on two busy cores came to it.
var patience = xlaFlag{"xla_cpu_collective_call_terminate_timeout_seconds", "86400"}

// pluginEnvironment gives the variables to set before a plugin is opened, unless the user has set them. go-xla looks
// for CUDA's libraries only beside plugins that it installed itself, and otherwise warns. XLA needs to know where a
// plugin from Python's site-packages has its CUDA tools. It ends the process at a flag that it does not know, so that
// only flags that the plugin has are set.
func pluginEnvironment(plugin string, wanted []xlaFlag, has func(flag string) bool) map[string]string {
	set := map[string]string{}
	if os.Getenv("GOPJRT_CUDA_CHECKS") == "" {
		set["GOPJRT_CUDA_CHECKS"] = "0"
	}
	flags := strings.Fields(os.Getenv("XLA_FLAGS"))
	add := func(name, value string) {
		flag := "--" + name + "="
		if !slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, flag) }) {
			flags = append(flags, flag+value)
		}
	}
	if dir := cudaDataDir(plugin); dir != "" {
		add(cudaTools, dir)
	}
	for _, flag := range wanted {
		if has(flag.name) {
			add(flag.name, flag.value)
		}
	}
	if all := strings.Join(flags, " "); all != os.Getenv("XLA_FLAGS") {
		set["XLA_FLAGS"] = all
	}
	return set
}

// cudaDataDir finds the newest nvidia/cu* (or nvidia/cuda_nvcc) in the site-packages folder that holds a plugin such as
// site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so. It is "" for a plugin in another place.
func cudaDataDir(plugin string) string {
	for dir := filepath.Dir(plugin); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if found, _ := filepath.Glob(filepath.Join(dir, "nvidia", "cu[0-9]*")); len(found) > 0 {
			return slices.MaxFunc(found, compareVersions)
		}
		nvcc := filepath.Join(dir, "nvidia", "cuda_nvcc")
		if info, err := os.Stat(nvcc); err == nil && info.IsDir() {
			return nvcc
		}
	}
	return ""
}
