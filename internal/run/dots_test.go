package run

import (
	"image"
	"image/color"
	"math"
	"testing"
)

// box is the rectangle of the pixels of a colour.
func box(img image.Image, c color.Color) (r image.Rectangle) {
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			if color.RGBAModel.Convert(img.At(x, y)) == c {
				r = r.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	return r
}

// TestWriteDots: each dot is where its values are, with bars as long as its intervals.
func TestWriteDots(t *testing.T) {
	f := newFolder(t)
	picture := Dots{Title: "two", X: "utility", Y: "integrity", Dots: []Dot{
		{"0.5", [3]float64{0.6, 0.5, 0.7}, [3]float64{0.3, 0.2, 0.4}},
		{"2", [3]float64{0.3, 0.1, 0.35}, [3]float64{0.8, 0.75, 0.95}},
		{"never", [3]float64{math.NaN(), 0, 1}, [3]float64{0, 0, math.Inf(1)}},
	}}
	if err := f.WriteDots("dots.png", picture); err != nil {
		t.Fatal(err)
	}
	img := readPNG(t, f.Path("dots.png"))
	low, high := box(img, others[0]), box(img, others[1])
	if low.Min.X <= high.Max.X || low.Min.Y <= high.Max.Y {
		t.Errorf("the first dot, in %v, is not to the right of and below the second, in %v", low, high)
	}
	if ratio := float64(high.Dx()) / float64(low.Dx()); math.Abs(ratio-0.25/0.2) > 0.05 {
		t.Errorf("the bars across are %d and %d pixels long", low.Dx(), high.Dx())
	}
	if n := count(img, others[2], 0, curvesHeight); n > 0 {
		t.Errorf("%d pixels of a dot that is not finite", n)
	}
	for _, odd := range []Dots{{}, {Dots: picture.Dots[:1]}, {Dots: []Dot{picture.Dots[0], picture.Dots[0]}},
		{Dots: []Dot{{X: [3]float64{0, 0, 0}}}}} {
		if err := f.WriteDots("dots.png", odd); err != nil {
			t.Errorf("%+v: %v", odd, err)
		}
		readPNG(t, f.Path("dots.png"))
	}
	if n := (Dots{Dots: []Dot{picture.Dots[0], picture.Dots[1], picture.Dots[0]}}).hiding(2); n != 1 {
		t.Errorf("%d labels in the place of the third, want 1", n)
	}
}

// TestSeconds: steps 1 and 2 are logged together, with their mean.
func TestSeconds(t *testing.T) {
	records := []Record{{Step: 0, Values: map[string]float64{"eval_runtime": 3}},
		{Step: 2, Values: map[string]float64{"step_time": 1.5}}, {Step: 3, Values: map[string]float64{"step_time": 4}},
		{Step: 3, Values: map[string]float64{"eval_runtime": 0.5}}}
	if got := Seconds(records); got != 3+2*1.5+4+0.5 {
		t.Errorf("%v seconds", got)
	}
	if got := Seconds(nil); got != 0 {
		t.Errorf("%v seconds of nothing", got)
	}
}

func TestFinished(t *testing.T) {
	f := newFolder(t)
	if Finished(f.Dir) || Finished(f.Path("no folder")) {
		t.Error("a run without a summary is finished")
	}
	if err := f.WriteSummary("done"); err != nil || !Finished(f.Dir) {
		t.Errorf("a run with a summary is not finished: %v", err)
	}
}
