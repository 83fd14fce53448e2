package backend_test

import "github.com/gomlx/compute"

func inputs(b ...compute.Buffer) []compute.Buffer { return b }
