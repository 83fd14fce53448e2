package model

import (
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// Info is what `model info` prints: a model's shape, its parameters by module, and how they are stored.
type Info struct {
	Config     *Config
	Parameters int          // elements of all tensors; tied tables count once
	Modules    []ModuleInfo // in the order of ParamSpecs
	Stored     []string     // dtypes of the weight files, such as "BF16"; nil: no files read
	Bytes      int64        // size of the tensors in the weight files
	Unread     []string     // names of tensors of the files that no one reads
}

// ModuleInfo is one kind of tensor. Tensors of the same name in all layers are one entry, with "*" for the layer.
type ModuleInfo struct {
	Name       string
	Shape      []int
	Count      int // tensors of this name
	Parameters int // elements of all of them
}

var expertNumber = regexp.MustCompile(`\.experts\.\d+\.`)

// Info counts a config's parameters.
func (c *Config) Info() *Info {
	info := &Info{Config: c}
	index := map[string]int{}
	for _, s := range c.ParamSpecs() {
		name := s.Name
		if rest, ok := strings.CutPrefix(name, "model.layers."); ok {
			_, inLayer, _ := strings.Cut(rest, ".")
			name = "model.layers.*." + expertNumber.ReplaceAllString(inLayer, ".experts.*.")
		}
		i, ok := index[name]
		if !ok {
			i = len(info.Modules)
			index[name] = i
			info.Modules = append(info.Modules, ModuleInfo{Name: name, Shape: s.Shape})
		}
		info.Modules[i].Count++
		info.Modules[i].Parameters += s.Size()
		info.Parameters += s.Size()
	}
	return info
}

// DescribeFS reads a model folder's config and the headers of its weight files, but no weights. Errors call the folder
// name.
func DescribeFS(fsys fs.FS, name string) (*Info, error) {
	c, s, err := openFolder(fsys, name)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	info := c.Info()
	info.Unread = s.unread
	seen := map[string]bool{}
	for _, spec := range c.ParamSpecs() {
		t := s.find(spec.Name).Tensors[spec.Name]
		if err := s.checkShape(spec.Name, spec.Shape, byConfig); err != nil {
			return nil, err
		}
		info.Bytes += t.Offsets[1] - t.Offsets[0]
		if !seen[t.DType] {
			seen[t.DType] = true
			info.Stored = append(info.Stored, t.DType)
		}
	}
	return info, nil
}

// Architecture describes the config in two lines.
func (i *Info) Architecture() string {
	c := i.Config
	s := fmt.Sprintf("%s: %d layers, hidden %d, mlp %d, %d heads (%d key/value) of %d, vocabulary %d, %d positions",
		c.ModelType, c.Layers, c.HiddenSize, c.IntermediateSize, c.Heads, c.KVHeads, c.HeadDim, c.VocabSize,
		c.MaxPositions)
	s += fmt.Sprintf("\nrope theta %g", c.RopeTheta)
	if r := c.RopeScaling; r != nil {
		s += fmt.Sprintf(" (%s, factor %g)", r.Type, r.Factor)
	}
	if c.Experts > 0 {
		s += fmt.Sprintf(", %d experts of %d, %d for a token", c.Experts, c.ExpertSize, c.ActiveExperts)
	}
	if c.SlidingWindow > 0 {
		s += fmt.Sprintf(", sliding window %d", c.SlidingWindow)
		if c.WindowLayers != nil {
			has := slices.DeleteFunc(slices.Clone(c.WindowLayers), func(has bool) bool { return !has })
			s += fmt.Sprintf(" in %d of %d layers", len(has), c.Layers)
		}
	}
	if c.Head != nil {
		return s + fmt.Sprintf(", head of %d scores that are weighed (%s)", c.Head.Aspects, c.Head.Class)
	}
	if c.Reward {
		return s + ", head of one score"
	}
	if c.TieEmbeddings {
		return s + ", head tied to the embedding"
	}
	return s + ", head of its own"
}

// Write prints the architecture and a table of the modules.
func (i *Info) Write(w io.Writer) error {
	fmt.Fprintln(w, i.Architecture())
	fmt.Fprintf(w, "%d parameters", i.Parameters)
	if len(i.Stored) > 0 {
		fmt.Fprintf(w, ", stored as %s in %d bytes", strings.Join(i.Stored, ", "), i.Bytes)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "tensor\tshape\tcount\tparameters")
	for _, m := range i.Modules {
		fmt.Fprintf(t, "%s\t%v\t%d\t%d\n", m.Name, m.Shape, m.Count, m.Parameters)
	}
	if err := t.Flush(); err != nil || len(i.Unread) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "not read: %d tensors: %s\n", len(i.Unread), strings.Join(i.Unread, ", "))
	return err
}
