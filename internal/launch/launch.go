// Package launch reads which of several processes this one is, from the environment of what started them: Kubeflow's
// JAX jobs, an indexed Job of Kubernetes, Slurm's srun, or torchrun and what sets its variables.
package launch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Process is one of several that were started together.
type Process struct {
	Launcher string // kubeflow, kubernetes, slurm or torchrun
	Rank     int    // from 0
	Size     int    // how many there are; 0: unknown, as of an indexed Job
	Local    int    // the rank among those of this machine; 0 where the launcher does not say
	Host     string // of rank 0; "": unknown

	from string // the variables
}

func (p *Process) String() string {
	of := ""
	if p.Size > 0 {
		of = fmt.Sprintf(" of %d", p.Size)
	}
	return fmt.Sprintf("rank %d%s (%s: %s)", p.Rank, of, p.Launcher, p.from)
}

// launcher names the variables of a launcher.
type launcher struct {
	name              string
	rank, size, local string
	host              string
	list              bool // host is a list of Slurm's, of which the first is meant
}

// launchers, of which the last is asked where the others have set nothing: what starts processes in a pod, or an
// operator that makes a Job, knows more than the Job.
var launchers = []launcher{
	{name: "kubeflow", rank: "JAX_PROCESS_ID", size: "JAX_NUM_PROCESSES", host: "JAX_COORDINATOR_ADDRESS"}, // Trainer
	{name: "kubeflow", rank: "PROCESS_ID", size: "NUM_PROCESSES", host: "COORDINATOR_ADDRESS"},             // JAXJob
	{name: "slurm", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", local: "SLURM_LOCALID",
		host: "SLURM_STEP_NODELIST", list: true},
	{name: "torchrun", rank: "RANK", size: "WORLD_SIZE", local: "LOCAL_RANK", host: "MASTER_ADDR"},
	{name: "kubernetes", rank: "JOB_COMPLETION_INDEX"},
}

// Auto asks for the launcher that has set its variables.
const Auto = "auto"

// Names are what [Find] accepts.
func Names() []string {
	names := []string{Auto}
	for _, l := range launchers {
		if !slices.Contains(names, l.name) {
			names = append(names, l.name)
		}
	}
	return names
}

// Find is this process in the environment of a launcher, or with auto of the one that is there. Launchers that
// contradict each other, and variables that are missing, are errors.
func Find(name string, env func(string) string) (*Process, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("launch %q: want %s", name, strings.Join(Names(), ", "))
	}
	p, err := find(name, env)
	if err == nil && p == nil {
		err = fmt.Errorf("launch %s: found none of the variables %s", name, variables(name))
	}
	return p, err
}

// Several is this process if a launcher says that it is one of more than one; nil otherwise. Of launchers that
// contradict each other it is the one with the most processes.
func Several(env func(string) string) (most *Process) {
	for _, l := range launchers {
		p, err := l.read(env)
		if err == nil && p != nil && p.Size > 1 && (most == nil || p.Size > most.Size) {
			most = p
		}
	}
	return most
}

func find(name string, env func(string) string) (found *Process, err error) {
	var half error
	for _, l := range launchers {
		if name != Auto && l.name != name || l.size == "" && found != nil {
			continue
		}
		p, err := l.read(env)
		if errors.Is(err, errHalf) && name == Auto { // as in a batch script of Slurm that calls torchrun
			half = cmp.Or(half, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("launch %s: %w", name, err)
		}
		if p == nil {
			continue
		}
		if found != nil && (p.Rank != found.Rank || p.Size != found.Size) {
			return nil, fmt.Errorf("launch %s: found %v and %v: want one of them: name it, such as --launch %s", name,
				found, p, p.Launcher)
		}
		if found == nil {
			found = p
		}
	}
	if found == nil && half != nil {
		return nil, fmt.Errorf("launch %s: %w", name, half)
	}
	return found, nil
}

// errHalf ends the message about a rank without a number of processes, or the other way round.
var errHalf = errors.New("want both")

// variables lists the ranks' variables of a launcher, or of all.
func variables(name string) string {
	var all []string
	for _, l := range launchers {
		if name == Auto || l.name == name {
			all = append(all, l.rank)
		}
	}
	return strings.Join(all, ", ")
}

// read gives nil where the launcher's variables are not set.
func (l launcher) read(env func(string) string) (*Process, error) {
	rank, size := env(l.rank), env(l.size)
	switch {
	case rank == "" && (size == "" || l.size == ""):
		return nil, nil
	case rank == "" || size == "" && l.size != "":
		return nil, fmt.Errorf("found %s=%q and %s=%q, %w", l.rank, rank, l.size, size, errHalf)
	}
	p := &Process{Launcher: l.name, Host: l.hostOf(env(l.host)), from: l.rank + "=" + rank}
	var err error
	if l.size != "" {
		p.from += ", " + l.size + "=" + size
		if p.Size, err = strconv.Atoi(size); err != nil || p.Size < 1 {
			return nil, fmt.Errorf("found %s=%q, want a whole number, 1 or more", l.size, size)
		}
	}
	if p.Rank, err = strconv.Atoi(rank); err != nil || p.Rank < 0 || p.Size > 0 && p.Rank >= p.Size {
		return nil, fmt.Errorf("found %s, want a rank from 0 below the number of processes", p.from)
	}
	if local := env(l.local); l.local != "" && local != "" {
		if p.Local, err = strconv.Atoi(local); err != nil || p.Local < 0 {
			return nil, fmt.Errorf("found %s=%q, want a whole number, 0 or more", l.local, local)
		}
	}
	return p, nil
}

// hostOf takes a port, or the other hosts of a list, away.
func (l launcher) hostOf(text string) string {
	if l.list {
		return firstHost(text)
	}
	if host, port, ok := strings.Cut(text, ":"); ok && !strings.Contains(port, ":") {
		return host
	}
	return text
}

// firstHost is the first of a list of Slurm's, such as gpu[03-05,9],login1.
func firstHost(list string) string {
	head, rest, ok := strings.Cut(list, "[")
	if before, _, several := strings.Cut(head, ","); several || !ok {
		return before
	}
	inside, after, _ := strings.Cut(rest, "]")
	first, _, _ := strings.Cut(inside, ",")
	first, _, _ = strings.Cut(first, "-")
	after, _, _ = strings.Cut(after, ",")
	return head + first + after
}
