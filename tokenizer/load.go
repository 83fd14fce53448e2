package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/posttrain/posttrain/internal/files"
)

// fileNames are the files of a tokenizer. The first must be there.
var fileNames = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", templateFile}

const templateFile = "chat_template.jinja"

// templateFolder holds templates beside the template of templateFile, each under its name.
const templateFolder = "additional_chat_templates"

// Bounds of the files in bytes, and of what is in tokenizer.json: read, it takes many times its size. The largest have
// 40 MB with 262,144 tokens and 580,000 merges; the other files have up to 1.2 MB.
const (
	maxFile   = 64 << 20 // tokenizer.json
	maxOther  = 4 << 20  // another file
	maxPart   = 1 << 20  // bytes of a part but model and added_tokens
	maxVocab  = 1 << 20  // tokens
	maxMerges = 1 << 20
)

// Load reads the tokenizer of the model folder dir. Its errors name the file and the field.
func Load(dir string) (*Tokenizer, error) { return LoadFS(os.DirFS(dir), dir) }

// Exists says that there is a tokenizer in the root of fsys.
func Exists(fsys fs.FS) bool {
	_, err := fs.Stat(fsys, fileNames[0])
	return err == nil
}

// LoadFS reads a tokenizer from the root of fsys; error messages call it name.
func LoadFS(fsys fs.FS, name string) (*Tokenizer, error) {
	t := &Tokenizer{name: name}
	contents, err := t.readFiles(fsys)
	if err != nil {
		return nil, err
	}
	return t, t.read(contents)
}

// readFiles reads the files that are there.
func (t *Tokenizer) readFiles(fsys fs.FS) (map[string][]byte, error) {
	contents := map[string][]byte{}
	more, _ := fs.Glob(fsys, templateFolder+"/*.jinja") // the pattern is valid
	for i, f := range slices.Concat(fileNames, more) {
		most := int64(maxOther)
		if i == 0 {
			most = maxFile
		}
		data, err := files.Read(fsys, f, most)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, t.fault(f, err)
		}
		contents[f] = data
		t.files = append(t.files, file{f, data})
	}
	return contents, nil
}

// maxMessage bounds an error in bytes: it may quote the file.
const maxMessage = 1000

// fault names the file of an error. What the error quotes of the file loses its line ends and control characters.
func (t *Tokenizer) fault(file string, err error) error {
	text := err.Error()
	clean := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text[:min(len(text), maxMessage)])
	if clean != text {
		err = errors.New(clean)
	}
	return fmt.Errorf("%s: %w", path.Join(filepath.ToSlash(t.name), file), err)
}

func (t *Tokenizer) read(contents map[string][]byte) (err error) {
	defer t.catch(&err)
	if contents["tokenizer.json"] == nil {
		const fault = "no such file: want the tokenizer in this form (transformers' save_pretrained writes it)"
		return t.fault("tokenizer.json", errors.New(fault))
	}
	if err := t.readPipeline(contents["tokenizer.json"]); err != nil {
		return t.fault("tokenizer.json", err)
	}
	return t.configure(contents)
}

// CopyTo writes the tokenizer's files into dir, unchanged.
func (t *Tokenizer) CopyTo(dir string) error {
	for _, f := range t.files {
		if sub := path.Dir(f.name); sub != "." {
			if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s: %w", filepath.Join(dir, sub), files.Cause(err))
			}
		}
		if err := files.Replace(filepath.Join(dir, f.name), f.data, 0o644); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(dir, f.name), err)
		}
	}
	return nil
}

// readPipeline reads tokenizer.json, except its truncation and padding.
func (t *Tokenizer) readPipeline(data []byte) error {
	var spec struct {
		Version                    *string
		Added                      addedList `json:"added_tokens"`
		Normalizer, Decoder, Model json.RawMessage
		PreTokenizer               json.RawMessage `json:"pre_tokenizer"`
		PostProcessor              json.RawMessage `json:"post_processor"`
	}
	if err := unmarshal(data, "", &spec); err != nil {
		return err
	}
	if spec.Version != nil && *spec.Version != "1.0" {
		return fmt.Errorf(`version %q: want "1.0"`, *spec.Version)
	}
	var errs [5]error
	var longer, decoded growth
	t.normalize, errs[0] = normalizers(&longer).read(spec.Normalizer, "normalizer")
	t.model, errs[4] = readModel(spec.Model, "model")
	inBytes := errs[4] == nil && !t.model.byteFallback && endsInBytes(spec.PreTokenizer, maxSteps)
	t.split, errs[1] = splitters(inBytes, &longer).read(spec.PreTokenizer, "pre_tokenizer")
	t.post, errs[2] = postProcessors.read(spec.PostProcessor, "post_processor")
	t.decode, errs[3] = decoders(&decoded).read(spec.Decoder, "decoder")
	if err := cmp.Or(cmp.Or(errs[:]...), t.added.check(spec.Added, "added_tokens")); err != nil {
		return err
	}
	if inBytes {
		t.model.useBytes()
	}
	t.added.add(spec.Added, t.model, t.normalize)
	return nil
}

