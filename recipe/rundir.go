package recipe

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

// RunDir says which directory keeps a run.
type RunDir struct {
	Out    string // a directory to make; "": runs/<command>-<time>
	Resume string // the directory of a run to continue; excludes Out
}

// Check looks at the run folder ahead of anything that takes long. A run continues with the configuration that it was
// started with.
func (d RunDir) Check(resolved []byte) error {
	dir := d.Resume
	if dir == "" {
		return run.CheckNew(d.Out)
	}
	stored, err := config.Open(filepath.Join(dir, "config.yaml"))
	if err != nil {
		return fmt.Errorf("%s: there is no run in it (no config.yaml)", dir)
	}
	if of, here := config.CommandOf(stored), config.CommandOf(resolved); of != "" && of != here {
		return fmt.Errorf("--resume %s: it is a run of posttrain %s: want one of posttrain %s", dir, of, here)
	}
	changed := config.Diff(identity(stored), identity(resolved))
	if len(changed) == 0 {
		return nil
	}
	return fmt.Errorf("--resume %s: the config has changed since the run was started (%s): resume without changing "+
		"it, "+
		"or start a new run with --out", dir, strings.Join(changed, "; "))
}

// keep takes over from the run to continue what it noted at its start, also where the config is the user's, which says
// nothing of it: what prompts depend on besides the rows, see [local.Chat.Pin], and the options that were chosen by the
// data.
func (d RunDir) keep(b *Base) error {
	c, t := &b.Chat.Chat, &b.Train
	if d.Resume == "" {
		return c.Pin(b.Model, b.Adapting.Adapter)
	}
	stored, err := config.Open(filepath.Join(d.Resume, "config.yaml"))
	if err != nil {
		return nil // Check says so
	}
	noted, err := config.ValuesOf(stored)
	if err != nil {
		return fmt.Errorf("--resume %s: config.yaml: %w", d.Resume, err)
	}
	c.Date = cmp.Or(c.Date, strings.Join(noted["chat.date"], ""))
	if c.SHA256 == "" && c.Template != "" {
		c.SHA256 = strings.Join(noted["chat.template_sha256"], "")
	}
	for _, key := range t.Unset {
		if value := noted["train."+key]; len(value) == 1 {
			if _, err := fmt.Sscan(value[0], t.Chosen()[key]); err != nil {
				return fmt.Errorf("--resume %s: config.yaml: train.%s %s: %w", d.Resume, key, value[0], err)
			}
		}
	}
	t.Unset = nil
	return nil
}

// Open makes the run folder, or opens the one to continue.
func (d RunDir) Open(command string, resolved []byte) (folder *run.Folder, err error) {
	if d.Resume != "" {
		return run.Open(d.Resume)
	}
	if folder, err = run.Create(d.Out, strings.ReplaceAll(command, " ", "-")); err != nil {
		return nil, err
	}
	return folder, folder.WriteConfig(resolved)
}

// identity is what a resumed run must have in common with the run that was started: its config without the keys that
// change no result, or its rounding alone: where a server listens, when a run saves and what it shows, too.
func identity(resolved []byte) []byte { return changeable.ReplaceAll(resolved, nil) }

var changeable = regexp.MustCompile(`(?m)^  (checkpoint_minutes|show_samples): .*\n|^(engine|tracking):\n(  .*\n)*` +
	`|^(listen|tls|spawn|checkpoint_every|checkpoint_keep): .*\n`)
