package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/model"
)

// gpuOptions are the options of the step on a GPU.
type gpuOptions struct {
	form
	shape
	preset, dtype, python, device string
	steps, warmup                 int
	limits
}

func newGPU() *cobra.Command {
	o := gpuOptions{shape: shape{4, 512, 256}}
	cmd := newCommand("gpu", "The DPO step through XLA and plain PyTorch's on one GPU (see docs/scale.md)",
		"  go run ./internal/bench gpu --backend xla:/path/plugin.so --python venv/bin/python --peak-tflops 989\n"+
			"  go run ./internal/bench gpu --backend onnx --dtype float32 --preset 5.4M --length 128   (a trial without a GPU)",
		o.run)
	flags := cmd.Flags()
	flags.StringVar(&o.form.backend, "backend", "xla:cuda", "posttrain's engine")
	flags.BoolVar(&o.share, "share", false, "both answers share a row with their prompt")
	flags.BoolVar(&o.checkpoint, "checkpoint", false, "recompute layers in the backward pass")
	flags.IntVar(&o.headChunk, "head-chunk", 0, "predicted tokens whose logits exist at once; 0: as many as fit 128 MB")
	flags.StringVar(&o.preset, "preset", "qwen2.5-0.5b", "model, with random weights")
	flags.StringVar(&o.dtype, "dtype", "bfloat16", "type to compute in: bfloat16 or float32; the weights are float32")
	flags.StringVar(&o.python, "python", "", `interpreter with PyTorch for the other side; "": posttrain alone`)
	flags.StringVar(&o.device, "device", "cuda", "PyTorch's device")
	o.shape.register(flags)
	flags.IntVar(&o.steps, "steps", 20, "steps measured")
	flags.IntVar(&o.warmup, "warmup", 5, "steps before them")
	o.limits.register(flags)
	cmd.AddCommand(newGPUSample(), newGPUGRPO())
	return cmd
}

// onGPU are the defaults of Python's sides on a GPU. They run only if an interpreter is given.
var onGPU = peers{"", "cuda", "bfloat16"}

func newGPUSample() *cobra.Command {
	o := &sampleOptions{peers: onGPU, backend: "xla:cuda", presets: []string{"qwen2.5-0.5b"}, batches: []int{128, 512},
		decodes: true}
	cmd := newCommand("sample", "Sampling through XLA on a GPU (see docs/scale.md)",
		"  go run ./internal/bench gpu sample --backend xla:/path/plugin.so --python venv/bin/python\n"+
			"  go run ./internal/bench gpu sample --backend onnx --dtype float32 --preset tiny   (a trial without a GPU)",
		o.run)
	o.register(cmd)
	o.limits.register(cmd.Flags())
	return cmd
}

func newGPUGRPO() *cobra.Command {
	draw := drawOptions{backend: "xla:cuda", preset: "qwen2.5-0.5b", prompts: []int{64, 256}}
	o := &groupOptions{drawOptions: draw, peers: onGPU}
	cmd := newCommand("grpo", "A whole step of GRPO through XLA on a GPU (see docs/scale.md)",
		"  go run ./internal/bench gpu grpo --backend xla:/path/plugin.so --python venv/bin/python\n"+
			"  go run ./internal/bench gpu grpo --backend onnx --dtype float32 --preset tiny   (a trial without a GPU)",
		o.run)
	o.registerStep(cmd)
	return cmd
}

// gpuResult is the result of one side; peer_gpu.py prints it as JSON.
type gpuResult struct {
	Device  string   `json:"device"`
	Torch   string   `json:"torch"`
	Seconds float64  `json:"seconds"`
	Tokens  float64  `json:"tokens_per_second"`
	TFLOP   float64  `json:"tflop_per_step"`
	PeakGB  *float64 `json:"peak_memory_gb"`
	Loss    float64  `json:"loss"`
	compile float64
}

func (o *gpuOptions) run(out io.Writer) error {
	if err := checkDType(o.dtype); err != nil {
		return err
	}
	o.bfloat16 = o.dtype == "bfloat16"
	own, err := o.posttrain()
	if err != nil {
		return err
	}
	var torch *gpuResult
	if o.python != "" {
		if torch, err = o.pytorch(); err != nil {
			return err
		}
	}
	o.print(out, own, torch)
	return nil
}

// posttrain measures the step. Each returns its loss, so that it has ended when the clock is read.
func (o *gpuOptions) posttrain() (*gpuResult, error) {
	c, err := config(o.preset)
	if err != nil {
		return nil, err
	}
	stop := watchMemory()
	r, err := o.measure(c)
	if used := stop(); err == nil && used > 0 {
		r.PeakGB = &used
	} else if _, peak := memoryOf("self"); err == nil && peak > 0 {
		peak /= 1e3
		r.PeakGB = &peak
	}
	return r, err
}

