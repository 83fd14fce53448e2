package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/model"
)

// loraOptions are the options of the comparison of adapters with full weights.
type loraOptions struct {
	formsOptions
	rank int
	half string
}

func newLoRA() *cobra.Command {
	o := &loraOptions{formsOptions: formsOptions{shape: shape{4, 128, 64}, rate: 1e-8}}
	o.rounds.loose = 0.02
	cmd := newCommand("lora", "The DPO step of all weights against LoRA on float32, bfloat16, int8 and nf4 bases",
		"  go run ./bench lora --preset 56M --backend xla:cpu --half xla:amx",
		func(out io.Writer) error { return o.compare(out, 0, o.ways()...) })
	cmd.Long = `Every side measures its own reference, so that all begin with a loss of ln 2, and learns so slowly that they stay within
0.02 of each other. Peak memory is that of the steps, without that of loading.`
	o.register(cmd)
	cmd.Flags().IntVar(&o.rank, "rank", 16, "of the adapters, which are on all linear layers")
	cmd.Flags().StringVar(&o.half, "half", "", `engine of the sides in bfloat16; "": none`)
	return cmd
}

func (o *loraOptions) ways() (all []way) {
	add := func(name string, f form) {
		f.alone = true
		all = append(all, way{name, &f})
	}
	bases := []string{"", model.Int8, model.NF4}
	add("all weights", form{backend: o.backend})
	for _, base := range bases {
		add("LoRA, "+baseName(base, "float32"), form{backend: o.backend, rank: o.rank, quantize: base})
	}
	if o.half == "" {
		return all
	}
	add("all weights in bfloat16", form{backend: o.half, bfloat16: true})
	for _, base := range bases {
		add("LoRA in bfloat16, "+baseName(base, "bfloat16"),
			form{backend: o.half, bfloat16: true, rank: o.rank, quantize: base})
	}
	return all
}

func baseName(quantization, dtype string) string {
	if quantization == "" {
		quantization = dtype
	}
	return quantization + " base"
}

// adapt gives the form's model its adapter.
func (f *form) adapt(m *model.Model) (*model.Model, error) {
	if f.rank == 0 {
		return m, nil
	}
	modules, err := m.Config.AdapterModules(nil)
	if err != nil {
		return nil, err
	}
	l := model.LoRA{Rank: f.rank, Alpha: 2 * float64(f.rank), Modules: modules, Quantization: f.quantize}
	return m.Adapt(l, 1), nil
}

// forget drops the host's copy of the weights, and the memory of loading from the peak.
func forget(m *model.Model) {
	m.Release()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		fmt.Fprintln(os.Stderr, "peak memory is that of loading, too:", err)
	}
}
