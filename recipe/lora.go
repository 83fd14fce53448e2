package recipe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/model"
)

// Adapting says whether an adapter is trained instead of the model's own weights, and which.
type Adapting struct {
	Adapter  string `yaml:"adapter,omitempty" hub:"adapter" words:"an adapter's folder, or org/name on the hub" flag:"adapter" help:"folder of a LoRA adapter for the model, as peft or this program saves it, to train further"`
	LoRA     LoRA   `yaml:"lora"`
	Quantize string `yaml:"quantize,omitempty" want:"|none|nf4" words:"none or nf4" flag:"quantize" help:"hold the weights below an adapter in 4 bits:"`
}

// LoRA says which adapter training begins with. In brackets are peft's names.
type LoRA struct {
	Rank    int      `yaml:"rank,omitempty" want:">=0 <=65536" zero:"no adapter" flag:"lora-rank" help:"train a LoRA adapter of this rank (r), not the model's own weights"`
	Alpha   float64  `yaml:"alpha,omitempty" want:">=0" zero:"twice the rank" help:"the adapter's product is scaled by alpha/rank (lora_alpha); 0: twice the rank"`
	RSLoRA  bool     `yaml:"rslora,omitempty" help:"scale by alpha/√rank instead (use_rslora)"`
	Targets []string `yaml:"targets,omitempty" words:"names of modules, such as q_proj, or patterns, such as mlp.*" help:"linear layers with adapters, such as q_proj or mlp.* (target_modules); empty: all"`
	Dropout float64  `yaml:"dropout,omitempty" help:"(lora_dropout) is not supported: 0"`
}

// Check refuses dropout, and options of a new adapter without its rank.
func (l LoRA) Check() []fault.Fault {
	var faults fault.Faults
	if l.Dropout != 0 {
		faults.Add("dropout", l.Dropout, "dropout of an adapter's input is not supported: want 0")
	}
	unused := func(given bool, key string, value any) {
		if given && l.Rank == 0 {
			faults.Add(key, value, "without lora.rank there is no new adapter; remove it")
		}
	}
	unused(l.Alpha != 0, "alpha", l.Alpha)
	unused(l.RSLoRA, "rslora", l.RSLoRA)
	unused(len(l.Targets) > 0, "targets", strings.Join(l.Targets, ","))
	return faults
}

// Check refuses a new adapter beside one that is continued, and few bits for weights that are trained.
func (a Adapting) Check() []fault.Fault {
	var faults fault.Faults
	if a.Adapter != "" && a.LoRA.Rank != 0 {
		faults.Add("adapter", a.Adapter, "lora.rank %d makes a new adapter; remove one of the two", a.LoRA.Rank)
	}
	if a.Quantized() && !a.On() {
		faults.Add("quantize", a.Quantize, "all weights are trained, which needs them in float32: want lora.rank or "+
			"adapter beside it")
	}
	return faults
}

// Resolve gives alpha its default.
func (l *LoRA) Resolve(*config.Given) { l.Alpha = cmp.Or(l.Alpha, 2*float64(max(l.Rank, 0))) }

// On says that an adapter is trained.
func (a Adapting) On() bool { return a.Adapter != "" || a.LoRA.Rank > 0 }

// quantization is the type of the frozen weights, by the model's name.
func (a Adapting) quantization() string {
	if a.Quantize == "none" {
		return ""
	}
	return a.Quantize
}

// Quantized says that the weights below the adapter are held in few bits.
func (a Adapting) Quantized() bool { return a.quantization() != "" }

// Adapt gives the model of a folder its adapter.
func (a Adapting) Adapt(m *model.Model, folder string, seed uint64) (*model.Model, error) {
	if !a.On() {
		return m, nil
	}
	a.LoRA.Resolve(nil) // of options that a program made
	l := model.LoRA{Rank: a.LoRA.Rank, Alpha: a.LoRA.Alpha, RSLoRA: a.LoRA.RSLoRA}
	var err error
	if a.Adapter != "" {
		m, err = m.LoadAdapter(a.Adapter)
	} else if l.Modules, err = m.Config.AdapterModules(a.LoRA.Targets); err != nil {
		err = fmt.Errorf("lora.targets %w", err)
	} else {
		m = m.Adapt(l, seed)
	}
	if err != nil {
		return nil, err
	}
	m.Config.LoRA.From, m.Config.LoRA.Quantization = folder, a.quantization()
	if m.Config.LoRA.Base == "" && m.HasWeights() {
		m.Config.LoRA.Base, err = m.Hash()
	}
	return m, err
}

// adviseDropout says that an adapter was trained with dropout before; "" where it was not.
func (a Adapting) adviseDropout() string {
	var before struct {
		Dropout float64 `json:"lora_dropout"`
	}
	folder, err := hub.Folder(a.Adapter)
	if a.Adapter == "" || err != nil {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(folder, "adapter_config.json"))
	if err != nil || json.Unmarshal(text, &before) != nil || before.Dropout == 0 { // loading it says what is wrong
		return ""
	}
	return fmt.Sprintf("%s: its lora_dropout is %v, and it is trained further with 0: dropout of an adapter's input is "+
		"not supported", a.Adapter, before.Dropout)
}

// advise says that weights in few bits save nothing on an engine; "" where they do.
func (a Adapting) advise(e *backend.Engine) string {
	if !a.Quantized() || !e.Wants.KeepsUnpacked {
		return ""
	}
	return fmt.Sprintf("quantize %s: engine %s takes more memory for these weights than for float32 ones; --backend "+
		"xla takes less", a.Quantize, e.Name)
}

// Explain says in a line which adapter is trained; nothing without one.
func (a Adapting) Explain() string {
	frozen := "frozen\n"
	if q := a.quantization(); q != "" {
		frozen = "frozen, the matrices of linear layers in " + q + "\n"
	}
	switch l := a.LoRA; {
	case a.Adapter != "":
		return fmt.Sprintf("adapter: that of %s, trained further; the model's own weights are %s", a.Adapter, frozen)
	case l.Rank > 0:
		scale, targets := "alpha/rank", "all linear layers"
		if l.RSLoRA {
			scale = "alpha/√rank"
		}
		if len(l.Targets) > 0 {
			targets = strings.Join(l.Targets, ", ")
		}
		return fmt.Sprintf("adapter: LoRA of rank %d on %s, scaled by %s with alpha %v; the model's own weights are "+
			"%s", l.Rank, targets, scale, l.Alpha, frozen)
	}
	return ""
}
