package run

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/posttrain/posttrain/internal/float"
)

// The picture's size in pixels, and its pixels per inch; sizes of text are in points, 72 to the inch.
const (
	curvesWidth  = 1000
	curvesHeight = 800
	ownHeight    = 300 // of a panel with an axis of its own
	curvesDPI    = 108
)

// Panel is one of the plots that a picture stacks.
type Panel struct {
	Label string // of the vertical axis
	X     string // label of a horizontal axis of its own; "": the steps, which all panels without one share
	Lines []Line
}

// drawable bounds what is drawn: the search for ticks never ends on a range that overflows.
const drawable = 1e30

// Line is one metric over steps, or over what the panel's own axis has. Points that are not finite, or beyond 1e30 as in
// a run that explodes, are left out.
type Line struct {
	Name   string
	X, Y   []float64
	Dashed bool // measured on held-out data

	Low, High []float64 // a band around the line; nil: none
}

// kinds are the panels of every kind of run, with their metrics: rewards, then how far the policy has moved, how sure
// it is and how long its completions are; preferences; anything else.
var kinds = [][]struct {
	label   string
	metrics []string
}{
	{
		{"mean reward, share complete", []string{"reward", "complete"}},
		{"nats per token", []string{"entropy", "kl"}},
		{"tokens of a completion", []string{"completions/mean_length"}},
	},
	{
		{"log-prob of the answer (summed)", []string{"logps/chosen", "logps/rejected"}},
		{"loss, reward margin", []string{"loss", "rewards/margins"}},
	},
	{{"loss per token", []string{"loss"}}},
}

// panelsOf chooses the metrics to draw: the panels of the first kind of run whose first panel has a line. The same
// metric on held-out data is a dashed line. Further panels without a line are left out.
func panelsOf(records []Record) (panels []Panel) {
	for _, kind := range kinds {
		panels = nil
		for _, p := range kind {
			if drawn := panelOf(records, p.label, p.metrics...); panels == nil || len(drawn.Lines) > 0 {
				panels = append(panels, drawn)
			}
		}
		if len(panels[0].Lines) > 0 {
			break
		}
	}
	return panels
}

func panelOf(records []Record, label string, names ...string) Panel {
	p := Panel{Label: label}
	for _, name := range names {
		for _, l := range []Line{lineOf(records, name), lineOf(records, "eval_"+name)} {
			if len(l.X) > 0 {
				l.Dashed = l.Name != name
				p.Lines = append(p.Lines, l)
			}
		}
	}
	return p
}

// lineOf is one metric, at the steps where it was measured.
func lineOf(records []Record, name string) Line {
	l := Line{Name: name}
	for _, r := range records {
		if v, ok := r.Values[name]; ok {
			l.X, l.Y = append(l.X, float64(r.Step)), append(l.Y, v)
		}
	}
	return l
}

// Curves draws panels, one above the other, into a PNG file, with the title at the top.
func Curves(path, title string, panels []Panel) error {
	if len(panels) == 0 {
		return fmt.Errorf("%s: nothing to draw", path)
	}
	plots := make([][]*plot.Plot, len(panels))
	for i, p := range panels {
		drawn, err := newPlot(p)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", path, p.Label, err)
		}
		plots[i] = []*plot.Plot{drawn}
	}
	plots[0][0].Title.Text = title
	if last := len(panels) - 1; panels[last].X == "" {
		plots[last][0].X.Label.Text = "step"
	}
	b, err := render(plots, panels)
	if err != nil {
		return fmt.Errorf("%s cannot be drawn: %w", path, err)
	}
	return replaceFile(path, b)
}

// newPlot draws one panel.
func newPlot(p Panel) (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.TextStyle.Font.Size = vg.Points(14)
	drawn.Title.Padding = vg.Points(8)
	drawn.X.Label.Text, drawn.Y.Label.Text = p.X, p.Label
	if p.X == "" {
		drawn.X.Tick.Marker = plot.TickerFunc(wholeTicks)
	}
	drawn.Legend.Top = true
	drawn.Legend.Padding = vg.Points(2)
	drawn.Legend.ThumbnailWidth = vg.Points(24)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 225}, color.Gray{Y: 225}
	drawn.Add(grid)
	for i, l := range p.Lines {
		if err := addLine(drawn, l, colorOf(l.Name, i)); err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	widen(&drawn.Y)
	return drawn, nil
}

// wholeTicks are the ticks at whole numbers, for steps.
func wholeTicks(least, most float64) (whole []plot.Tick) {
	for _, t := range (plot.DefaultTicks{}).Ticks(least, most) {
		if t.Label != "" {
			t.Label = fmt.Sprint(int(t.Value))
		}
		if t.Value == math.Trunc(t.Value) {
			whole = append(whole, t)
		}
	}
	return whole
}

// widen keeps the range so wide that its ticks are different numbers.
func widen(a *plot.Axis) {
	if a.Min > a.Max { // no points
		return
	}
	if least := 1e-6 * max(math.Abs(a.Min), math.Abs(a.Max), 1e-6); a.Max-a.Min < least {
		a.Min, a.Max = a.Min-least, a.Max+least
	}
}

