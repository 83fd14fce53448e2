package track

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestGolden compares with the bytes that TensorBoard's own writer gives (scripts/tracking/events.py).
func TestGolden(t *testing.T) {
	want := expect.Bytes(t, "testdata/golden.tfevents")
	at := time.Unix(1_700_000_000, 5e8)
	got := appendRecord(nil, event(at, 0, version()))
	got = appendRecord(got, event(at, 2, restart()))
	got = appendRecord(got, event(at, 3, summary(
		scalar("train/loss", math.Ln2), scalar("train/rewards/chosen", 0), text("samples/1", "a\nb"))))
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%x, want\n%x", got, want)
	}
}

// TestMarkdown: no line of a sample is outside of its block, whatever ends it.
func TestMarkdown(t *testing.T) {
	got := markdown([]byte(`{"completion": "a\r<script>\r\n<b>\n\n# c\n", "step": 3}`))
	const want = "**completion**\n\n    a\n    <script>\n    <b>\n    \n    # c\n\n**step**\n\n    3\n\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// point is a scalar read back.
type point struct {
	step  int
	tag   string
	value float32
}

// readBack reads the scalars and texts of event files as TensorBoard does: a restart removes its step and what follows.
func readBack(t *testing.T, folder *run.Folder) (points []point, texts []string) {
	t.Helper()
	files, _ := filepath.Glob(folder.Path(boards, "*"))
	for _, name := range files {
		data := expect.Bytes(t, name)
		for len(data) > 0 {
			n := binary.LittleEndian.Uint64(data)
			message := data[12 : 12+n]
			if maskedCRC(data[:8]) != binary.LittleEndian.Uint32(data[8:]) ||
				maskedCRC(message) != binary.LittleEndian.Uint32(data[12+n:]) {
				t.Fatalf("%s: a checksum is wrong", name)
			}
			data = data[16+n:]
			step := int(varint(message, 2))
			if in(message, 7) != nil {
				points = slices.DeleteFunc(points, func(p point) bool { return p.step >= step })
				texts = nil
			}
			for value := range all(in(message, 5), 1) {
				if tensor := in(value, 8); tensor != nil {
					texts = append(texts, fmt.Sprintf("%d %s %s", step, in(value, 1), in(tensor, 8)))
					continue
				}
				x := math.Float32frombits(uint32(varint(value, 2)))
				points = append(points, point{step, string(in(value, 1)), x})
			}
		}
	}
	return points, texts
}

// all are the values of a field of bytes.
func all(message []byte, field protowire.Number) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(message) > 0 {
			num, kind, n := protowire.ConsumeTag(message)
			size := protowire.ConsumeFieldValue(num, kind, message[n:])
			if num == field && kind == protowire.BytesType {
				value, _ := protowire.ConsumeBytes(message[n:])
				if !yield(value) {
					return
				}
			}
			message = message[n+size:]
		}
	}
}

func in(message []byte, field protowire.Number) []byte {
	for value := range all(message, field) {
		return value
	}
	return nil
}

// varint is a field of a whole number or of four bytes; 0 where it is absent.
func varint(message []byte, field protowire.Number) uint64 {
	for len(message) > 0 {
		num, kind, n := protowire.ConsumeTag(message)
		if num == field && kind == protowire.Fixed32Type {
			x, _ := protowire.ConsumeFixed32(message[n:])
			return uint64(x)
		}
		if num == field && kind == protowire.VarintType {
			x, _ := protowire.ConsumeVarint(message[n:])
			return x
		}
		message = message[n+protowire.ConsumeFieldValue(num, kind, message[n:]):]
	}
	return 0
}

