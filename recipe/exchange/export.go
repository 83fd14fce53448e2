package exchange

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/gguf"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// ExportOptions say which folder becomes which file.
type ExportOptions struct {
	Model string `yaml:"model" want:"@model" hub:"model"`
	Out   string `yaml:"out" want:"given" words:"a file to make, NAME.gguf"`
	GGUF  string `yaml:"gguf" want:"f32|f16|bf16|q8_0"` // type of the matrices

	// Of the proof.
	Backend string `yaml:"backend"`                // the engine that answers
	Answers int    `yaml:"answers" want:">=0 <=8"` // greedy answers
}

// DefaultExport are options that prove in a minute what a small model loses.
func DefaultExport() ExportOptions {
	return ExportOptions{Backend: "auto", Answers: len(questions)}
}

// fileTypes are general.file_type's numbers.
var fileTypes = map[gguf.Type]uint32{gguf.F32: 0, gguf.F16: 1, gguf.Q80: 7, gguf.BF16: 32}

// Export makes a GGUF file of a model folder, with NAME.proof.json and a model card, NAME.md, beside it, and says in
// words what they hold. A file that cannot be proved does not stay.
func Export(ctx context.Context, o ExportOptions, r run.Reporter) (string, error) {
	if faults := fault.Check(o); len(faults) > 0 {
		return "", faults[0]
	}
	if err := o.checkFiles(); err != nil {
		return "", err
	}
	m, t, err := local.Load(o.Model)
	if err != nil {
		return "", err
	}
	defer m.Release()
	x := &exporter{o: o, model: m, tokens: t, reader: model.NewReader(m.Largest()), Reporter: run.Listen(r)}
	if x.kind, err = gguf.ParseType(o.GGUF); err != nil {
		return "", err
	}
	if err := x.write(ctx); err != nil {
		return "", interrupted(ctx, err)
	}
	said, err := x.finish(ctx)
	if err != nil {
		for _, ending := range endings {
			os.Remove(o.beside(ending))
		}
		return "", interrupted(ctx, err)
	}
	return said, nil
}

// finish proves the file and describes it.
func (x *exporter) finish(ctx context.Context) (string, error) {
	proof, err := x.prove(ctx)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(x.o.Out)
	if err != nil {
		return "", err
	}
	said := fmt.Sprintf("%s: %s as %s, %d parameters in %.1f MB\n", x.o.Out, x.o.Model, x.kind,
		x.model.Config.ParamCount(), float64(info.Size())/1e6)
	if x.wider > 0 {
		said += fmt.Sprintf("%d matrices are f16: their rows are no multiple of %d numbers\n", x.wider, x.kind.Block())
	}
	said += proof.String()
	card := recipe.DeriveCard(x.o.Model, "gguf", "Exported by posttrain model export", said)
	return said, files.Replace(x.o.beside(cardEnding), []byte(card), 0o644)
}

// The files that an export makes are NAME with these endings.
const cardEnding, proofEnding = ".md", ".proof.json"

var endings = []string{".gguf", proofEnding, cardEnding}

// beside is the path of one of the files.
func (o ExportOptions) beside(ending string) string {
	return strings.TrimSuffix(o.Out, ".gguf") + ending
}

