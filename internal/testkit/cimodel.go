package testkit

import (
	"path/filepath"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

// CIModel is the folder of a model of 50,000 parameters with the embedded model's tokenizer. It knows 24 scenarios,
// ci.Synthesize(24, 5), in the compact prompt by heart: it answers them in about 32 tokens, in the format of CI-RL, in
// ways that get different rewards. TestCIModel of cmd/posttrain, behind the build tag fixtures, makes it.
func CIModel() string { return filepath.Join(need.Root, "internal", "testkit", "testdata", "ci-model") }
