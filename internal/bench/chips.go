package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/model"
)

// chip is what a GPU's data sheet promises.
type chip struct {
	name      string  // a part of the name that the driver gives
	tflops    float64 // of dense bfloat16 products
	bandwidth float64 // of its memory, GB/s
}

// chips has longer names before those that they contain.
var chips = []chip{
	{"GH200", 989, 4000}, {"H200", 989, 4800}, {"H100 NVL", 835, 3938}, {"H100 PCIe", 756, 2000}, {"H100", 989, 3350},
	{"B200", 2250, 8000}, {"A100-SXM4-80GB", 312, 2039}, {"A100 80GB", 312, 1935}, {"A100", 312, 1555},
	{"L40S", 362, 864}, {"L40", 181, 864}, {"L4", 121, 300}, {"A10G", 70, 600}, {"A10", 125, 600},
	{"RTX 5090", 210, 1792}, {"RTX 4090", 165, 1008}, {"RTX 3090", 71, 936},
}

// chipOf finds a device's chip by its name; the zero chip if it is unknown.
func chipOf(device string) chip {
	for _, c := range chips {
		if strings.Contains(device, c.name) {
			return c
		}
	}
	return chip{}
}

// limits are the flags for a chip that is not in the table.
type limits struct{ tflops, bandwidth float64 }

func (l *limits) register(flags *pflag.FlagSet) {
	flags.Float64Var(&l.tflops, "peak-tflops", 0, "the chip's dense bfloat16 rate; 0: that of its data sheet, if known")
	flags.Float64Var(&l.bandwidth, "bandwidth", 0, "GB/s of the chip's memory; 0: that of its data sheet, if known")
}

// resolve gives the flags, or what is known of this machine's GPU; 0: unknown.
func (l limits) resolve() limits {
	c := chipOf(gpuName())
	return limits{cmp.Or(l.tflops, c.tflops), cmp.Or(l.bandwidth, c.bandwidth)}
}

// gpuName is the name of the first GPU, "" without nvidia-smi.
func gpuName() string {
	out, _ := exec.Command("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").Output()
	name, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(name)
}

// watchMemory has stop return the most GB in use on the first GPU until then, beyond what was in use before; 0 without
// nvidia-smi.
func watchMemory() (stop func() float64) {
	c := exec.Command("nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "100")
	pipe, err := c.StdoutPipe()
	if err != nil || c.Start() != nil {
		return func() float64 { return 0 }
	}
	most, lines := make(chan float64), bufio.NewScanner(pipe)
	first := lines.Scan()
	before := number(lines.Text())
	go func() {
		top := before
		for first && lines.Scan() {
			top = max(top, number(lines.Text()))
		}
		most <- (top - before) * (1 << 20) / 1e9
	}()
	return func() float64 {
		_ = c.Process.Kill()
		defer func() { _ = c.Wait() }() // how it ends does not matter
		return <-most
	}
}

func number(text string) float64 {
	x, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return x
}

// decodeBytes is what decoding must read from memory: for each token after the first, the weights once, and of every
// row the keys and values of all tokens before. size is the bytes of an element.
func decodeBytes(c *model.Config, rows, prompt, fresh, size int) float64 {
	weights := c.ParamCount()
	if c.EmbedTable() != c.HeadTable() {
		weights -= c.VocabSize * c.HiddenSize // of which only rows are read
	}
	seen := 0
	for k := 1; k < fresh; k++ {
		seen += prompt + k
	}
	cache := 2 * c.Layers * c.KVHeads * c.HeadDim
	return float64(size) * (float64(weights)*float64(fresh-1) + float64(rows)*float64(seen)*float64(cache))
}

// reach prints a share of what a device can do, and whether it reaches its target, unless that is 0.
func reach(out io.Writer, what string, share, least float64) {
	fmt.Fprintf(out, "%s: %.1f%%", what, 100*share)
	if least > 0 {
		fmt.Fprintf(out, ", asked for at least %.0f%%: %s", 100*least, verdict(share >= least))
	}
	fmt.Fprintln(out)
}
