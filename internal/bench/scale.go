package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// Flags of XLA that write down what it makes of programs, and skip what costs time alone.
const scaleFlags = "--xla_backend_optimization_level=0 --xla_dump_hlo_as_text --xla_dump_to="

// qwen are the shapes of Qwen2.5's models. Their key/value heads are the most devices that weights are cut over.
var qwen = []struct {
	name   string
	config model.Config
}{
	{"1.5B", qwenOf(1536, 28, 12, 2, 8960, 151936)},
	{"7B", qwenOf(3584, 28, 28, 4, 18944, 152064)},
	{"14B", qwenOf(5120, 48, 40, 8, 13824, 152064)},
}

func qwenOf(hidden, layers, heads, kv, intermediate, vocabulary int) model.Config {
	return model.Config{ModelType: "qwen2", HiddenSize: hidden, Layers: layers, Heads: heads, KVHeads: kv,
		HeadDim: hidden / heads, IntermediateSize: intermediate, VocabSize: vocabulary, TieEmbeddings: hidden < 3584,
		QKVBias: true, RopeTheta: 1e6, RMSNormEps: 1e-6}
}

// layout is a way to train on several devices.
type layout struct {
	name    string
	devices int
	tensor  bool
	moments bool
	lora    bool
}

var layouts = []layout{
	{"one device", 1, false, false, false},
	{"LoRA", 1, false, false, true},
	{"data", 8, false, false, false},
	{"data, moments cut", 8, false, true, false},
	{"data × tensor, moments cut", 8, true, true, false},
	{"LoRA, data", 8, false, false, true},
	{"data, moments cut", 64, false, true, false},
	{"data × tensor, moments cut", 64, true, true, false},
	{"LoRA, data", 64, false, false, true},
}

type scaleOptions struct {
	models  []string
	devices []int
	layout  string
	tokens  int
	rank    int
	backend string
}

func newScale() *cobra.Command {
	var o scaleOptions
	cmd := newCommand("scale", "Memory a device and traffic a step of large models, by XLA's compiled programs",
		"  go run ./bench scale --models 7B", o.run)
	cmd.Long = `Compiles the programs of a DPO step for Qwen2.5's shapes with 2 and with 4 layers, on virtual devices of
this machine, and runs none. XLA's buffer assignment gives the memory of a device, the collectives in its programs give
what a device sends. Both are linear in the layers, so that two points give the whole model.`
	flags := cmd.Flags()
	flags.StringSliceVar(&o.models, "models", []string{"1.5B", "7B", "14B"}, "models")
	flags.IntSliceVar(&o.devices, "devices", []int{1, 8, 64}, "numbers of GPUs")
	flags.StringVar(&o.layout, "layout", "", "a part of the layouts' names (default: all)")
	flags.IntVar(&o.tokens, "tokens", 1024, "tokens of a row; each data device has a pair of rows")
	flags.IntVar(&o.rank, "rank", 16, "rank of the adapter")
	flags.StringVar(&o.backend, "backend", "xla:cpu", "PJRT plugin for virtual devices")
	return cmd
}

func (o *scaleOptions) run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, value := range map[string]string{"XLA_FLAGS": scaleFlags + dir, "POSTTRAIN_XLA_CACHE": "off"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "A device holds, in GB, and sends in a step, in GB by ring. Pairs of %d tokens a row, one a data "+
		"device; bfloat16 with gradient checkpointing.\n\n", o.tokens)
	fmt.Fprintln(out, "| model | GPUs | layout | weights | gradients | float32 weights | moments | temporary | all | "+
		"sent: gradient | sent: update |\n|---|---|---|---|---|---|---|---|---|---|---|")
	for _, m := range qwen {
		for _, l := range layouts {
			if slices.Contains(o.models, m.name) && slices.Contains(o.devices, l.devices) &&
				strings.Contains(l.name, o.layout) {
				f, err := o.whole(dir, m.config, l)
				if err != nil {
					return fmt.Errorf("%s, %d devices, %s: %w", m.name, l.devices, l.name, err)
				}
				fmt.Fprintf(out, "| %s | %d | %s | %s |\n", m.name, l.devices, l.name, f)
			}
		}
	}
	return nil
}

