package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/files"
)

const (
	weightsFile = "model.safetensors"
	indexEnd    = ".index.json" // behind the name of the file that is in shards
)

// Load reads a model folder: config.json, generation_config.json, and model.safetensors or its shards.
func Load(dir string) (*Model, error) { return LoadFS(os.DirFS(dir), dir) }

// LoadFS is Load from any file system, such as an embedded one. Errors call the folder name. Weights become float32; a
// weight that is not finite is an error.
func LoadFS(fsys fs.FS, name string) (*Model, error) {
	m, err := OpenFS(fsys, name)
	if err != nil {
		return nil, err
	}
	defer m.files.Close()
	for _, p := range m.Params {
		if err := p.fetch(); err != nil {
			return nil, err
		}
	}
	m.files = nil
	return m, nil
}

// Open is Load without the weights. They stay in their files, which are open until Release: [Param.Read] reads one
// tensor, and refuses weights that are not finite.
func Open(dir string) (*Model, error) { return OpenFS(os.DirFS(dir), dir) }

// OpenFS is Open from any file system.
func OpenFS(fsys fs.FS, name string) (*Model, error) {
	c, s, err := openFolder(fsys, name)
	if err != nil {
		return nil, err
	}
	m := &Model{Config: c, Unread: s.unread, files: s}
	for _, spec := range c.ParamSpecs() {
		p, err := s.param(spec, byConfig)
		if err != nil {
			s.Close()
			return nil, err
		}
		m.Params = append(m.Params, p)
	}
	return m, nil
}

// openFolder reads the config and opens the weights. The weights decide the dtype and whether the tables are tied.
func openFolder(fsys fs.FS, name string) (*Config, *Stored, error) {
	c, err := ReadConfig(fsys, name)
	if err != nil {
		return nil, nil, err
	}
	s, err := openShards(fsys, name)
	if err != nil {
		return nil, nil, err
	}
	if c.textPart {
		s.takeTextPart()
	}
	if f := s.find(embedName); f != nil {
		c.DType = configDTypes[f.Tensors[embedName].DType]
	}
	if err = s.tie(c); err == nil {
		err = s.checkNames(c)
	}
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return c, s, nil
}

// tie decides whether the head is the embedding's table. A head of its own that is stored is read, though the config says
// that they are tied, as transformers 5 does; without a head they are tied, unless the config says that they are not.
func (s *Stored) tie(c *Config) (err error) {
	switch embed, head := s.find(embedName), s.find(headName); {
	case c.Reward:
	case head != nil && embed != nil && c.TieEmbeddings:
		c.TieEmbeddings, err = sameTensor(embed, embedName, head, headName)
	case head == nil && c.Raw["tie_word_embeddings"] == false:
		return fmt.Errorf("%s: tensor %s is missing, though tie_word_embeddings is false in config.json: want the "+
			"tensor, or true", s.label, headName)
	case head == nil:
		c.TieEmbeddings = true
	}
	return err
}

// sameTensor compares the bytes of two tensors.
func sameTensor(f *tensorFile, name string, g *tensorFile, other string) (same bool, err error) {
	a, b := f.Tensors[name], g.Tensors[other]
	if a.DType != b.DType || !slices.Equal(a.Shape, b.Shape) {
		return false, nil
	}
	same = true
	theirs := make([]byte, 8*stretchSize)
	return same, f.read(name, make([]byte, 8*stretchSize), func(ours []byte, at int) error {
		theirs := theirs[:len(ours)]
		off := g.Start + b.Offsets[0] + int64(at)*int64(dtypeSizes[a.DType])
		if n, err := g.data.ReadAt(theirs, off); n < len(theirs) {
			return fmt.Errorf("%s: tensor %s: %w", g.label, other, files.Cause(err))
		}
		same = same && bytes.Equal(ours, theirs)
		return nil
	})
}

// Stored is an open safetensors file, or the shards of a model's.
type Stored struct {
	label  string // the folder, or the single file
	files  []*tensorFile
	unread []string // names of a model's tensors that no one reads
}

// Close closes the files.
func (s *Stored) Close() {
	if s == nil {
		return
	}
	for _, f := range s.files {
		f.Close()
	}
}

