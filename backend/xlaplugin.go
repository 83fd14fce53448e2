package backend

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	pluginPathEnv = "PJRT_PLUGIN_LIBRARY_PATH"
	xlaHowToGet   = "give the path of a PJRT plugin as xla:/path/plugin.so (of JAX: " +
		"jax_plugins/xla_cuda13/xla_cuda_plugin.so in its site-packages), or name the folder that holds " +
		"pjrt_c_api_<name>_plugin.so in " + pluginPathEnv + " (docs/gpu.md)"
)

// pluginFolders lists the folders that are searched for plugins, without the system's library folders. Relative ones
// are left out.
func pluginFolders() []string {
	if paths := os.Getenv(pluginPathEnv); paths != "" {
		return slices.DeleteFunc(filepath.SplitList(paths), func(p string) bool { return !filepath.IsAbs(p) })
	}
	folders := []string{"/usr/local/lib/go-xla"}
	if home := homeDir(); home != "" {
		folders = append([]string{filepath.Join(home, ".local", "lib", "go-xla")}, folders...)
	}
	for _, p := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if filepath.IsAbs(p) {
			folders = append(folders, p)
		}
	}
	return folders
}

// findPlugins lists the plugin files in pluginFolders. It opens none, since opening a plugin runs its code.
func findPlugins() []string {
	var found []string
	for _, folder := range pluginFolders() {
		for _, pattern := range []string{"pjrt_c_api_*_plugin.so", "pjrt_plugin_*.so", "pjrt-plugin-*.so"} {
			matches, _ := filepath.Glob(filepath.Join(folder, pattern))
			found = append(found, matches...)
		}
	}
	return found
}

// xlaConfig turns the text after "xla:", [PLUGIN][,option...], into go-xla's configuration and the plugin's name or
// absolute path. A path must name a file; go-xla searches for names, in the linker's folders too.
func xlaConfig(arg string) (config, plugin string, err error) {
	plugin, options, hasOptions := strings.Cut(arg, ",")
	if strings.Contains(plugin, "/") {
		if plugin, err = existingFile(plugin, "xla"); err != nil {
			return "", "", err
		}
	}
	if hasOptions {
		return plugin + "," + options, plugin, nil
	}
	return plugin, plugin, nil
}

func noPluginError() error {
	if len(pluginFolders()) == 0 {
		return fmt.Errorf("%s=%s: want absolute paths of folders", pluginPathEnv, os.Getenv(pluginPathEnv))
	}
	return fmt.Errorf("no PJRT plugin in %s", strings.Join(pluginFolders(), ", "))
}

// pluginEnvironment gives the variables to set before a plugin is opened, unless the user has set them. go-xla looks
// for CUDA's libraries only beside plugins that it installed itself, and otherwise warns. XLA needs to know where a
// plugin from Python's site-packages has its CUDA tools.
func pluginEnvironment(plugin string) map[string]string {
	set := map[string]string{}
	if os.Getenv("GOPJRT_CUDA_CHECKS") == "" {
		set["GOPJRT_CUDA_CHECKS"] = "0"
	}
	if home, _ := os.UserHomeDir(); home != "" && homeDir() == "" || os.Getenv(pluginPathEnv) != "" {
		set[pluginPathEnv] = strings.Join(pluginFolders(), string(filepath.ListSeparator)) // no relative ones
	}
	const flag = "--xla_gpu_cuda_data_dir="
	flags := os.Getenv("XLA_FLAGS")
	if dir := cudaDataDir(plugin); dir != "" && !strings.Contains(flags, flag) {
		set["XLA_FLAGS"] = strings.TrimSpace(flags + " " + flag + dir)
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
