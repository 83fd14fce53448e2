package recipe_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
)

// TestDevices: a mesh is in the config and in what explains it, and one device is today's config.
func TestDevices(t *testing.T) {
	o, err := parse(minimal + "backend: xla\nengine: {devices: 8, shard: moments}")
	if err != nil {
		t.Fatal(err)
	}
	const want = "devices: 8, over which rows are cut, and gradients, float32 weights and moments\n"
	if text := o.Explain(); !strings.Contains(text, want) {
		t.Errorf("%s\nwant %s", text, want)
	}
	plain, err := parse(minimal)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(plain.Resolved()); strings.Contains(text, "engine") {
		t.Errorf("the config of one device:\n%s", text)
	}
}

func TestFaultsOfDevices(t *testing.T) {
	for text, want := range map[string]string{
		"backend: go\nengine: {devices: 2}": "f.yaml:5: engine.devices 2: backend go computes on one device, only xla " +
			"can use several",
		"engine: {shard: moments}": `f.yaml:4: engine.shard "moments": want engine.devices too, the number of ` +
			"devices",
		"engine: {devices: -1}":                "f.yaml:4: engine.devices -1: want a whole number, 0 (one) or more",
		"engine: {devices: 2, shard: weights}": `f.yaml:4: engine.shard "weights": want none or moments`,
	} {
		if _, err := parse(minimal + text); err == nil || err.Error() != want {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
}

// TestARunMayResumeOnAnotherMesh: the devices are no part of what a resumed run must have in common with the one that
// was started, the rest is.
func TestARunMayResumeOnAnotherMesh(t *testing.T) {
	dir := t.TempDir()
	started := "command: mappo\nbackend: xla\nengine:\n  devices: 4\n  shard: moments\nseed: 1\n"
	expect.Write(t, filepath.Join(dir, "config.yaml"), started)
	resume := recipe.RunDir{Resume: dir}
	for _, now := range []string{started, "command: mappo\nbackend: xla\nseed: 1\n",
		"command: mappo\nbackend: xla\nengine:\n  devices: 2\nseed: 1\n"} {
		if err := resume.Check([]byte(now)); err != nil {
			t.Error(err)
		}
	}
	err := resume.Check([]byte("command: mappo\nbackend: xla\nseed: 2\n"))
	expect.Error(t, err, "seed")
}
