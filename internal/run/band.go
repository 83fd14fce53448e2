package run

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// MeanInterval is the mean of values and half its 95% interval by Student's t, 0 for a single value.
func MeanInterval(x []float64) (mean, half float64) {
	mean, deviation := stat.MeanStdDev(x, nil)
	n := float64(len(x))
	if n < 2 || deviation == 0 {
		return mean, 0
	}
	return mean, distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975) * deviation / math.Sqrt(n)
}

// Interval is a mean with its 95% interval as text. Equal values, and single ones, have no interval.
func Interval(form string, x []float64) string {
	mean, half := MeanInterval(x)
	text := fmt.Sprintf(form, mean)
	if half > 0 {
		text += fmt.Sprintf(" ± "+strings.Replace(form, "+", "", 1), half)
	}
	return text
}

// Band is the mean of lines with its 95% interval, from the first points of all on. NaN is no point of a line.
func Band(name string, lines []Line) Line {
	band, most := Line{Name: name}, 0
	for _, l := range lines {
		most = max(most, len(l.Y))
	}
	for i := range most {
		var x, y []float64
		for _, l := range lines {
			if i < len(l.Y) && !math.IsNaN(l.Y[i]) {
				x, y = append(x, l.X[i]), append(y, l.Y[i])
			}
		}
		if len(y) == 0 {
			continue
		}
		mean, half := MeanInterval(y)
		band.X, band.Y = append(band.X, stat.Mean(x, nil)), append(band.Y, mean)
		band.Low, band.High = append(band.Low, mean-half), append(band.High, mean+half)
	}
	return band
}

// addBand fills what is between Low and High, in the line's colour.
func addBand(drawn *plot.Plot, l Line, c color.Color) error {
	low, high := Line{X: l.X, Y: l.Low}.points(), Line{X: l.X, Y: l.High}.points()
	if len(low) < 2 || len(high) < 2 {
		return nil
	}
	slices.Reverse(high)
	area, err := plotter.NewPolygon(append(low, high...))
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = pale(c), 0
	drawn.Add(area)
	return nil
}

// pale is a colour through which others are seen.
func pale(c color.Color) color.Color {
	r, g, b, _ := c.RGBA()
	return color.NRGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 50}
}
