package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/hub"
)

// An adapter's folder, as peft reads and writes it.
const (
	adapterConfigFile = "adapter_config.json"
	adapterFile       = "adapter_model.safetensors"
	adapterPrefix     = "base_model.model." // before the names of the tensors
	adapterBaseKey    = "base_sha256"       // in the metadata of the tensors: the LoRA's Base
)

// Hash is the SHA-256 of the weights and their names; below an adapter, of the frozen ones. The type in which a folder
// stores them does not matter.
func (m *Model) Hash() (string, error) {
	params := m.Params
	if m.Config.LoRA != nil {
		params = params[:m.Config.Frozen()]
	}
	sums, errs := make([][sha256.Size]byte, len(params)), make([]error, len(params))
	float.Parallel(len(params), func(i int) { sums[i], errs[i] = params[i].hash() })
	h := sha256.New()
	for _, s := range sums {
		h.Write(s[:])
	}
	return hex.EncodeToString(h.Sum(nil)), cmp.Or(errs...)
}

func (p *Param) hash() (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	fmt.Fprintln(h, p.Name, p.Shape)
	buffer := make([]byte, 0, 4*stretchSize)
	err = p.pieces(func(x []float32, _ int) {
		for part := range slices.Chunk(x, stretchSize) {
			buffer = buffer[:0]
			for _, x := range part {
				buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(x))
			}
			h.Write(buffer)
		}
	})
	h.Sum(sum[:0])
	return sum, err
}

