package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// moved are the names of commands that are gone, each with what to write in its place.
var moved = map[string]string{
	"backends":         "version",
	"model merge":      "model export --adapter",
	"data stats":       "data check",
	"score":            "data score",
	"federated run":    "federated server --spawn",
	"federated invite": "federated server --run DIR --invite NAME",
	"federated status": "federated server --status DIR",
	"federated replay": "federated server --resume DIR",
	"federated step":   "federated client",
}

// addMoved makes an old name end with one line that names the new one.
func addMoved(root *cobra.Command, old, now string) {
	words := strings.Fields(old)
	last := len(words) - 1
	above, _, err := root.Find(words[:last])
	if err != nil || last > 0 && above == root {
		panic("no command above the old one: " + old)
	}
	above.AddCommand(&cobra.Command{
		Use: words[last], Hidden: true, DisableFlagParsing: true, Annotations: map[string]string{"moved": now},
		RunE: func(*cobra.Command, []string) error {
			return usageError{fmt.Errorf("posttrain %s is now posttrain %s", old, now)}
		},
	})
}
