package model_test

import (
	"reflect"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
)

// TestTinyIsSavedAndRead: the tiny model of every type is read as it was saved.
func TestTinyIsSavedAndRead(t *testing.T) {
	for _, name := range model.Types {
		m, dir := model.Init(testkit.Config(t, name).Tiny(), 1), t.TempDir()
		if err := m.Save(dir, "float32"); err != nil {
			t.Fatal(err)
		}
		read, err := model.Load(dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := read.Config.ParamSpecs(), m.Config.ParamSpecs(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