// SaveAdapter writes the adapter of a model as a folder that peft reads, and makes dir if needed. dtype is float32,
// bfloat16 or float16; "" is float32.
func (w Writer) SaveAdapter(m *Model, dir, dtype string) error {
	dtype = cmp.Or(dtype, "float32")
	for _, p := range m.Trained() {
		if err := checkStorable(p.Data, dtype); err != nil {
			return fmt.Errorf("tensor %s: %w", p.Name, err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%s: %w", dir, files.Cause(err))
	}
	text, err := json.MarshalIndent(m.Config.peft(), "", "  ")
	path := filepath.Join(dir, adapterConfigFile)
	if err == nil {
		err = files.Replace(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	var tensors []Tensor
	for _, p := range m.Trained() {
		tensors = append(tensors, Tensor{Name: m.Config.peftName(p.Name), Shape: p.Shape, Floats: p.Data})
	}
	meta := map[string]string{"format": "pt"}
	if m.Config.LoRA.Base != "" {
		meta[adapterBaseKey] = m.Config.LoRA.Base
	}
	return w.write(filepath.Join(dir, adapterFile), tensors, fileDTypes[dtype], meta)
}

// peftName is a tensor's name in an adapter's file: peft goes by the names of the whole model, also of one that sees.
func (c *Config) peftName(name string) string {
	if rest, has := strings.CutPrefix(name, "model."); has && c.textPart {
		name = textPrefixes[0] + rest
	}
	return adapterPrefix + name
}

// peft is the adapter's configuration under peft's names.
func (c *Config) peft() map[string]any {
	l, task, whole, names := c.LoRA, "CAUSAL_LM", []string(nil), []string(nil)
	if c.trainsScore() {
		task, whole = "SEQ_CLS", []string{scoreModule}
	}
	for _, m := range l.Modules {
		names = append(names, path.Ext(m)[1:])
	}
	targets := any(names)
	if c.textPart { // the part that sees has modules of these names
		targets = `.*language_model.*\.(` + strings.Join(names, "|") + ")"
	}
	base, revision := l.From, any(nil)
	if name, commit, has := strings.Cut(base, "@"); has && hub.IsID(base) {
		base, revision = name, commit
	}
	return map[string]any{
		"peft_type": "LORA", "task_type": task, "base_model_name_or_path": base, "inference_mode": true,
		"r": l.Rank, "lora_alpha": l.Alpha, "use_rslora": l.RSLoRA, "target_modules": targets, "lora_dropout": 0.0,
		"bias": "none", "fan_in_fan_out": false, "init_lora_weights": true, "modules_to_save": whole,
		"rank_pattern": map[string]any{}, "alpha_pattern": map[string]any{}, "layers_to_transform": nil,
		"layers_pattern": nil, "use_dora": false, "revision": revision,
	}
}

// LoadAdapter is the model with the adapter of a folder that peft or [Writer.SaveAdapter] wrote, or of an id of the hub
// that the cache has. It shares the model's tensors. An adapter that was trained on other weights, where the folder says
// on which, is an error.
func (m *Model) LoadAdapter(dir string) (*Model, error) {
	dir, err := hub.Folder(dir)
	if err != nil {
		return nil, err
	}
	text, err := files.Read(os.DirFS(dir), adapterConfigFile, maxJSON)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot read %s: want an adapter's folder: %w", dir, adapterConfigFile, files.Cause(err))
	}
	l, err := m.Config.parseAdapterConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, adapterConfigFile), err)
	}
	file := filepath.Join(dir, adapterFile)
	f, err := openTensorFile(os.DirFS(dir), adapterFile, file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, whole := range textPrefixes {
		if m.Config.textPart {
			f = f.rename(adapterPrefix+whole, adapterPrefix+"model.")
		}
	}
	if l.Modules, err = m.Config.modulesOf(f); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	c, by := *m.Config, fmt.Sprintf("r %d in %s and the model", l.Rank, adapterConfigFile)
	c.LoRA = l
	out := &Model{Config: &c, Params: slices.Clone(m.Params[:c.Frozen()]), files: m.files}
	if l.Base = f.Meta[adapterBaseKey]; l.Base != "" && (m.HasWeights() || m.Known != "") {
		hash := m.Known // of weights that may have been released
		if own := m.Config.LoRA; own != nil && own.Base != "" {
			hash = own.Base
		} else if hash == "" {
			if hash, err = out.Hash(); err != nil {
				return nil, err
			}
		}
		if hash != l.Base {
			return nil, fmt.Errorf("%s: the adapter was trained on other weights than the model's: their SHA-256 "+
				"begins with %.8s, the model's with %.8s", file, l.Base, hash)
		}
	}
	all := &Stored{label: file, files: []*tensorFile{f.rename(adapterPrefix, "")}}
	for _, s := range c.ParamSpecs()[c.Frozen():] {
		p, err := all.param(s, by)
		if err == nil {
			err = p.fetch()
		}
		if err != nil {
			return nil, err
		}
		out.Params = append(out.Params, p)
	}
	return out, nil
}

// Scores says that the folder of an adapter, or an id of the hub that the cache has, is of a reward model.
func Scores(dir string) bool {
	dir, err := hub.Folder(dir)
	if err != nil {
		return false
	}
	f, err := openTensorFile(os.DirFS(dir), adapterFile, dir)
	if err != nil {
		return false // loading it says why
	}
	defer f.Close()
	_, has := f.Tensors[adapterPrefix+scoreName]
	return has
}

// rename is the file with another prefix of the tensors' names that begin with one.
func (t *tensorFile) rename(from, to string) *tensorFile {
	short := map[string]tensorInfo{}
	for name, info := range t.Tensors {
		if rest, has := strings.CutPrefix(name, from); has {
			name = to + rest
		}
		short[name] = info
	}
	out, header := *t, *t.tensorHeader
	header.Tensors, out.tensorHeader = short, &header
	return &out
}

// modulesOf lists the modules that a file has adapters for. It refuses tensors of anything else, and modules that lack
// some in a layer.
func (c *Config) modulesOf(f *tensorFile) (modules []string, err error) {
	all := *c
	all.LoRA = &LoRA{Rank: 1}
	for _, m := range c.linearModules() {
		all.LoRA.Modules = append(all.LoRA.Modules, m.Name)
	}
	known, found := map[string]string{}, map[string]bool{}
	for layer := range c.Layers {
		for i, s := range all.loraSpecs(layer) {
			known[adapterPrefix+s.Name] = all.LoRA.Modules[i/2]
		}
	}
	score := adapterPrefix + scoreName
	if _, has := f.Tensors[score]; has != all.trainsScore() {
		return nil, fmt.Errorf("%s: want an adapter of a reward model, which has it, for a reward model, and one of a "+
			"language model, which has not, for a language model", score)
	}
	for _, name := range f.namesByOffset() {
		if name == score {
			continue
		}
		if known[name] == "" {
			return nil, fmt.Errorf("tensor %s: want adapters of linear layers of attention and MLP alone: %s%s and "+
				"%[2]s%[4]s", name, adapterPrefix+"model.layers.N.MODULE", loraA, loraB)
		}
		found[known[name]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if _, there := f.Tensors[name]; found[known[name]] && !there {
			return nil, fmt.Errorf("tensor %s is missing: want A and B of a module in all %d layers", name, c.Layers)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("there is no adapter in it")
	}
	return slices.DeleteFunc(all.LoRA.Modules, func(m string) bool { return !found[m] }), nil
}

// quietKeys are the keys of adapter_config.json that do not change what an adapter computes once its tensors are there,
// or that parseAdapterConfig looks at. Any other key that is on changes it in a way that is not supported.
var quietKeys = []string{"peft_type", "task_type", "base_model_name_or_path", "r", "lora_alpha", "use_rslora",
	"target_modules", "exclude_modules", "lora_dropout", "inference_mode", "init_lora_weights", "revision", "bias",
	"auto_mapping", "peft_version", "qalora_group_size", "megatron_core", "layers_to_transform", "layers_pattern",
	"ensure_weight_tying", "eva_config", "runtime_config"}

// maxRank limits what a config can ask for.
const maxRank = 1 << 16

func (c *Config) parseAdapterConfig(text []byte) (*LoRA, error) {
	raw, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	f := &fields{values: raw}
	if kind := f.text("peft_type", ""); kind != "LORA" {
		f.fail("peft_type", fmt.Sprintf("%q", kind), "LORA")
	}
	l := &LoRA{Rank: f.requireWhole("r"), Alpha: f.float("lora_alpha", 8), RSLoRA: f.boolean("use_rslora", false),
		From: f.text("base_model_name_or_path", "")}
	if revision := f.text("revision", ""); revision != "" {
		l.From += "@" + revision
	}
	if l.Rank < 1 || l.Rank > maxRank {
		f.fail("r", fmt.Sprint(l.Rank), fmt.Sprintf("1 to %d", maxRank))
	}
	if bias := f.text("bias", "none"); bias != "none" {
		f.fail("bias", bias, "none: adapted biases are not supported")
	}
	if start, ok := raw["init_lora_weights"].(string); ok && !slices.Contains(quietStarts, start) {
		f.fail("init_lora_weights", start, "one of true, false, "+strings.Join(quietStarts, ", ")+
			": others change the model's own weights")
	}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		if key == "modules_to_save" && c.Reward && savesScore(raw[key]) {
			continue
		}
		if !slices.Contains(quietKeys, key) && isOn(raw[key]) {
			f.fail(key, show(raw[key]), "nothing: it is not supported")
		}
	}
	return l, f.err
}

// scoreModule is the layer of a reward model's score.
const scoreModule = "score"

// savesScore says that a list of modules_to_save has a reward model's score alone; classifier is another name for it.
func savesScore(value any) bool {
	list, is := value.([]any)
	return is && !slices.ContainsFunc(list, func(v any) bool { return v != any(scoreModule) && v != any("classifier") })
}

// quietStarts are the ways to begin an adapter that leave the model's own weights alone.
var quietStarts = []string{"gaussian", "eva", "orthogonal"}

// isOn says that a JSON value is not null, false, 0 or empty.
func isOn(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case json.Number:
		x, _ := v.Float64()
		return x != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}
