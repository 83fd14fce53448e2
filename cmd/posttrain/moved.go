package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// moved are the names of commands that are gone, each with what to write in its place.
var moved = map[string]string{
	"explain":          "mappo --explain",
	"backends":         "version",
	"model merge":      "model export --adapter",
	"data best":        "data pairs --write demonstrations",
	"rehearse":         "plan --rehearse",
	"verify":           "doctor",
	"data stats":       "data check",
	"score":            "data score",
	"federated run":    "federated server --spawn",
	"federated invite": "federated server --run DIR --invite NAME",
	"federated status": "federated server --status DIR",
	"federated replay": "federated server --resume DIR",
	"federated step":   "federated client",
}

// gone are the names of commands that nothing replaces, each with what serves instead.
var gone = map[string]string{
	"view": "TensorBoard and MLflow show runs side by side (tracking.tensorboard, tracking.mlflow); curves.png, " +
		"data show RUN/samples.jsonl and the cases.html of eval privacylens show one",
}

// goneFlags are flags that are gone, after their commands, each with what serves instead.
var goneFlags = map[string]string{
	"posttrain plan --within": "posttrain plan says how long the run takes: set train.max_steps by it",
	"posttrain plan --memory": "posttrain plan says how much memory the run takes, and what would need less",
}

// addMoved makes an old name end with one line that names the new one.
func addMoved(root *cobra.Command, old, now string) {
	addOld(root, old, "is now posttrain "+now)
}

// addOld makes an old name end with one line about it.
func addOld(root *cobra.Command, old, line string) {
	words := strings.Fields(old)
	last := len(words) - 1
	above, _, err := root.Find(words[:last])
	if err != nil || last > 0 && above == root {
		panic("no command above the old one: " + old)
	}
	above.AddCommand(&cobra.Command{
		Use: words[last], Hidden: true, DisableFlagParsing: true, Annotations: map[string]string{"moved": line},
		RunE: func(*cobra.Command, []string) error {
			return usageError{fmt.Errorf("posttrain %s %s", old, line)}
		},
	})
}