// vocabSpec and mergeList are counted before they are read, as addedList is.
type (
	vocabSpec map[string]int32
	mergeList []mergeSpec
)

func (v *vocabSpec) UnmarshalJSON(data []byte) error {
	if err := checkCommas("vocab", data, maxVocab); err != nil {
		return err
	}
	return json.Unmarshal(data, (*map[string]int32)(v))
}

func (l *mergeList) UnmarshalJSON(data []byte) error {
	if err := checkCommas("merges", data, 2*maxMerges); err != nil { // one between two, and one in each
		return err
	}
	return json.Unmarshal(data, (*[]mergeSpec)(l))
}

// mergeSpec is one merge: "a b" in older files, ["a", "b"] in newer ones.
type mergeSpec struct{ left, right string }

func (m *mergeSpec) UnmarshalJSON(data []byte) error {
	parts := []string{}
	if data[0] != '"' {
		if err := json.Unmarshal(data, &parts); err != nil {
			return err
		}
	} else {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		if strings.HasPrefix(s, "#version") {
			return nil
		}
		parts = strings.Split(s, " ")
	}
	if len(parts) != 2 {
		return fmt.Errorf(`merge %s: want "a b" or ["a", "b"]`, data)
	}
	m.left, m.right = parts[0], parts[1]
	return nil
}

type modelSpec struct {
	Type         *string
	Dropout      *float64
	Unk          *string `json:"unk_token"`
	Prefix       *string `json:"continuing_subword_prefix"`
	Suffix       *string `json:"end_of_word_suffix"`
	FuseUnk      bool    `json:"fuse_unk"`
	ByteFallback bool    `json:"byte_fallback"`
	IgnoreMerges bool    `json:"ignore_merges"`
	Vocab        vocabSpec
	Merges       mergeList
}

func readModel(raw json.RawMessage, at string) (*bpe, error) {
	if raw == nil {
		return nil, fmt.Errorf("%s: missing", at)
	}
	var kind struct{ Type *string }
	if err := unmarshal(raw, at, &kind); err != nil {
		return nil, err
	}
	// The type comes first, for other types have vocabularies of another form. Old files have no type.
	if kind.Type != nil && *kind.Type != "BPE" {
		return nil, fmt.Errorf("%s.type %q: want BPE", at, *kind.Type)
	}
	var spec modelSpec
	if err := unmarshal(raw, at, &spec); err != nil {
		return nil, err
	}
	if err := spec.check(at); err != nil {
		return nil, err
	}
	m := &bpe{
		vocab: spec.Vocab, tokens: make(map[int32]string, len(spec.Vocab)), top: -1,
		merges:  make(map[pair]merge, len(spec.Merges)),
		fuseUnk: spec.FuseUnk, byteFallback: spec.ByteFallback, ignoreMerges: spec.IgnoreMerges,
		chars: map[rune]int32{}, cache: wordCache{seed: maphash.MakeSeed()},
	}
	for token, id := range spec.Vocab {
		if other, taken := m.tokens[id]; taken || id < 0 {
			return nil, fmt.Errorf("%s.vocab: id %d of %q (and %q): want ids from 0 on, each once",
				at, id, min(token, other), max(token, other))
		}
		m.tokens[id], m.top = token, max(m.top, id)
		r, size := utf8.DecodeRuneInString(token)
		if size == len(token) && (size > 1 || r < utf8.RuneSelf) && size > 0 {
			m.chars[r] = id
		}
	}
	if spec.Unk != nil {
		if m.unk, m.hasUnk = m.vocab[*spec.Unk]; !m.hasUnk {
			return nil, fmt.Errorf("%s.unk_token %q: not in %s.vocab", at, *spec.Unk, at)
		}
	}
	return m, m.readMerges(spec.Merges, at)
}

// check refuses the options of BPE that this package does not have.
func (s *modelSpec) check(at string) error {
	switch {
	case len(s.Vocab) == 0:
		return fmt.Errorf("%s.vocab: missing or empty, want {token: id, ...}", at)
	case s.Dropout != nil && *s.Dropout != 0:
		return fmt.Errorf("%s.dropout %g: want 0 or null", at, *s.Dropout)
	case s.Prefix != nil && *s.Prefix != "":
		return fmt.Errorf("%s.continuing_subword_prefix %q: want none", at, *s.Prefix)
	case s.Suffix != nil && *s.Suffix != "":
		return fmt.Errorf("%s.end_of_word_suffix %q: want none", at, *s.Suffix)
	}
	return nil
}