// figures are bytes of a device.
type figures struct{ weights, gradients, masters, moments, temporary, gradientSent, updateSent float64 }

func (f figures) String() string {
	all := f.weights + f.gradients + f.masters + f.moments + f.temporary
	var cells []string
	for _, x := range []float64{f.weights, f.gradients, f.masters, f.moments, f.temporary, all, f.gradientSent,
		f.updateSent} {
		cells = append(cells, fmt.Sprintf("%.3g", x/1e9))
	}
	return strings.Join(cells, " | ")
}

// whole extends what 2 and 4 layers take to all.
func (o *scaleOptions) whole(dir string, c model.Config, l layout) (figures, error) {
	var at [2]figures
	all := c.Layers
	for i, layers := range []int{2, 4} {
		var err error
		c.Layers = layers
		if at[i], err = o.compile(dir, c, l); err != nil {
			return figures{}, err
		}
	}
	line := func(of func(f figures) float64) float64 {
		a, b := of(at[0]), of(at[1])
		return a + (b-a)/2*float64(all-2)
	}
	return figures{
		line(func(f figures) float64 { return f.weights }), line(func(f figures) float64 { return f.gradients }),
		line(func(f figures) float64 { return f.masters }), line(func(f figures) float64 { return f.moments }),
		line(func(f figures) float64 { return f.temporary }), line(func(f figures) float64 { return f.gradientSent }),
		line(func(f figures) float64 { return f.updateSent }),
	}, nil
}

// compile compiles the step's programs and reads what XLA wrote about them.
func (o *scaleOptions) compile(dir string, c model.Config, l layout) (f figures, err error) {
	if l.lora {
		a := &model.LoRA{Rank: o.rank, Alpha: float64(2 * o.rank)}
		if a.Modules, err = c.AdapterModules(nil); err != nil {
			return f, err
		}
		c.LoRA = a
	}
	mesh := backend.Mesh{Data: l.devices, Tensor: 1}
	if l.tensor {
		mesh.Tensor = min(c.KVHeads, l.devices/2)
		mesh.Data = l.devices / mesh.Tensor
	}
	if l.moments {
		mesh.Shard = backend.ShardMoments
	}
	e, err := backend.OpenMesh(o.backend, mesh)
	if err != nil {
		return f, err
	}
	defer e.Close()
	var groups []batch.Group
	method := &train.Preference{Options: losses.Defaults(losses.DPO)}
	var examples []int
	for i := range mesh.Data {
		half := make([]int32, o.tokens/2)
		groups = append(groups, batch.Group{Prompt: half, Answers: [][]int32{half, half}})
		examples = append(examples, i)
		method.Gaps, method.Reference = append(method.Gaps, 0.5), append(method.Reference, [2]float32{})
	}
	p := batch.Pack(groups, batch.Layout{Pad: mesh.Data, Blocks: mesh.Data})
	rule := train.AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MaxNorm: 1}
	updates, err := train.CompileStep(e, &c, model.GraphOptions{DType: dtypes.BFloat16, Checkpoint: true}, p, method,
		examples, rule)
	if err != nil {
		return f, err
	}
	return measureStep(dir, updates, l)
}

