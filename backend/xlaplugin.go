package backend

const xlaHowToGet = "put a PJRT plugin into a folder named by PJRT_PLUGIN_LIBRARY_PATH, or give its path as xla:/path/plugin.so (docs/gpu.md)"
