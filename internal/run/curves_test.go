package run

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"

	"gonum.org/v1/plot/plotter"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// preferenceRecords look like a DPO run: both log-probs sink, the margin grows.
func preferenceRecords(n int) []Record {
	var records []Record
	for i := range n {
		x := float64(i)
		records = append(records, Record{Step: i + 1, Values: map[string]float64{
			"logps/chosen": -14.3 - x/2, "logps/rejected": -43.4 - 2*x,
			"loss": math.Ln2 * math.Exp(-x/20), "rewards/margins": 0.15 * x,
		}})
		if (i+1)%10 == 0 {
			records = append(records, Record{Step: i + 1, Values: map[string]float64{
				"eval_logps/chosen": -15 - x/2, "eval_logps/rejected": -41 - 2*x, "eval_loss": 0.7}})
		}
	}
	return records
}

func TestPanelsOf(t *testing.T) {
	names := func(p Panel) (out []string) {
		for _, l := range p.Lines {
			out = append(out, l.Name)
			if want := len(l.Name) > 5 && l.Name[:5] == "eval_"; l.Dashed != want {
				t.Errorf("%s: dashed %v", l.Name, l.Dashed)
			}
		}
		return out
	}
	panels := panelsOf(preferenceRecords(20))
	if len(panels) != 2 {
		t.Fatalf("%d panels, want 2", len(panels))
	}
	want := []string{"logps/chosen", "eval_logps/chosen", "logps/rejected", "eval_logps/rejected"}
	if got := names(panels[0]); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := names(panels[1]), []string{"loss", "eval_loss", "rewards/margins"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if l := panels[0].Lines[1]; !reflect.DeepEqual(l.X, []float64{10, 20}) ||
		!reflect.DeepEqual(l.Y, []float64{-19.5, -24.5}) {
		t.Errorf("%+v", l)
	}
	sft := panelsOf([]Record{{Step: 1, Values: map[string]float64{"loss": 2}},
		{Step: 1, Values: map[string]float64{"eval_loss": 3}}})
	if len(sft) != 1 || !reflect.DeepEqual(names(sft[0]), []string{"loss", "eval_loss"}) {
		t.Errorf("%+v", sft)
	}
}

// TestCurves draws a run and finds every line's colour in its own half of the picture.
func TestCurves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "curves.png")
	if dir := os.Getenv("POSTTRAIN_KEEP_CURVES"); dir != "" {
		path = filepath.Join(dir, "curves.png")
	}
	expect.OK(t, Curves(path, "posttrain mappo --prior none", panelsOf(preferenceRecords(60))))
	img := readPNG(t, path)
	if got := img.Bounds().Size(); got != image.Pt(curvesWidth, curvesHeight) {
		t.Fatalf("size %v", got)
	}
	const stray = 100 // edges of letters have greys of all kinds
	for _, name := range []string{"logps/chosen", "logps/rejected", "loss", "rewards/margins"} {
		c := colors[name]
		top, bottom := count(img, c, 0, curvesHeight/2), count(img, c, curvesHeight/2, curvesHeight)
		upper := name == "logps/chosen" || name == "logps/rejected"
		if upper && (top < 500 || bottom > stray) || !upper && (bottom < 500 || top > stray) {
			t.Errorf("%s: %d pixels above, %d below", name, top, bottom)
		}
	}
}

// TestWholeTicks: the axis of steps has whole numbers alone, written as such.
func TestWholeTicks(t *testing.T) {
	for most := 1.0; most < 1000; most++ {
		labels := 0
		for _, tick := range wholeTicks(0, most) {
			if tick.Value != math.Trunc(tick.Value) || tick.Label != "" && tick.Label != strconv.Itoa(int(tick.Value)) {
				t.Fatalf("0 to %v: %+v", most, tick)
			}
			if tick.Label != "" {
				labels++
			}
		}
		if labels < 2 {
			t.Errorf("0 to %v: %d labels", most, labels)
		}
	}
}

// TestSmooth: the mean of neighbours, which leaves short lines.
func TestSmooth(t *testing.T) {
	spike := make(plotter.XYs, 40)
	spike[20].Y = 5
	if got := smooth(spike); got[17].Y != 0 || got[18].Y != 1 || got[22].Y != 1 || got[23].Y != 0 || spike[20].Y != 5 {
		t.Errorf("%v", got)
	}
	if got := smooth(spike[15:25]); got[5].Y != 5 {
		t.Errorf("%v", got)
	}
}

// TestLegendOutside: it is right of all lines.
func TestLegendOutside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "curves.png")
	line := Line{Name: "loss", X: []float64{1, 3}, Y: []float64{2, 2}}
	expect.OK(t, Curves(path, "", []Panel{{Label: "loss", Lines: []Line{line}}}))
	img, last := readPNG(t, path), 0
	grid := color.Gray{Y: 225}
	for x := range curvesWidth {
		for y := range curvesHeight {
			if color.GrayModel.Convert(img.At(x, y)) == grid {
				last = max(last, x)
			}
		}
	}
	if last == 0 || last > curvesWidth*9/10 {
		t.Errorf("the grid ends at %d: want room for the legend at its right", last)
	}
}

