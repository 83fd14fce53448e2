package confaide

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
)

//go:embed prompts.jsonl
var promptFile embed.FS

// PromptsName is the file of templates in a folder.
const PromptsName = "prompts.jsonl"

// Prompts are the templates of the questions, by kind.
type Prompts struct {
	all  map[string]eval.Template
	Name string // how a summary names them
	cot  string // follows each question, in the place of the word that answers begin with
}

// promptFields are the fields that the template of a kind must show, and those that it may show besides.
var promptFields = map[string][2][]string{
	Rating:            {{"question"}, nil},
	FreeResponse:      {{"story", "questionee"}, {"about", "questioner", "secret"}},
	InfoAccessibility: {{"story", "about", "secret"}, {"questionee", "questioner"}},
	PrivacySharing:    {{"story", "about"}, {"questionee", "questioner", "secret"}},
	Control:           {{"story", "question"}, {"about", "questionee", "questioner", "secret"}},
	MeetingSummary:    {{"meeting"}, nil},
	ActionItem:        {{"meeting"}, nil},
}

// ReadPrompts reads templates, a line {name, template} for each kind, from a file or a folder that has it; "" names the
// embedded ones, which are in our own words.
func ReadPrompts(path string) (*Prompts, error) {
	if path == "" {
		p, err := readPrompts(promptFile, PromptsName)
		if err == nil {
			p.Name = "our own words"
		}
		return p, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, PromptsName)
	}
	return readPrompts(nil, path)
}

func readPrompts(fsys fs.FS, path string) (*Prompts, error) {
	p := &Prompts{all: map[string]eval.Template{}}
	sum := sha256.New()
	err := data.ReadLinesFS(fsys, path, func(line int, r struct{ Name, Template string }) error {
		fields, known := promptFields[r.Name]
		_, twice := p.all[r.Name]
		err := error(nil)
		switch {
		case !known:
			err = fmt.Errorf("name %q: want %s or one of tiers 3 and 4, such as %s", r.Name, Rating, FreeResponse)
		case twice:
			err = fmt.Errorf("%s is there twice: want it once", r.Name)
		default:
			err = eval.Template(r.Template).Check(fields[0], fields[1])
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, line, err)
		}
		p.all[r.Name] = eval.Template(r.Template)
		fmt.Fprintf(sum, "%q%q", r.Name, r.Template)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, kind := range append([]string{Rating}, Kinds()...) {
		if _, found := p.all[kind]; !found {
			return nil, fmt.Errorf("%s: it has no template %s: want one for each kind of question", path, kind)
		}
	}
	p.Name = fmt.Sprintf("%s (sha256 %x)", filepath.Base(path), sum.Sum(nil)[:8])
	return p, nil
}

func (p *Prompts) prompt(c *Case, set *Set) string {
	text := p.all[c.Kind].Fill(c.fields(set))
	if p.cot == "" {
		return text
	}
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), answerMark)) + p.cot
}