// checkFiles refuses to replace files.
func (o ExportOptions) checkFiles() error {
	if base := filepath.Base(o.Out); !strings.HasSuffix(base, ".gguf") || base == ".gguf" {
		return fault.Fault{Key: "out", Value: strconv.Quote(o.Out), Problem: "want a file to make, NAME.gguf"}
	}
	for _, ending := range endings {
		path := o.beside(ending)
		if _, err := os.Stat(path); err == nil {
			return fmt.Errorf("%s: it is there already; name another file", path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// exporter writes a folder's weights under the names of a file.
type exporter struct {
	run.Reporter
	o      ExportOptions
	kind   gguf.Type
	model  *model.Model
	tokens *tokenizer.Tokenizer
	reader *model.Reader
	wider  int // matrices whose rows are no whole blocks, which are f16
}

func (x *exporter) write(ctx context.Context) error {
	meta, err := x.meta()
	if err != nil {
		return fmt.Errorf("%s: %w", x.o.Model, err)
	}
	tensors := x.tensors()
	bar := x.Progress("tensor", 0, len(tensors))
	defer bar.Close()
	return gguf.Write(x.o.Out, meta, tensors, func(n int) error {
		bar.Step(n, nil)
		return ctx.Err()
	})
}

// meta are all keys of the file.
func (x *exporter) meta() ([]gguf.Entry, error) {
	c := x.model.Config
	config, err := configEntries(c)
	if err != nil {
		return nil, err
	}
	if c.SlidingWindow > 0 && c.MaxPositions > c.SlidingWindow && architectures[c.ModelType] != "phi3" && !gemma(c) {
		x.Warn("llama.cpp has no sliding window in a %s: texts of more than %d tokens will differ",
			architectures[c.ModelType], c.SlidingWindow)
	}
	if ids := endIDs(x.tokens, c); len(ids) > len(endKeys) {
		x.Warn("a GGUF file has keys for %d tokens that end a text: %v will not end one", len(endKeys),
			ids[len(endKeys):])
	}
	var out entries
	out.add("general.architecture", architectures[c.ModelType])
	out.add("general.type", "model")
	out.add("general.name", modelName(strings.TrimSuffix(filepath.Base(x.o.Out), ".gguf"), x.tokens))
	out.add("general.file_type", fileTypes[x.kind])
	out.add("general.quantization_version", uint32(2))
	tokens, err := tokenizerEntries(x.tokens, c)
	if err != nil {
		return nil, err
	}
	return append(append(out, config...), tokens...), nil
}

// tensors lists the file's tensors: matrices in the type that was asked for, vectors in float32, an expert behind the
// other in one.
func (x *exporter) tensors() (out []gguf.Source) {
	c, parts := x.model.Config, map[string][]*model.Param{}
	for _, p := range x.model.Params {
		at := placeOf(c, p.Name)
		parts[at.name] = append(parts[at.name], p)
		if at.expert > 0 {
			continue
		}
		t := gguf.Source{Name: at.name, Shape: p.Shape, Read: func() ([]float32, error) { return x.read(parts[at.name]) }}
		if at.expert == 0 {
			t.Shape = append([]int{c.Experts}, p.Shape...)
		}
		if len(p.Shape) > 1 && !strings.HasSuffix(at.name, "ffn_gate_inp.weight") { // routers are float32
			t.Type = x.kind
		}
		if p.Shape[len(p.Shape)-1]%t.Type.Block() != 0 {
			t.Type = gguf.F16
			x.wider++
		}
		out = append(out, t)
	}
	vector := func(name string, of []float32) {
		out = append(out, gguf.Source{Name: name, Shape: []int{len(of)}, Type: gguf.F32,
			Read: func() ([]float32, error) { return of, nil }})
	}
	switch s := c.RopeScaling; {
	case s == nil:
	case s.Type == "llama3":
		vector(ropeFactors, llamaFactors(c, s))
	case s.Type == "longrope":
		vector(longFactors, singles(s.Long))
		vector(shortFactors, singles(s.Short))
	}
	return out
}

func singles(of []float64) []float32 {
	out := make([]float32, len(of))
	for i, x := range of {
		out[i] = float32(x)
	}
	return out
}

// read gives the numbers of a tensor of the file, of which the folder has one or more.
func (x *exporter) read(parts []*model.Param) (all []float32, err error) {
	for _, p := range parts {
		w, err := x.reader.Read(p)
		if err != nil {
			return nil, err
		}
		if by := lift(x.model.Config, p); by != 0 {
			w = slices.Clone(w)
			for i := range w {
				w[i] += by
			}
		}
		if heads := permuted(x.model.Config, p.Name); heads > 0 {
			w = reorder(w, heads, p.Shape[0], true)
		}
		if len(parts) == 1 {
			return w, nil
		}
		all = append(all, w...)
	}
	return all, nil
}
