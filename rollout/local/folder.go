package local

import (
	"bytes"
	"fmt"
	"io"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/tokenizer"
)

// Describe prints a model folder: architecture, parameters, tokenizer and chat template. The folder needs no tokenizer.
func Describe(w io.Writer, folder string) error {
	fsys, name, err := FS(folder)
	if err != nil {
		return err
	}
	info, err := model.DescribeFS(fsys, name)
	if err != nil {
		return err
	}
	if err := info.Write(w); err != nil {
		return err
	}
	if !tokenizer.Exists(fsys) {
		_, err := fmt.Fprintln(w, "\ntokenizer: none (no tokenizer.json)")
		return err
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(w, "\n"+describeTokenizer(t)); err != nil {
		return err
	}
	return CheckVocabulary(name, t, info.Config)
}

// PrintsDate says that the chat template of a model prints the date. It is false where the tokenizer cannot be read:
// loading the model says why.
func PrintsDate(folder string) bool {
	fsys, _, err := FS(folder)
	if err != nil {
		return false
	}
	for _, name := range []string{"chat_template.jinja", "tokenizer_config.json"} {
		text, err := files.Read(fsys, name, maxTemplateFile)
		if err == nil && bytes.Contains(text, []byte("strftime_now")) {
			return true
		}
	}
	return false
}

const maxTemplateFile = 64 << 20

// preview is the conversation that a chat template is shown with.
var preview = []tokenizer.Message{{Role: "user", Content: "What fits here?"},
	{Role: "assistant", Content: "This does."}}

func describeTokenizer(t *tokenizer.Tokenizer) string {
	text := fmt.Sprintf("tokenizer: %d ids\n", t.Size())
	for _, w := range t.Warnings() {
		text += "warning: " + w + "\n"
	}
	if !t.HasTemplate() {
		return text + "chat template: none\n"
	}
	shown, err := t.Render(preview, tokenizer.RenderOptions{})
	if err != nil {
		return text + fmt.Sprintf("chat template: %v\n", err)
	}
	return text + "chat template, a question and its answer:\n" + shown + "\n"
}

// InitOptions say which folder Init makes.
type InitOptions struct {
	Like      string `yaml:"like" want:"given" hub:"tokenizer" words:"a config.json, or a folder that has one"`
	Out       string `yaml:"out" want:"given" words:"a folder to make"`
	Tokenizer string `yaml:"tokenizer" hub:"tokenizer"` // the model folder whose tokenizer is copied; "": none
	DType     string `yaml:"dtype" want:"float32|bfloat16|float16"`
	Seed      uint64 `yaml:"seed"`
}

// Init makes a model folder with random weights.
func Init(o InitOptions) (*model.Config, error) {
	if faults := fault.Check(o); len(faults) > 0 {
		return nil, faults[0]
	}
	like, err := hub.Folder(o.Like)
	if err != nil {
		return nil, err
	}
	c, err := model.ConfigLike(like)
	if err != nil {
		return nil, err
	}
	if need, most := c.WeightBytes(), float64(backend.HostMemory()); need > most {
		return nil, fmt.Errorf("%s: its weights take %.1f GB of memory: want at most the %.1f GB of this machine",
			o.Like, need/1e9, most/1e9)
	}
	if err := files.CheckNew(o.Out); err != nil {
		return nil, err
	}
	copyTokenizer := func(string) error { return nil }
	if o.Tokenizer != "" {
		fsys, name, err := FS(o.Tokenizer)
		if err != nil {
			return nil, err
		}
		t, err := tokenizer.LoadFS(fsys, name)
		if err == nil {
			err = CheckVocabulary(o.Tokenizer, t, c)
		}
		if err != nil {
			return nil, err
		}
		copyTokenizer = t.CopyTo
	}
	if err := model.Init(c, o.Seed).Save(o.Out, o.DType); err != nil {
		return nil, err
	}
	return c, copyTokenizer(o.Out)
}
