package backend

import (
	"fmt"
	"os"
	"strconv"
)

// launchers have variables of the rank and the number of the processes that they start together.
var launchers = []struct{ name, rank, size string }{
	{"kubeflow", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"}, // of Trainer
	{"kubeflow", "PROCESS_ID", "NUM_PROCESSES"},         // of a JAXJob
	{"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
	{"torchrun", "RANK", "WORLD_SIZE"},
}

// Processes says which of several processes this one is, where a launcher says that there are several; "" otherwise.
// They do not train together, since go-xla makes PJRT clients without the key-value callbacks by which processes find
// each other's devices.
func Processes() string {
	for _, l := range launchers {
		rank, size := os.Getenv(l.rank), os.Getenv(l.size)
		if n, err := strconv.Atoi(size); err == nil && n > 1 && rank != "" {
			return fmt.Sprintf("rank %s of %d (%s: %s=%s, %s=%s)", rank, n, l.name, l.rank, rank, l.size, size)
		}
	}
	return ""
}
