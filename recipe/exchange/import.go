package exchange

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/gguf"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// ImportOptions say which file becomes which folder.
type ImportOptions struct {
	File  string `yaml:"file" want:"given" words:"a GGUF file"`
	Out   string `yaml:"out" want:"given" words:"a folder to make"`
	DType string `yaml:"dtype" want:"auto|float32|bfloat16|float16"` // auto: the smallest that holds every number
}

// Import makes a model folder of a GGUF file, and says in words what it holds. The folder appears when it is whole.
func Import(ctx context.Context, o ImportOptions, r run.Reporter) (string, error) {
	if faults := fault.Check(o); len(faults) > 0 {
		return "", faults[0]
	}
	if err := files.CheckNew(o.Out); err != nil {
		return "", err
	}
	f, err := gguf.Open(o.File)
	if err != nil {
		return "", err
	}
	defer f.Close()
	in, err := newImporter(o, f)
	if err != nil {
		return "", err
	}
	err = files.MakeFolder(o.Out, func(dir string) error {
		if err := in.write(ctx, dir, run.Listen(r)); err != nil {
			return interrupted(ctx, err)
		}
		card := recipe.DeriveCard(o.File, "transformers", "Imported by posttrain model import",
			in.describe(filepath.Base(o.Out), filepath.Base(o.File)))
		return os.WriteFile(filepath.Join(dir, recipe.CardName), []byte(card), 0o644)
	})
	if err != nil {
		return "", err
	}
	return in.describe(o.Out, o.File), nil
}

// describe says what the folder holds.
func (in *importer) describe(folder, file string) string {
	c := in.model.Config
	return fmt.Sprintf("%s: %s with %d parameters as %s, %d tokens, from %s (tensors: %s)\n", folder, c.ModelType,
		c.ParamCount(), in.dtype, in.tokens, file, in.stored())
}

// interrupted is err, or where the context has ended that nothing is left.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: nothing was written", recipe.ErrInterrupted)
	}
	return err
}

// importer reads the weights of a file under the names of a folder.
type importer struct {
	file   *gguf.File
	path   string
	model  *model.Model // without weights
	dtype  string
	vocab  map[string][]byte // the tokenizer's files
	tokens int
	memory []float32
}

func newImporter(o ImportOptions, f *gguf.File) (*importer, error) {
	c, err := readConfig(f)
	if err != nil {
		return nil, named(o.File, err)
	}
	in := &importer{file: f, path: o.File, model: &model.Model{Config: c}, dtype: o.DType}
	used := map[string]bool{ropeFactors: true, "output.weight": true}
	if c.RopeScaling != nil && c.RopeScaling.Type == "longrope" {
		used[shortFactors], used[longFactors] = true, true
	}
	for _, s := range c.ParamSpecs() {
		in.model.Params = append(in.model.Params, &model.Param{Name: s.Name, Shape: s.Shape, NoDecay: s.NoDecay})
		t, name := in.find(s.Name)
		switch {
		case t == nil:
			return nil, fmt.Errorf("%s: tensor %s is missing (%s, %d layers)", o.File, name, c.ModelType, c.Layers)
		case !slices.Equal(t.Shape, s.Shape):
			return nil, fmt.Errorf("%s: tensor %s: found shape %v, want %v by the file's keys", o.File, name, t.Shape,
				s.Shape)
		}
		used[name] = true
	}
	for _, t := range f.Tensors {
		if !used[t.Name] {
			return nil, fmt.Errorf("%s: tensor %.80q: a %s model with these keys has no such tensor", o.File, t.Name,
				c.ModelType)
		}
	}
	if in.vocab, err = readTokenizer(f); err != nil {
		return nil, named(o.File, err)
	}
	in.memory = make([]float32, in.model.Largest())
	if in.dtype == "auto" {
		in.dtype, err = in.smallest()
	}
	return in, err
}

// named begins an error with the file's name, if it does not yet.
func named(path string, err error) error {
	if text := err.Error(); len(text) > len(path) && text[:len(path)] == path {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// find gives a tensor of the folder, and the name of the one in the file that has it.
func (in *importer) find(name string) (*gguf.Tensor, string) {
	at := placeOf(in.model.Config, name)
	if at.expert < 0 {
		return in.file.Find(at.name), at.name
	}
	if t := in.file.Find(at.alone); t != nil {
		return t, at.alone
	}
	all := in.file.Find(at.name)
	if all == nil || len(all.Shape) != 3 || all.Shape[0] != in.model.Config.Experts {
		return all, at.name
	}
	return all.Part(at.expert), at.name
}

// read gives the weights of parameter i. They are valid until the next call.
func (in *importer) read(i int) ([]float32, error) {
	p := in.model.Params[i]
	x := in.memory[:p.Size()]
	t, _ := in.find(p.Name)
	if err := in.file.Read(t, x); err != nil {
		return nil, err
	}
	if by := lift(in.model.Config, p); by != 0 {
		for j := range x {
			x[j] -= by
		}
	}
	if heads := permuted(in.model.Config, p.Name); heads > 0 {
		return reorder(x, heads, p.Shape[0], false), nil
	}
	return x, nil
}

// smallest is float16 or bfloat16 if all matrices are stored in it and it holds the other numbers exactly, else
// float32.
func (in *importer) smallest() (string, error) {
	stored := in.file.Find("token_embd.weight").Type
	dtype := map[gguf.Type]string{gguf.F16: "float16", gguf.BF16: "bfloat16"}[stored]
	if dtype == "" {
		return "float32", nil
	}
	for i, p := range in.model.Params {
		t, _ := in.find(p.Name)
		if t.Type == stored {
			continue
		}
		if len(p.Shape) > 1 {
			return "float32", nil
		}
		x, err := in.read(i)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(x, func(v float32) bool { return model.RoundTo(dtype, v) != v }) {
			return "float32", nil
		}
	}
	return dtype, nil
}

// write fills a folder.
func (in *importer) write(ctx context.Context, dir string, r run.Reporter) error {
	for name, text := range in.vocab {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	t, err := tokenizer.LoadFS(os.DirFS(dir), in.path)
	if err == nil {
		err = local.CheckVocabulary(in.path, t, in.model.Config)
	}
	if err != nil {
		return err
	}
	in.tokens = t.Size()
	done := 0
	bar := r.Progress("tensor", 0, 2*len(in.model.Params)) // each is read to be checked, and to be written
	defer bar.Close()
	err = model.Writer{}.SaveFrom(in.model, dir, in.dtype, func(i int) ([]float32, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		done++
		bar.Step(done, nil)
		return in.read(i)
	})
	if err != nil {
		return named(in.path, err)
	}
	return nil
}

// stored says how many tensors have each type.
func (in *importer) stored() (text string) {
	for _, of := range gguf.Readable {
		n := 0
		for _, t := range in.file.Tensors {
			if t.Type == of {
				n++
			}
		}
		if n > 0 && text != "" {
			text += ", "
		}
		if n > 0 {
			text += fmt.Sprintf("%d %s", n, of)
		}
	}
	return text
}