func TestCurvesOfOddRuns(t *testing.T) {
	nan := math.NaN()
	cases := map[string][]Record{
		"no records": nil,
		"one point":  preferenceRecords(1),
		"constant": {{Step: 1, Values: map[string]float64{"loss": 1}},
			{Step: 2, Values: map[string]float64{"loss": 1}}},
		"only NaN": {{Step: 1, Values: map[string]float64{"loss": nan}}},
		"NaN between": {{Step: 1, Values: map[string]float64{"loss": 1}},
			{Step: 2, Values: map[string]float64{"loss": nan}},
			{Step: 3, Values: map[string]float64{"loss": math.Inf(1)}}},
		"next floats": {{Step: 1, Values: map[string]float64{"loss": 14.3}},
			{Step: 2, Values: map[string]float64{"loss": math.Nextafter(14.3, 15)}}},
		"zero": {{Step: 1, Values: map[string]float64{"loss": 0}},
			{Step: 2, Values: map[string]float64{"loss": 5e-324}}},
		"explodes": {{Step: 1, Values: map[string]float64{"loss": -1e29}},
			{Step: 2, Values: map[string]float64{"loss": 1e30}}},
		"huge": {{Step: 1, Values: map[string]float64{"loss": -math.MaxFloat64}},
			{Step: 2, Values: map[string]float64{"loss": math.MaxFloat64}}},
	}
	for name, records := range cases {
		path := filepath.Join(t.TempDir(), "curves.png")
		if err := Curves(path, name, panelsOf(records)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		readPNG(t, path)
	}
	wantError(t, Curves("curves.png", "", nil), "nothing to draw")
}

func TestWriteCurves(t *testing.T) {
	f := newFolder(t)
	for _, r := range preferenceRecords(3) {
		expect.OK(t, f.Log(r))
	}
	expect.OK(t, f.WriteCurves("mappo"))
	readPNG(t, f.Path(curvesName))
}

func readPNG(t *testing.T, path string) image.Image {
	t.Helper()
	b := expect.Bytes(t, path)
	return expect.Must(png.Decode(bytes.NewReader(b)))(t)
}

// count is the number of pixels of exactly this colour between two heights.
func count(img image.Image, c color.Color, from, to int) int {
	want := color.RGBAModel.Convert(c)
	n := 0
	for y := from; y < to; y++ {
		for x := range curvesWidth {
			if color.RGBAModel.Convert(img.At(x, y)) == want {
				n++
			}
		}
	}
	return n
}

// rlRecords look like a run that learns from rewards: the reward rises from below 0, the entropy sinks, every tenth
// step is validated.
func rlRecords(n int) []Record {
	records := []Record{{Values: map[string]float64{"eval_reward": -0.2, "eval_complete": 0.1}}}
	for i := range n {
		x := float64(i)
		records = append(records, Record{Step: i + 1, Values: map[string]float64{
			"reward": -0.2 + x/100 + math.Sin(x)/20, "complete": 0.1 + x/200,
			"entropy": math.Exp(-x / 40), "kl": x * x / 1e5,
			"completions/mean_length": 60 + x/10, "loss": 1e-9, "reward_std": 0.4,
		}})
		if (i+1)%10 == 0 {
			records = append(records, Record{Step: i + 1,
				Values: map[string]float64{"eval_reward": -0.2 + x/90, "eval_complete": 0.1 + x/180}})
		}
	}
	return records
}

// TestPanelsOfRL: the reward comes first, and what was not measured leaves no panel.
func TestPanelsOfRL(t *testing.T) {
	names := func(records []Record) (all [][]string) {
		for _, p := range panelsOf(records) {
			var lines []string
			for _, l := range p.Lines {
				lines = append(lines, l.Name)
			}
			all = append(all, lines)
		}
		return all
	}
	want := [][]string{{"reward", "eval_reward", "complete", "eval_complete"}, {"entropy", "kl"},
		{"completions/mean_length"}}
	if got := names(rlRecords(20)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	only := []Record{{Step: 0, Values: map[string]float64{"eval_reward": -1}}}
	if got, want := names(only), [][]string{{"eval_reward"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if l := panelsOf(rlRecords(20))[0].Lines[1]; !l.Dashed || !reflect.DeepEqual(l.X, []float64{0, 10, 20}) {
		t.Errorf("%+v, want what was held out dashed, from step 0 on", l)
	}
}

// TestCurvesOfRL draws a run of rewards and finds every line's colour in its own third of the picture.
func TestCurvesOfRL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "curves.png")
	if dir := os.Getenv("POSTTRAIN_KEEP_CURVES"); dir != "" {
		path = filepath.Join(dir, "curves-rl.png")
	}
	expect.OK(t, Curves(path, "CI-RL (posttrain ci-rl)", panelsOf(rlRecords(60))))
	img := readPNG(t, path)
	const stray = 100
	for name, third := range map[string]int{"reward": 0, "complete": 0, "entropy": 1, "kl": 1,
		"completions/mean_length": 2} {
		for k := range 3 {
			n := count(img, colors[name], k*curvesHeight/3, (k+1)*curvesHeight/3)
			if k == third && n < 300 || k != third && n > stray {
				t.Errorf("%s: %d pixels in the third %d", name, n, k)
			}
		}
	}
}

// TestCurvesOfOddRLRuns: rewards that never move, that are all -1, that are no numbers.
func TestCurvesOfOddRLRuns(t *testing.T) {
	for name, records := range map[string][]Record{
		"one validation": {{Step: 0, Values: map[string]float64{"eval_reward": -1, "eval_complete": 0}}},
		"all -1": {{Step: 1, Values: map[string]float64{"reward": -1, "kl": 0}},
			{Step: 2, Values: map[string]float64{"reward": -1, "kl": 0}}},
		"NaN": {{Step: 1, Values: map[string]float64{"reward": math.NaN(), "entropy": math.Inf(1)}}},
	} {
		path := filepath.Join(t.TempDir(), "curves.png")
		if err := Curves(path, name, panelsOf(records)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		readPNG(t, path)
	}
}