func newFolder(t *testing.T) *run.Folder {
	t.Helper()
	f := expect.Must(run.Create(filepath.Join(t.TempDir(), "run"), "mappo"))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

func loss(step int, value float64) run.Record {
	return run.Record{Step: step, Epoch: float64(step) / 4, Values: map[string]float64{"loss": value}}
}

type sample struct {
	Step   int    `json:"step"`
	Answer string `json:"answer"`
}

// TestResume logs steps 1 to 3, goes back to step 1 and logs on: readers see every step once.
func TestResume(t *testing.T) {
	f := newFolder(t)
	expect.OK(t, f.Log(loss(1, 9))) // before there is a watcher: the first file begins with it
	board := NewTensorBoard(f, nil)
	board.Clock = func() time.Time { return time.Unix(1_700_000_000, 0) }
	f.Watch(board)
	expect.OK(t, f.Log(loss(2, 8)), f.Log(loss(3, math.NaN())), f.LogSamples(sample{3, "old"}))
	_, err := f.CutMetrics(1)
	expect.OK(t, err, f.CutSamples(1))
	expect.OK(t, f.LogSamples(sample{2, "a\n\nb"}, sample{2, "c"}), f.Log(loss(2, 7)),
		f.Log(run.Record{Step: 2, Epoch: 0.5, Values: map[string]float64{"eval_loss": 6}}))
	points, texts := readBack(t, f)
	want := []point{{1, "train/epoch", 0.25}, {1, "train/loss", 9}, {2, "train/epoch", 0.5}, {2, "train/loss", 7},
		{2, "train/epoch", 0.5}, {2, "eval/loss", 6}}
	if !slices.Equal(points, want) {
		t.Errorf("got %v, want %v", points, want)
	}
	wantTexts := []string{"2 samples/1 **answer**\n\n    a\n    \n    b\n\n**step**\n\n    2\n\n",
		"2 samples/2 **answer**\n\n    c\n\n**step**\n\n    2\n\n"}
	if !slices.Equal(texts, wantTexts) {
		t.Errorf("got %q, want %q", texts, wantTexts)
	}
}

// TestCutBelowTheEnd goes back to a step that has a kept record: it is written again, since the restart removes it.
func TestCutBelowTheEnd(t *testing.T) {
	f := newFolder(t)
	f.Watch(NewTensorBoard(f, nil))
	eval := run.Record{Step: 2, Epoch: 0.5, Values: map[string]float64{"eval_loss": 6}}
	expect.OK(t, f.Log(loss(1, 9)), f.Log(loss(2, 8)), f.Log(eval), f.Log(loss(3, 7)))
	_, err := f.DropMetrics(func(r run.Record) bool { return r.Step > 2 || r.Values["eval_loss"] != 0 })
	expect.OK(t, err, f.Log(eval), f.Log(loss(3, 7)))
	points, _ := readBack(t, f)
	points = slices.DeleteFunc(points, func(p point) bool { return strings.HasSuffix(p.tag, "epoch") })
	want := []point{{1, "train/loss", 9}, {2, "train/loss", 8}, {2, "eval/loss", 6}, {3, "train/loss", 7}}
	if !slices.Equal(points, want) {
		t.Errorf("got %v, want %v", points, want)
	}
}

// TestBoardFolderIsAFile: a fault stops nothing and is one warning; when it has gone, a file has the whole run.
func TestBoardFolderIsAFile(t *testing.T) {
	f, warnings := newFolder(t), []string(nil)
	expect.OK(t, os.WriteFile(f.Path(boards), nil, 0o666))
	f.Watch(NewTensorBoard(f, warner{run.Listen(nil), &warnings}))
	expect.OK(t, f.Log(loss(1, 9)), f.Log(loss(2, 8)), os.Remove(f.Path(boards)), f.Log(loss(3, 7)), f.Log(loss(4, 6)))
	want := "TensorBoard: folder " + f.Path(boards) + " cannot be made: not a directory; training continues, and " +
		"what is missing is tried again with the next record"
	if len(warnings) != 1 || warnings[0] != want {
		t.Errorf("%q, want %q", warnings, want)
	}
	points, _ := readBack(t, f)
	points = slices.DeleteFunc(points, func(p point) bool { return strings.HasSuffix(p.tag, "epoch") })
	if want := []point{{1, "train/loss", 9}, {2, "train/loss", 8}, {3, "train/loss", 7},
		{4, "train/loss", 6}}; !slices.Equal(points, want) {
		t.Errorf("got %v, want %v", points, want)
	}
}

// TestBoardFileIsLost: a file that cannot be written in the middle of a run is followed by one with the whole run.
func TestBoardFileIsLost(t *testing.T) {
	f, warnings := newFolder(t), []string(nil)
	board := NewTensorBoard(f, warner{run.Listen(nil), &warnings})
	f.Watch(board)
	expect.OK(t, f.Log(loss(1, 9)), os.Remove(f.Path(board.file)), os.Mkdir(f.Path(board.file), 0o777),
		f.Log(loss(2, 8)))
	expect.OK(t, os.Remove(f.Path(boards, filepath.Base(firstOf(t, f)))), f.Log(loss(3, 7)))
	points, _ := readBack(t, f)
	points = slices.DeleteFunc(points, func(p point) bool { return strings.HasSuffix(p.tag, "epoch") })
	if want := []point{{1, "train/loss", 9}, {2, "train/loss", 8}, {3, "train/loss", 7}}; !slices.Equal(points, want) {
		t.Errorf("got %v, want %v", points, want)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "is a directory; training continues") {
		t.Errorf("%q", warnings)
	}
}

// firstOf is the path of a run's first event file.
func firstOf(t *testing.T, f *run.Folder) string {
	t.Helper()
	files, err := filepath.Glob(f.Path(boards, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return files[0]
}