// find returns the file that holds a tensor, or nil.
func (s *Stored) find(tensor string) *tensorFile {
	for _, f := range s.files {
		if _, ok := f.Tensors[tensor]; ok {
			return f
		}
	}
	return nil
}

// takeTextPart drops the tensors of other parts, and shortens the names of the others.
func (s *Stored) takeTextPart() {
	for _, f := range s.files {
		part := map[string]tensorInfo{}
		for _, name := range f.namesByOffset() {
			if short := textName(name); short != "" {
				part[short] = f.Tensors[name]
			} else {
				s.unread = append(s.unread, name)
			}
		}
		header := *f.tensorHeader
		header.Tensors, f.tensorHeader = part, &header
	}
}

func openShards(fsys fs.FS, name string) (*Stored, error) {
	if _, err := fs.Stat(fsys, weightsFile); !errors.Is(err, fs.ErrNotExist) {
		s := &Stored{label: name + "/" + weightsFile}
		return s, s.open(fsys, name, []string{weightsFile})
	}
	shardOf, err := readIndex(fsys, name, weightsFile+indexEnd)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no weights: want %s or %[2]s%s", name, weightsFile, indexEnd)
	}
	if err != nil {
		return nil, err
	}
	s := &Stored{label: name}
	if err = s.open(fsys, name, slices.Compact(slices.Sorted(maps.Values(shardOf)))); err == nil {
		err = s.follow(shardOf, name)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// follow drops the tensors that the index has in another shard, as an overlay's shards leave them behind. One that two
// shards have and the index does not is an error.
func (s *Stored) follow(shardOf map[string]string, folder string) error {
	first, dropped := map[string]*tensorFile{}, []string(nil)
	for _, f := range s.files {
		for _, name := range f.namesByOffset() {
			shard, listed := shardOf[name]
			switch other := first[name]; {
			case listed && folder+"/"+shard != f.label:
				delete(f.Tensors, name)
				dropped = append(dropped, name)
				s.unread = append(s.unread, fmt.Sprintf("%s of %s (the index says %s)", name, path.Base(f.label), shard))
			case !listed && other != nil:
				return fmt.Errorf("tensor %s is in %s and in %s, and the index does not say which counts", name,
					other.label, f.label)
			default:
				first[name] = f
			}
		}
	}
	for _, name := range dropped {
		if first[name] == nil {
			return fmt.Errorf("%s/%s: tensor %s is missing, which the index says is there", folder, shardOf[name], name)
		}
	}
	return nil
}

// open opens files of a folder, all or none.
func (s *Stored) open(fsys fs.FS, folder string, names []string) error {
	for _, name := range names {
		f, err := openTensorFile(fsys, name, folder+"/"+name)
		if err != nil {
			s.Close()
			return err
		}
		s.files = append(s.files, f)
	}
	return nil
}

// readIndex reads which shard each tensor is in, by the index in a folder.
func readIndex(fsys fs.FS, folder, index string) (map[string]string, error) {
	data, err := files.Read(fsys, index, maxIndex)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", folder, index, files.Cause(err))
	}
	shardOf, err := parseIndex(data)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", folder, index, err)
	}
	return shardOf, nil
}

// parseIndex is the weight map of an index.
func parseIndex(data []byte) (map[string]string, error) {
	if n := bytes.Count(data, []byte(",")); n > maxIndexed {
		return nil, fmt.Errorf("found %d commas, want at most %d: a tensor has one", n, maxIndexed)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("not an index: %v", err)
	}
	for tensor, file := range index.WeightMap {
		if !fs.ValidPath(file) || strings.Contains(file, "/") {
			return nil, fmt.Errorf("weight_map: tensor %s: found %q, want a file of the same folder", tensor, file)
		}
	}
	if len(index.WeightMap) == 0 {
		return nil, errors.New("weight_map: found nothing, want tensor names and their files")
	}
	return index.WeightMap, nil
}

// checkNames reports a tensor that is missing or that the model does not have.
func (s *Stored) checkNames(c *Config) error {
	known := map[string]bool{headName: true} // a tied model may store its head again
	for _, spec := range c.ParamSpecs() {
		known[spec.Name] = true
		if s.find(spec.Name) == nil {
			return fmt.Errorf("%s: tensor %s is missing (%s, %d layers)", s.label, spec.Name, c.ModelType, c.Layers)
		}
	}
	for _, f := range s.files {
		for _, name := range f.namesByOffset() {
			if strings.HasSuffix(name, "rotary_emb.inv_freq") || name == headName && c.Reward {
				s.unread = append(s.unread, name)
			} else if !known[name] {
				return fmt.Errorf("%s: tensor %s: a %s model with this config has no such tensor", f.label, name,
					c.ModelType)
			}
		}
	}
	return nil
}

