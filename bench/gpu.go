package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/model"
)

// gpuOptions are those of the step on a GPU.
type gpuOptions struct {
	form
	shape
	preset, dtype, python, device string
	steps, warmup                 int
	peak                          float64
}

func newGPU() *cobra.Command {
	o := gpuOptions{shape: shape{4, 512, 256}}
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "The DPO step through XLA on a GPU, and plain PyTorch's on the same one (untested: see docs/gpu.md)",
		Example: "  go run ./bench gpu --backend xla:/path/plugin.so --python venv/bin/python --peak-tflops 989\n" +
			"  go run ./bench gpu --backend onnx --dtype float32 --preset 5.4M --length 128 --prompt 64   (that it runs)",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.form.backend, "backend", "xla:cuda", "posttrain's engine")
	flags.BoolVar(&o.share, "share", false, "prompts stand once")
	flags.BoolVar(&o.checkpoint, "checkpoint", false, "recompute layers in the backward pass")
	flags.IntVar(&o.headChunk, "head-chunk", 0, "predicted tokens whose logits exist at once; 0: as many as fit 128 MB")
	flags.StringVar(&o.preset, "preset", "qwen2.5-0.5b", "model, with random weights")
	flags.StringVar(&o.dtype, "dtype", "bfloat16", "bfloat16 or float32: what the step computes in; masters are float32")
	flags.StringVar(&o.python, "python", "", "interpreter with PyTorch for the other side; none: posttrain alone")
	flags.StringVar(&o.device, "device", "cuda", "PyTorch's device")
	flags.IntVar(&o.pairs, "pairs", o.pairs, "pairs a step")
	flags.IntVar(&o.length, "length", o.length, "tokens a row")
	flags.IntVar(&o.prompt, "prompt", o.prompt, "of these, tokens of the prompt")
	flags.IntVar(&o.steps, "steps", 20, "steps measured")
	flags.IntVar(&o.warmup, "warmup", 5, "steps before")
	flags.Float64Var(&o.peak, "peak-tflops", 0, "the chip's dense bfloat16 rate; 0: known chips by their name, through PyTorch")
	cmd.AddCommand(newGPUSample(), newGPUGRPO())
	return cmd
}

// onGPU are the Python sides' defaults there: none unless an interpreter is given.
var onGPU = peers{"", "cuda", "bfloat16"}

// newGPUSample is the comparison of sampling at the size that a GPU is for.
func newGPUSample() *cobra.Command {
	o := &sampleOptions{peers: onGPU, backend: "xla:cuda", presets: []string{"qwen2.5-0.5b"}, batches: []int{256}}
	cmd := &cobra.Command{
		Use:   "sample",
		Short: "Sampling through XLA on a GPU (untested: see docs/gpu.md)",
		Example: "  go run ./bench gpu sample --backend xla:/path/plugin.so --python venv/bin/python\n" +
			"  go run ./bench gpu sample --backend onnx --dtype float32 --preset tiny   (that it runs)",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	o.register(cmd)
	return cmd
}

// newGPUGRPO is the comparison of whole steps there.
func newGPUGRPO() *cobra.Command {
	o := &groupOptions{learning: learning{backend: "xla:cuda"}, peers: onGPU, preset: "qwen2.5-0.5b", prompts: []int{64, 256}}
	cmd := &cobra.Command{
		Use:   "grpo",
		Short: "A whole step of GRPO through XLA on a GPU (untested: see docs/gpu.md)",
		Example: "  go run ./bench gpu grpo --backend xla:/path/plugin.so --python venv/bin/python\n" +
			"  go run ./bench gpu grpo --backend onnx --dtype float32 --preset tiny   (that it runs)",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	o.registerStep(cmd)
	return cmd
}

// gpuResult is one side's, in the words of peer_gpu.py.
type gpuResult struct {
	Device  string   `json:"device"`
	Torch   string   `json:"torch"`
	Seconds float64  `json:"seconds"`
	Tokens  float64  `json:"tokens_per_second"`
	TFLOP   float64  `json:"tflop_per_step"`
	Share   *float64 `json:"share_of_bf16_rate"`
	PeakGB  *float64 `json:"peak_memory_gb"`
	Loss    float64  `json:"loss"`
	compile float64
}

// rate is the chip's rate that the share was taken of, 0 where there is none.
func (r gpuResult) rate() float64 {
	if r.Share == nil || *r.Share == 0 {
		return 0
	}
	return r.TFLOP / r.Seconds / *r.Share
}

func (o *gpuOptions) run(out io.Writer) error {
	if o.dtype != "bfloat16" && o.dtype != "float32" {
		return fmt.Errorf("--dtype %q: want bfloat16 or float32", o.dtype)
	}
	o.bfloat16 = o.dtype == "bfloat16"
	own, err := o.posttrain()
	if err != nil {
		return err
	}
	if o.python == "" {
		o.print(out, own, nil)
		return nil
	}
	torch, err := o.pytorch()
	if err != nil {
		return err
	}
	o.print(out, own, torch)
	return nil
}

// posttrain measures the step; its loss comes back every time, so that a step has ended when the clock is read.
func (o *gpuOptions) posttrain() (*gpuResult, error) {
	c, err := config(o.preset)
	if err != nil {
		return nil, err
	}
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
	path := filepath.Join("scripts", "gpu", "peer_gpu.py")
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s: not here: run this from the repository's root", path)
	}
	args := []string{path, "--preset", o.preset, "--pairs", strconv.Itoa(o.pairs), "--length", strconv.Itoa(o.length), "--prompt", strconv.Itoa(o.prompt),
		"--steps", strconv.Itoa(o.steps), "--warmup", strconv.Itoa(o.warmup), "--device", o.device}
	if o.peak > 0 {
		args = append(args, "--tflops", strconv.FormatFloat(o.peak, 'g', -1, 64))
	}
	c := exec.Command(o.python, args...)
	c.Stderr = os.Stderr
	line, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := &gpuResult{}
	return r, json.Unmarshal(line, r)
}

// print gives both sides' time, tokens (those of two rows a pair, on both sides) and share of the chip's rate: of the
// operations that the side's own form of the step needs.
func (o *gpuOptions) print(out io.Writer, own, torch *gpuResult) {
	peak := o.peak
	if peak == 0 && torch != nil {
		peak = torch.rate()
	}
	fmt.Fprintf(out, "\nDPO step, %s, %s, %s; median of %d\n", o.preset, o.shape, o.dtype, o.steps)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "side\tms a step\ttokens/s\tTFLOP a step\tTFLOP/s\tshare of the bf16 rate\tpeak GB\tloss\t")
	row := func(name string, r *gpuResult) {
		share, memory := "rate unknown", "see nvidia-smi"
		if peak > 0 {
			share = fmt.Sprintf("%.1f%% of %g", 100*r.TFLOP/r.Seconds/peak, peak)
		}
		if r.PeakGB != nil {
			memory = fmt.Sprintf("%.1f", *r.PeakGB)
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.0f\t%.3f\t%.1f\t%s\t%s\t%.5f\t\n", name, 1e3*r.Seconds, r.Tokens, r.TFLOP, r.TFLOP/r.Seconds, share, memory, r.Loss)
	}
	row("posttrain ("+own.Device+")", own)
	if torch != nil {
		row("PyTorch "+torch.Torch+" ("+torch.Device+")", torch)
	}
	w.Flush()
	fmt.Fprintf(out, "posttrain took %.1f s from a model in memory to the end of the first step, compilation included\n", own.compile)
}
