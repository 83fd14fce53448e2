package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
)

// MergeOptions say which adapter is added to the weights of its model, in which folder.
type MergeOptions struct {
	Model   string `yaml:"model" want:"@model" hub:"model"`
	Adapter string `yaml:"adapter" want:"given" hub:"adapter" words:"an adapter's folder, or org/name on the hub"`
	Out     string `yaml:"out" want:"given" words:"a folder to make"`
	DType   string `yaml:"dtype" want:"auto|float32|bfloat16|float16"` // auto: as the model is stored
}

// Merge writes the merged model, and says in words how far the weights moved and what rounding them costs.
func Merge(ctx context.Context, o MergeOptions) (text string, err error) {
	if faults := fault.Check(o); len(faults) > 0 {
		return "", faults[0]
	}
	if err := files.CheckNew(o.Out); err != nil {
		return "", err
	}
	m, t, err := local.LoadAny(o.Model)
	if err != nil {
		return "", err
	}
	defer m.Release()
	if !m.Config.Reward && model.Scores(o.Adapter) {
		m = local.ToReward(m, t, 0) // the adapter's score takes the place of the new one
	}
	if m, err = m.LoadAdapter(o.Adapter); err == nil {
		err = local.Chat{}.Apply(t, o.Adapter)
	}
	if err != nil {
		return "", err
	}
	dtype := o.DType
	if dtype == "auto" {
		dtype = cmp.Or(m.Config.DType, "float32")
	}
	err = files.MakeFolder(o.Out, func(dir string) error {
		if err := m.SaveMerged(ctx, dir, dtype); err != nil {
			return err
		}
		text = fmt.Sprintf("%s: %s with %s merged into %d matrices, stored as %s\n", o.Out, o.Model, o.Adapter,
			len(m.Trained())/2, dtype)
		card := recipe.DeriveCard(o.Adapter, "transformers", "Merged by posttrain model export", text)
		return errors.Join(t.CopyTo(dir), os.WriteFile(filepath.Join(dir, recipe.CardName), []byte(card), 0o644))
	})
	if err = interrupted(ctx, err); err != nil {
		return "", err
	}
	return text, nil
}
