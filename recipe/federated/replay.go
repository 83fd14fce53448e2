package federated

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/federated/journal"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/federated/wire"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
)

// Shared makes the options of every command whose runs have a journal an [Owner].
func (o *Options) Shared() *Options { return o }

// Owner are the options of a run that has a journal.
type Owner interface{ Shared() *Options }

// Replay computes a run again from its journal and compares every checkpoint. It returns what it has compared in words,
// also beside the error of a difference.
func Replay(dir string) (printed string, err error) {
	o, _, err := optionsOf(dir)
	if err != nil {
		return "", err
	}
	r, err := journal.Replay(dir, o.rebuild)
	if err != nil {
		return "", err
	}
	printed = describe(r)
	for _, c := range r.Snapshots {
		if c.Difference != "" {
			return printed, fmt.Errorf("%s differs from the journal: %s", c.Dir, c.Difference)
		}
	}
	return printed, nil
}

// optionsOf reads the options and the command that a run was started with.
func optionsOf(dir string) (o *Options, command string, err error) {
	path := filepath.Join(dir, "config.yaml")
	text, err := config.Open(path)
	if err != nil {
		return nil, "", fmt.Errorf("%s: there is no run in it (no config.yaml)", dir)
	}
	name := config.CommandOf(text)
	if slices.Contains(family, name) {
		o, err := config.Find(name).Read(config.Input{Path: path})
		if err != nil {
			return nil, "", err
		}
		if owner, ok := o.(Owner); ok {
			return owner.Shared(), name, nil
		}
	}
	return nil, "", fmt.Errorf("%s: command %s: want a run of federated server, run or step", path, name)
}

// rebuild makes the server of a journal, whose first line has the form.
func (o *Options) rebuild(form wire.Form) (protocol.Server, error) {
	s, _, err := o.NewServer()
	if err != nil {
		return nil, err
	}
	if d := len(s.Params()); form.D != d || string(form.Type) != o.Wire {
		return nil, fmt.Errorf("%s has %d parameters of type %s, but the run's config gives %d of type %s",
			journal.Name, form.D, form.Type, d, o.Wire)
	}
	return s, nil
}

// describe says what a replay has compared.
func describe(r journal.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "journal of run %s: %s, %s: %d accepted", r.Form.Run, recipe.Count(r.Events, "event"),
		recipe.Count(r.Updates, "update"), r.Accepted)
	for _, reason := range slices.Sorted(maps.Keys(r.Refused)) {
		fmt.Fprintf(&b, ", %d refused (%s)", r.Refused[reason], reason)
	}
	fmt.Fprintln(&b)
	if r.Start > 0 {
		fmt.Fprintf(&b, "older updates were removed: begun at event %d, with the oldest checkpoint\n", r.Start)
	}
	if r.Torn > 0 {
		fmt.Fprintf(&b, "line %d is half a line, which a kill has left or a server is writing: it does not count\n",
			r.Torn)
	}
	same := 0
	for _, c := range r.Snapshots {
		found := "same bits"
		if c.Difference == "" {
			same++
		} else {
			found = c.Difference
		}
		fmt.Fprintf(&b, "%s: version %d, event %d: %s\n", c.Dir, c.Version, c.Event, found)
	}
	fmt.Fprintf(&b, "%d of %d checkpoints have the bits of the journal\n", same, len(r.Snapshots))
	fmt.Fprintf(&b, "version %d, SHA-256 of the parameters: %s\n", r.Version, r.Params)
	return b.String()
}