// measureStep reads what XLA wrote, and removes it.
func measureStep(dir string, updates []*backend.Program, l layout) (f figures, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.cpu_after_optimizations.txt"))
	if err != nil || len(files) == 0 {
		return f, cmp.Or(err, fmt.Errorf("%s: XLA wrote nothing", dir))
	}
	slices.Sort(files) // by number, which is the order of compiling
	var programs []measured
	for _, file := range files {
		m, err := measureProgram(file)
		if err != nil {
			return f, err
		}
		programs = append(programs, m)
	}
	all, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range all {
		if err := os.Remove(file); err != nil {
			return f, err
		}
	}
	gradient, rest := programs[0], programs[1:]
	f = figures{weights: gradient.arguments - gradient.reused, gradients: gradient.reused,
		moments: 2 * gradient.reused, temporary: gradient.temporary, gradientSent: gradient.sent}
	if l.moments {
		f.masters = gradient.reused
	}
	number := map[*backend.Program]int{}
	for _, u := range updates {
		if _, known := number[u]; !known {
			number[u] = len(number)
		}
		if number[u] >= len(rest) {
			return f, fmt.Errorf("%d programs: want %d updates", len(programs), len(number))
		}
		m := rest[number[u]]
		f.updateSent += m.sent
		f.temporary = max(f.temporary, m.temporary+m.outputs)
	}
	return f, nil
}

// measured is what XLA says of a program, in bytes of a device.
type measured struct{ arguments, reused, outputs, temporary, sent float64 }

var allocation = regexp.MustCompile(`^allocation \d+: size (\d+), (.*)`)

// measureProgram reads the collectives of a program, and its buffers from the file beside it.
func measureProgram(file string) (m measured, err error) {
	if err = eachLine(file, func(line string) { m.sent += sentBy(line) }); err != nil {
		return m, err
	}
	buffers := strings.TrimSuffix(file, ".txt") + "-buffer-assignment.txt"
	err = eachLine(buffers, func(line string) {
		found := allocation.FindStringSubmatch(line)
		if found == nil {
			return
		}
		size, _ := strconv.ParseFloat(found[1], 64)
		switch parameter := strings.HasPrefix(found[2], "parameter"); {
		case parameter:
			m.arguments += size
			if strings.Contains(found[2], "maybe-live-out") {
				m.reused += size
			}
		case strings.Contains(found[2], "maybe-live-out"), strings.HasPrefix(found[2], "output"):
			m.outputs += size
		default:
			m.temporary += size
		}
	})
	return m, err
}

func eachLine(file string, use func(line string)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<30)
	for lines.Scan() {
		use(lines.Text())
	}
	return lines.Err()
}

var (
	collective = regexp.MustCompile(
		`= (\(.*?\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\(`)
	array  = regexp.MustCompile(`(\w+)\[([\d,]*)\]`)
	groups = regexp.MustCompile(`replica_groups=(?:\[\d+,(\d+)\]|\{\{([\d,]+)\})`)
)

var elementBytes = map[string]float64{"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4,
	"s64": 8, "f64": 8}

// sentBy is what a device sends in a collective, by ring: 2(N-1)/N of the array in an all-reduce of N devices, (N-1)/N
// of the result in an all-gather and an all-to-all, N-1 times the result in a reduce-scatter. XLA for CPUs sums
// bfloat16 in float32 ("promoted"); it counts as bfloat16.
func sentBy(line string) float64 {
	found := collective.FindStringSubmatch(line)
	if found == nil {
		return 0
	}
	size := 0.0
	for _, a := range array.FindAllStringSubmatch(found[1], -1) {
		n := elementBytes[a[1]]
		for _, d := range strings.Split(a[2], ",") {
			if d != "" {
				x, _ := strconv.ParseFloat(d, 64)
				n *= x
			}
		}
		size += n
	}
	if strings.Contains(line, "_promoted") {
		size /= 2
	}
	n := 2.0
	if g := groups.FindStringSubmatch(line); g != nil {
		if n = float64(1 + strings.Count(g[2], ",")); g[1] != "" {
			n, _ = strconv.ParseFloat(g[1], 64)
		}
	}
	return size * map[string]float64{"all-reduce": 2 * (n - 1) / n, "all-gather": (n - 1) / n,
		"reduce-scatter": n - 1, "all-to-all": (n - 1) / n, "collective-permute": 1}[found[2]]
}