func (m *bpe) readMerges(merges []mergeSpec, at string) error {
	rank := int32(0)
	_, m.cuts = m.vocab[mark]
	for i, spec := range merges {
		if spec == (mergeSpec{}) {
			continue
		}
		var ids [3]int32
		for j, token := range []string{spec.left, spec.right, spec.left + spec.right} {
			id, ok := m.vocab[token]
			if !ok {
				return fmt.Errorf("%s.merges[%d]: %q is not in %s.vocab", at, i, token, at)
			}
			ids[j] = id
		}
		m.merges[pairOf(ids[0], ids[1])] = merge{rank, ids[2]}
		m.cuts = m.cuts && !strings.Contains(strings.TrimLeft(m.tokens[ids[2]], mark), mark)
		rank++
	}
	return nil
}

// A stage reads one part of the pipeline by its type.
type stage[T any] struct {
	absent T                 // for a part that is absent or null
	list   string            // the key of a Sequence's steps
	join   func(steps []T) T // makes one of a Sequence's steps
	want   string            // the types, for a message
	types  map[string]reader[T]
}

type reader[T any] = func(raw json.RawMessage, at string) (T, error)

// always reads a part without options.
func always[T any](v T) reader[T] { return func(json.RawMessage, string) (T, error) { return v, nil } }

// maxSteps bounds the steps of a part; models have a handful.
const maxSteps = 64

func (s stage[T]) read(raw json.RawMessage, at string) (T, error) {
	left := maxSteps
	if len(raw) > maxPart {
		return s.absent, fmt.Errorf("%s: found %d bytes, want at most %d", at, len(raw), maxPart)
	}
	return s.readStep(raw, at, &left)
}

// readStep reads one of the steps that are left.
func (s stage[T]) readStep(raw json.RawMessage, at string, left *int) (T, error) {
	if *left--; *left < 0 {
		return s.absent, fmt.Errorf("%s: found more than %d steps, want at most %d", at, maxSteps, maxSteps)
	}
	kind, err := kindOf(raw, at)
	if err != nil || kind == "" {
		return s.absent, err
	}
	if kind == "Sequence" {
		steps, err := s.sequence(raw, at, left)
		return s.join(steps), err
	}
	if read := s.types[kind]; read != nil {
		return read(raw, at)
	}
	return s.absent, fmt.Errorf("%s.type %q: want %s", at, kind, s.want)
}

func (s stage[T]) sequence(raw json.RawMessage, at string, left *int) ([]T, error) {
	var spec map[string]json.RawMessage
	if err := unmarshal(raw, at, &spec); err != nil {
		return nil, err
	}
	var list []json.RawMessage
	at += "." + s.list
	if err := unmarshal(spec[s.list], at, &list); spec[s.list] != nil && err != nil {
		return nil, err
	}
	steps := make([]T, len(list))
	for i, r := range list {
		var err error
		if steps[i], err = s.readStep(r, fmt.Sprintf("%s[%d]", at, i), left); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// kindOf reads the type of a part of the pipeline; it is empty if the part is absent or null.
func kindOf(raw json.RawMessage, at string) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var spec struct{ Type string }
	err := unmarshal(raw, at, &spec)
	if err == nil && spec.Type == "" {
		err = fmt.Errorf("%s.type: missing", at)
	}
	return spec.Type, err
}

// unmarshal reads JSON. Its error names the field or the line the field, or the line, that is wrong.
func unmarshal(data []byte, at string, into any) error {
	err := json.Unmarshal(data, into)
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		field := strings.ToLower(wrongType.Field) // Go's name, if the field has no tag
		fault := fmt.Errorf("found %s, want %s", wrongType.Value, jsonKind(wrongType.Type.String()))
		if field = strings.Trim(at+"."+field, "."); field == "" {
			return fault
		}
		return fmt.Errorf("%s: %w", field, fault)
	case errors.As(err, &syntax):
		before := data[:min(int(syntax.Offset), len(data))]
		return fmt.Errorf("line %d: %w", 1+bytes.Count(before, []byte("\n")), err)
	case err != nil && at != "":
		return fmt.Errorf("%s: %w", at, err)
	}
	return err
}

// jsonKind names a Go type as JSON does.
func jsonKind(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "an array"
	case strings.HasPrefix(goType, "map["), strings.Contains(goType, "struct"), strings.HasPrefix(goType, "tokenizer."):
		return "an object"
	case strings.Contains(goType, "int") || strings.Contains(goType, "float"):
		return "a number in range"
	}
	return "a " + goType
}
