package run

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Dots is a picture of points that compares runs by two measures.
type Dots struct {
	Title, X, Y string // Title of the picture, X and Y of its axes
	Dots        []Dot
}

// Dot is a point: value, low and high end of its interval, on both axes.
type Dot struct {
	Label string
	X, Y  [3]float64
}

// WriteDots draws a picture of this name into the folder. Dots beyond 1e30 are left out, as in curves.
func (f *Folder) WriteDots(name string, d Dots) error {
	if err := f.Held(); err != nil {
		return err
	}
	drawn, err := d.plot()
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path(name), err)
	}
	b, err := render([][]*plot.Plot{{drawn}}, []Panel{{X: d.X}})
	if err != nil {
		return fmt.Errorf("%s cannot be drawn: %w", f.Path(name), err)
	}
	return f.WriteFile(name, b)
}

// plot draws each dot in a colour of its own, with its intervals as bars and its label beside it.
func (d Dots) plot() (*plot.Plot, error) {
	drawn, err := newPlot(Panel{X: d.X, Label: d.Y}, 1)
	if err != nil {
		return nil, err
	}
	drawn.Title.Text = d.Title
	for i, dot := range d.Dots {
		if dot.drawable() {
			if err := dot.add(drawn, others[i%len(others)], d.hiding(i)); err != nil {
				return nil, fmt.Errorf("%s: %w", dot.Label, err)
			}
		}
	}
	for _, axis := range []*plot.Axis{&drawn.X, &drawn.Y} {
		widen(axis, 1)
		axis.Min -= (axis.Max - axis.Min) * 0.03
	}
	return drawn, nil
}

// hiding counts the dots before dot i in the same place, whose labels its own would hide.
func (d Dots) hiding(i int) (n int) {
	for _, other := range d.Dots[:i] {
		if other.X[0] == d.Dots[i].X[0] && other.Y[0] == d.Dots[i].Y[0] {
			n++
		}
	}
	return n
}

func (d Dot) drawable() bool {
	for i := range d.X {
		if !(math.Abs(d.X[i]) <= drawable) || !(math.Abs(d.Y[i]) <= drawable) {
			return false
		}
	}
	return true
}

// add draws a dot whose label has room for others above.
func (d Dot) add(drawn *plot.Plot, c color.Color, above int) error {
	at := dotBars{plotter.XYs{{X: d.X[0], Y: d.Y[0]}}, d}
	mark, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	across, err := plotter.NewXErrorBars(at)
	if err != nil {
		return err
	}
	up, err := plotter.NewYErrorBars(at)
	if err != nil {
		return err
	}
	label, err := plotter.NewLabels(plotter.XYLabels{XYs: at.XYs, Labels: []string{d.Label}})
	if err != nil {
		return err
	}
	mark.Color, mark.Shape, mark.Radius = c, draw.CircleGlyph{}, vg.Points(4)
	across.LineStyle = draw.LineStyle{Color: c, Width: vg.Points(1.6)}
	up.LineStyle = across.LineStyle
	label.Offset = vg.Point{X: vg.Points(6), Y: vg.Points(6 - 14*float64(above))}
	drawn.Add(across, up, mark, label)
	return nil
}

// dotBars is a dot as the plotters take it.
type dotBars struct {
	plotter.XYs
	dot Dot
}

// XError gives the distances to the ends of the interval: down, then up.
func (b dotBars) XError(int) (low, high float64) {
	return b.dot.X[1] - b.dot.X[0], b.dot.X[2] - b.dot.X[0]
}

// YError is XError on the other axis.
func (b dotBars) YError(int) (low, high float64) {
	return b.dot.Y[1] - b.dot.Y[0], b.dot.Y[2] - b.dot.Y[0]
}
