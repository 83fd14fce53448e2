package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// oldNames are the names of commands that are gone, each with what to write in its place.
var oldNames = map[string]string{
	"explain":    "is now posttrain mappo --explain",
	"rehearse":   "is now posttrain plan --rehearse",
	"verify":     "is now posttrain doctor",
	"score":      "is now posttrain data score",
	"data stats": "is now posttrain data check",
	"view":       "is gone: TensorBoard and MLflow show runs (tracking.tensorboard, tracking.mlflow)",
}

// addOld makes an old name end with one line about it.
func addOld(root *cobra.Command, old, line string) {
	words := strings.Fields(old)
	above, _, _ := root.Find(words[:len(words)-1])
	above.AddCommand(&cobra.Command{
		Use: words[len(words)-1], Hidden: true, DisableFlagParsing: true, Annotations: map[string]string{"moved": line},
		RunE: func(*cobra.Command, []string) error {
			return usageError{fmt.Errorf("posttrain %s %s", old, line)}
		},
	})
}
