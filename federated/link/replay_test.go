package link

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// replayed is what a replay has found.
type replayed struct {
	Accepted int
	Refused  map[string]int // by reason
	Version  int            // at the end
	Params   string         // hash of θ at the end
	Found    []string       // of each snapshot, oldest event first and damaged ones before: how it differs, "" for not
}

// same reports whether all snapshots equal the journal's.
func (r replayed) same() bool {
	return !slices.ContainsFunc(r.Found, func(f string) bool { return f != "" })
}

func replay(t testing.TB, dir string) replayed { return replayOn(t, dir, format, newFake()) }

// replayOn gives the whole journal of a folder to a new server, and compares each snapshot with it, bit for bit.
func replayOn(t testing.TB, dir string, format Format, server protocol.Server) (r replayed) {
	t.Helper()
	r.Refused = map[string]int{}
	bare := filepath.Join(t.TempDir(), "bare")
	expect.OK(t, errors.Join(os.CopyFS(bare, os.DirFS(dir)), os.RemoveAll(filepath.Join(bare, "checkpoints"))))
	due := snapshotsOf(t, dir, &r)
	compare := func(event int) {
		for len(due) > 0 && due[0].Event == event {
			want := expect.Must(snapshotOf(server, format.Run, event))(t)
			how := ""
			if found := due[0]; found.Version != want.Version || found.Params != want.Params ||
				!bytes.Equal(found.state, want.state) {
				how = fmt.Sprintf("the snapshot of event %d is not that of the journal", event)
			}
			r.Found = append(r.Found, how)
			due = due[1:]
		}
	}
	compare(0)
	folder := expect.Must(run.Open(bare))(t)
	defer folder.Close()
	_, err := OpenJournal(folder, server, JournalOptions{Format: format, Observe: func(e Event,
		x protocol.Receipt) error {
		if compare(e.N); x.Accepted {
			r.Accepted++
		} else if x.Reason != "" {
			r.Refused[x.Reason]++
		}
		return nil
	}})
	expect.OK(t, err)
	for _, s := range due {
		r.Found = append(r.Found, fmt.Sprintf("it is of event %d, after the journal's end", s.Event))
	}
	r.Version, r.Params = server.Version(), Hash(server.Params())
	return r
}

// snapshotsOf reads the snapshots of a folder. A damaged one differs.
func snapshotsOf(t testing.TB, dir string, r *replayed) (whole []snapshot) {
	t.Helper()
	folder := &run.Folder{Dir: dir}
	all, err := folder.All()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, c := range all {
		err := folder.ReadCheckpoint(c, func(dir string) error {
			s, err := readSnapshot(dir)
			if err == nil {
				whole = append(whole, s)
			}
			return err
		})
		if err != nil {
			r.Found = append(r.Found, err.Error())
		}
	}
	slices.SortStableFunc(whole, func(a, b snapshot) int { return a.Event - b.Event })
	return whole
}
