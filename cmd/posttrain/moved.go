package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// oldNames are the names of commands that are gone, each with what to write in its place.
var oldNames = map[string]string{
	"explain":          "is now posttrain mappo --explain",
	"backends":         "is now posttrain version",
	"rehearse":         "is now posttrain plan --rehearse",
	"verify":           "is now posttrain doctor",
	"score":            "is now posttrain data score",
	"data stats":       "is now posttrain data check",
	"data best":        "is now posttrain data pairs --write demonstrations",
	"model merge":      "is now posttrain model export --adapter",
	"federated run":    "is now posttrain federated server --spawn",
	"federated invite": "is now posttrain federated server --run DIR --invite NAME",
	"federated status": "is now posttrain federated server --status DIR",
	"federated replay": "is now posttrain federated server --resume DIR",
	"federated step":   "is now posttrain federated client",
	"man":              "is gone: posttrain help and docs/commands.md say the same",
	"view":             "is gone: TensorBoard and MLflow show runs (tracking.tensorboard, tracking.mlflow)",

	"eval privacylens actions": "is now posttrain eval privacylens --stage=answers",
	"eval privacylens probe":   "is now posttrain eval privacylens --form=probe",
	"eval privacylens prompts": "is gone: the prompts are in the program, and --prompts takes a folder of templates",
}

func init() {
	for _, name := range []string{"privacylens", "alpaca", "arena-hard", "mt-bench", "confaide", "gate"} {
		for _, stage := range []string{"answers", "judge", "report"} {
			oldNames["eval "+name+" "+stage] = "is now posttrain eval " + name + " --stage=" + stage
		}
		oldNames["eval "+name+" compare"] = "is now posttrain eval compare"
	}
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