// checkShape compares a stored tensor's shape with what says its sizes.
func (s *Stored) checkShape(name string, shape []int, by string) error {
	f := s.find(name)
	if found := f.Tensors[name].Shape; !slices.Equal(found, shape) {
		return fmt.Errorf("%s: tensor %s: found shape %v, want %v by %s", f.label, name, found, shape, by)
	}
	return nil
}

const byConfig = "config.json"

// param is a tensor that stays in its file. Its shape must be spec's; by says where the sizes come from.
func (s *Stored) param(spec ParamSpec, by string) (*Param, error) {
	if err := s.checkShape(spec.Name, spec.Shape, by); err != nil {
		return nil, err
	}
	f := s.find(spec.Name)
	_, err := f.decoder(spec.Name)
	return &Param{Name: spec.Name, Shape: spec.Shape, NoDecay: spec.NoDecay, file: f}, err
}

// Save writes config.json, generation_config.json and model.safetensors, each atomically, and makes dir if needed. dtype is float32, bfloat16 or float16; "" is the dtype that the model was loaded from, or float32.
func (m *Model) Save(dir, dtype string) error { return Writer{}.Save(m, dir, dtype) }

// Save is [Model.Save].
func (w Writer) Save(m *Model, dir, dtype string) error {
	r := NewReader(m.Largest())
	return w.SaveFrom(m, dir, dtype, func(i int) ([]float32, error) { return r.Read(m.Params[i]) })
}

// SaveFrom is Save with the weights of parameter i from weights(i), which is asked twice for each, one after the other;
// they are used before the next are asked for.
func (w Writer) SaveFrom(m *Model, dir, dtype string, weights func(i int) ([]float32, error)) error {
	dtype = cmp.Or(dtype, m.Config.DType, "float32")
	stored, ok := fileDTypes[dtype]
	if !ok {
		return fmt.Errorf("dtype: found %q, want float32, bfloat16 or float16", dtype)
	}
	for i, p := range m.Params {
		x, err := weights(i)
		if err == nil {
			err = checkStorable(x, dtype)
		}
		if err != nil {
			return fmt.Errorf("tensor %s: %w", p.Name, err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%s: %w", dir, files.Cause(err))
	}
	if err := m.saveConfigs(dir, dtype); err != nil {
		return err
	}
	tensors := make([]Tensor, len(m.Params))
	for i, p := range m.Params {
		tensors[i] = Tensor{Name: p.Name, Shape: p.Shape, Read: func() ([]float32, error) { return weights(i) }}
	}
	return w.write(filepath.Join(dir, weightsFile), tensors, stored, map[string]string{"format": "pt"})
}

// largest are the largest values that round to a finite number of the dtype.
var largest = map[string]float64{"float32": math.MaxFloat32, "bfloat16": 0x1.fefffep127, "float16": 0x1.ffdffep15}

// checkStorable refuses weights that would not be finite in dtype, since Load would refuse them later.
func checkStorable(weights []float32, dtype string) error {
	limit := largest[dtype]
	for i, v := range weights {
		if x := math.Abs(float64(v)); !(x <= limit) {
			return fmt.Errorf("found %v at element %d, which is not finite in %s", v, i, dtype)
		}
	}
	return nil
}

func (m *Model) saveConfigs(dir, dtype string) error {
	config, err := m.Config.JSON(dtype)
	if err != nil {
		return err
	}
	type file struct {
		name string
		text []byte
	}
	all := []file{{"config.json", config}}
	if !m.Config.Reward { // which generates nothing
		generation, err := m.Config.GenerationJSON()
		if err != nil {
			return err
		}
		all = append(all, file{"generation_config.json", generation})
	}
	for _, f := range all {
		path := filepath.Join(dir, f.name)
		if err := files.Replace(path, f.text, 0o644); err != nil {
			return fmt.Errorf("%s: %w", path, files.Cause(err))
		}
	}
	return nil
}