func (o *gpuOptions) measure(c *model.Config) (*gpuResult, error) {
	begin := time.Now()
	t, err := openTrainer(model.Init(c, 1), randomProblem(o.shape, c.VocabSize, 1e-6), o.form)
	if err != nil {
		return nil, err
	}
	defer t.close()
	r, seconds := &gpuResult{Device: t.engine.Name}, []float64{}
	for i := range o.warmup + o.steps {
		start := time.Now()
		if r.Loss, err = t.step(); err != nil {
			return nil, err
		}
		if i == 0 {
			r.compile = time.Since(begin).Seconds()
		}
		if i >= o.warmup {
			seconds = append(seconds, time.Since(start).Seconds())
		}
	}
	for _, p := range t.parts {
		r.TFLOP += flops(c, p.Packed) / 1e12
	}
	r.Seconds = median(seconds)
	r.Tokens = float64(o.tokens()) / r.Seconds
	return r, nil
}

func (o *gpuOptions) pytorch() (*gpuResult, error) {
	args := append([]string{"--preset", o.preset, "--steps", strconv.Itoa(o.steps),
		"--warmup", strconv.Itoa(o.warmup), "--device", o.device}, flagArgs(o.shape.register)...)
	r := &gpuResult{}
	return r, runScript(o.python, r, os.Stderr, "scripts/gpu/peer_gpu.py", args...)
}

// print prints both sides' time, tokens (on both sides those of two rows a pair) and share of the chip's rate, which
// counts the operations that the side's own form of the step needs.
func (o *gpuOptions) print(out io.Writer, own, torch *gpuResult) {
	peak := o.resolve().tflops
	title := fmt.Sprintf("DPO step, %s, %s, %s; median of %d", o.preset, o.shape, o.dtype, o.steps)
	header := "side\tms a step\ttokens/s\tTFLOP a step\tTFLOP/s\tshare of the bf16 rate\tpeak GB\tloss\t"
	table(out, title, header, func(w io.Writer) {
		own.row(w, "posttrain", peak)
		if torch != nil {
			torch.row(w, "PyTorch "+torch.Torch, peak)
		}
	})
	fmt.Fprintf(out, "posttrain took %.1f s from a model in memory to the end of the first step, with compilation\n",
		own.compile)
	if peak > 0 {
		reach(out, "share of the chip's bfloat16 rate, "+o.preset, own.TFLOP/own.Seconds/peak, shareGoals[o.preset])
	}
}

// shareGoals are targets for the step's share of the chip's rate.
var shareGoals = map[string]float64{"qwen2.5-1.5b": 0.45}

func (r *gpuResult) row(w io.Writer, name string, peak float64) {
	share, memory := "rate unknown", "unknown"
	if peak > 0 {
		share = fmt.Sprintf("%.1f%% of %g", 100*r.TFLOP/r.Seconds/peak, peak)
	}
	if r.PeakGB != nil {
		memory = fmt.Sprintf("%.1f", *r.PeakGB)
	}
	fmt.Fprintf(w, "%s (%s)\t%.2f\t%.0f\t%.3f\t%.1f\t%s\t%s\t%.5f\t\n", name, r.Device, 1e3*r.Seconds, r.Tokens,
		r.TFLOP, r.TFLOP/r.Seconds, share, memory, r.Loss)
}

// flops is the number of floating-point operations of the matrix products in a step on a packed batch: forward, and
// twice that for backward. Of attention's scores it counts the half that is not masked. The head, and what follows
// attention in the last layer, count only for positions that predict something. peer_gpu.py counts in the same way, but
// its head on all positions, as it computes them.
func flops(c *model.Config, p *batch.Packed) float64 {
	tokens, slots := float64(p.Rows*p.Len), float64(p.Slots)
	heads, width := float64(c.Heads*c.HeadDim), float64(c.HiddenSize)
	before := width * float64((c.Heads+2*c.KVHeads)*c.HeadDim) // q, k, v
	after := width*heads + 3*width*float64(c.IntermediateSize) // o, gate, up, down
	scores := 2 * heads * float64(p.Len) / 2 * tokens          // q k' and p v, half of each masked
	layers := float64(c.Layers)*(before*tokens+scores) + after*(float64(c.Layers-1)*tokens+slots)
	return 6 * (layers + width*float64(c.VocabSize)*slots)
}
