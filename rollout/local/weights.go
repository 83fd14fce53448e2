package local

import (
	"cmp"
	"path/filepath"

	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/hub"
)

// HashWeights names the weights of a model's folder and the files of an adapter; "": without one. A folder can get
// other weights under the same name.
func HashWeights(folder, adapter string) (string, error) {
	m, _, err := Load(folder)
	if err != nil {
		return "", err
	}
	defer m.Release()
	hash, err := m.Hash()
	if err != nil || adapter == "" {
		return hash, err
	}
	dir, err := hub.Folder(adapter)
	if err != nil {
		return "", err
	}
	config, configErr := files.SHA256(filepath.Join(dir, "adapter_config.json"))
	weights, err := files.SHA256(filepath.Join(dir, "adapter_model.safetensors"))
	return hash + " " + config + " " + weights, cmp.Or(configErr, err)
}
