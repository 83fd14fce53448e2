package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// conversation is a pair whose prompt and answers are conversations. Some merge with their prompts.
func conversation(i int) data.Preference {
	say := func(role, format string) data.Text {
		return data.Text{Messages: []data.Message{{Role: role, Content: fmt.Sprintf(format, i)}}}
	}
	return data.Preference{Source: fmt.Sprint("pairs.jsonl:", i), Prompt: say("user", "%d wh"),
		Chosen: say("assistant", "at %d"), Rejected: say("assistant", " no %d")}
}

// onCores gives the test two cores.
func onCores(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestEncodeAllEqualsOneByOne(t *testing.T) {
	onCores(t)
	merges := "{% for m in messages %}{{ m.content }}{% endfor %}"
	one, all := withTemplate(t, "qwen2-newer", merges), withTemplate(t, "qwen2-newer", merges)
	var pairs []data.Preference
	var want []Group
	for i := range 200 {
		pairs = append(pairs, conversation(i))
		g := expect.Must(one.Preference(pairs[i]))(t)
		want = append(want, g)
	}
	got := expect.Must(EncodeAll(t.Context(), all, pairs, (*Encoder).Preference))(t)
	same := func(a, b Group) bool {
		return slices.Equal(a.Prompt, b.Prompt) && slices.EqualFunc(a.Answers, b.Answers, slices.Equal)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Error("the groups differ from those encoded one by one")
	}
	if one.Drift == 0 || all.Drift != one.Drift {
		t.Errorf("%d answers merge with their prompts: want %d, and not 0", all.Drift, one.Drift)
	}
}

// TestEncodeAllNamesTheFirstBadRow: row 0 fails after row 1 has.
func TestEncodeAllNamesTheFirstBadRow(t *testing.T) {
	onCores(t)
	later := make(chan bool)
	_, err := EncodeAll(t.Context(), &Encoder{}, []int{0, 1, 2}, func(_ *Encoder, row int) (Group, error) {
		switch row {
		case 0:
			<-later
		case 1:
			defer close(later)
		}
		return Group{}, fmt.Errorf("row %d", row)
	})
	if err == nil || err.Error() != "row 0" {
		t.Errorf("error %v: want that of row 0", err)
	}
}

func TestEncodeAllEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var encoded atomic.Int64
	_, err := EncodeAll(ctx, &Encoder{}, make([]int, 1000), func(*Encoder, int) (Group, error) {
		stop()
		encoded.Add(1)
		return Group{}, nil
	})
	if n := encoded.Load(); !errors.Is(err, context.Canceled) || n > int64(runtime.GOMAXPROCS(0)) {
		t.Errorf("%d rows encoded, error %v: want one a core, and the context's error", n, err)
	}
}