func addLine(drawn *plot.Plot, l Line, c color.Color) error {
	points := l.points()
	if len(points) == 0 {
		return nil
	}
	if err := addBand(drawn, l, c); err != nil {
		return err
	}
	line, marks, err := plotter.NewLinePoints(smooth(points))
	if err != nil {
		return err
	}
	line.Color, line.Width = c, vg.Points(1.6)
	if l.Dashed {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	}
	marks.Color, marks.Shape, marks.Radius = line.Color, draw.CircleGlyph{}, vg.Points(2)
	raw := *line
	raw.XYs, raw.Color = points, pale(c)
	drawn.Add(&raw, line)
	if len(points) < 20 { // a single point has no line, but many marks would hide the line
		drawn.Add(marks)
	}
	drawn.Legend.Add(l.Name, line)
	return nil
}

// smooth gives each point the mean of its neighbours, a twentieth of the line at either side, and fifty at most.
func smooth(raw plotter.XYs) plotter.XYs {
	means, far := slices.Clone(raw), min(len(raw)/20, 50)
	for i := range means {
		near := raw[max(0, i-far):min(len(raw), i+far+1)]
		means[i].Y = 0
		for _, p := range near {
			means[i].Y += p.Y / float64(len(near))
		}
	}
	return means
}

func (l Line) points() plotter.XYs {
	var xys plotter.XYs
	for i := range min(len(l.X), len(l.Y)) {
		if float.IsFinite(l.X[i]) && math.Abs(l.Y[i]) <= drawable {
			xys = append(xys, plotter.XY{X: l.X[i], Y: l.Y[i]})
		}
	}
	return xys
}

// colors that most colour-blind people can tell apart. A metric has the same color in every picture.
var colors = map[string]color.Color{
	"logps/chosen":    color.RGBA{R: 0, G: 114, B: 178, A: 255},
	"logps/rejected":  color.RGBA{R: 213, G: 94, B: 0, A: 255},
	"loss":            color.RGBA{R: 60, G: 60, B: 60, A: 255},
	"rewards/margins": color.RGBA{R: 0, G: 158, B: 115, A: 255},

	"reward":                  color.RGBA{R: 0, G: 114, B: 178, A: 255},
	"complete":                color.RGBA{R: 0, G: 158, B: 115, A: 255},
	"entropy":                 color.RGBA{R: 230, G: 159, B: 0, A: 255},
	"kl":                      color.RGBA{R: 60, G: 60, B: 60, A: 255},
	"completions/mean_length": color.RGBA{R: 86, G: 180, B: 233, A: 255},
}

// others are the colours of lines without one of their own, by their place in the panel.
var others = []color.Color{color.RGBA{R: 204, G: 121, B: 167, A: 255}, color.RGBA{R: 0, G: 114, B: 178, A: 255},
	color.RGBA{R: 230, G: 159, B: 0, A: 255}, color.RGBA{R: 0, G: 158, B: 115, A: 255},
	color.RGBA{R: 60, G: 60, B: 60, A: 255}}

func colorOf(name string, place int) color.Color {
	for base, c := range colors {
		if name == base || name == "eval_"+base {
			return c
		}
	}
	return others[place%len(others)]
}

// render draws the plots with their axes aligned. Panels with axes of their own make the picture higher.
func render(plots [][]*plot.Plot, panels []Panel) ([]byte, error) {
	inch := func(pixels int) vg.Length { return vg.Length(pixels) * vg.Inch / curvesDPI }
	height := curvesHeight
	if own := slices.IndexFunc(panels, func(p Panel) bool { return p.X != "" }); own >= 0 {
		height = max(height, ownHeight*len(panels))
	}
	img := vgimg.NewWith(vgimg.UseWH(inch(curvesWidth), inch(height)), vgimg.UseDPI(curvesDPI))
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadX: vg.Points(8), PadY: vg.Points(12),
		PadTop: vg.Points(8), PadBottom: vg.Points(8), PadLeft: vg.Points(8), PadRight: vg.Points(16)}
	shareSteps(plots, panels)
	for _, row := range plots { // the legends are right of all lines
		tiles.PadRight = max(tiles.PadRight, row[0].Legend.Rectangle(draw.New(img)).Size().X+vg.Points(28))
	}
	for i, row := range plot.Align(plots, tiles, draw.New(img)) {
		plots[i][0].Legend.XOffs = tiles.PadRight - vg.Points(8)
		plots[i][0].Draw(row[0])
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: img}.WriteTo(&b)
	return b.Bytes(), err
}

// shareSteps gives the panels without an axis of their own the same steps.
func shareSteps(plots [][]*plot.Plot, panels []Panel) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for i, row := range plots {
		if panels[i].X == "" {
			lo, hi = min(lo, row[0].X.Min), max(hi, row[0].X.Max)
		}
	}
	if !float.IsFinite(lo) || !float.IsFinite(hi) {
		return
	}
	for i, row := range plots {
		if panels[i].X == "" {
			row[0].X.Min, row[0].X.Max = lo, hi
		}
	}
}
