package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

// Proof compares a file, read as Import reads it, with the folder that it was made of. scripts/gguf/llama_cpp.py
// compares llama.cpp with it, too.
type Proof struct {
	Model   string        `json:"model"`
	File    string        `json:"file"`
	SHA256  string        `json:"sha256"` // of the file
	Type    string        `json:"type"`
	Weights Change        `json:"weights"`
	Texts   []ProofText   `json:"texts"`
	Answers []ProofAnswer `json:"answers"`
	Logps   Change        `json:"logps"` // of the tokens that both wrote
}

// Change is how far the file's numbers are from the folder's.
type Change struct {
	Count   int     `json:"count"`
	Largest float64 `json:"largest"` // absolute
	Mean    float64 `json:"mean"`    // of the absolute values
	Squares float64 `json:"root_mean_square"`
	Norm    float64 `json:"root_mean_square_of_the_folder"`
}

func (c *Change) add(of, from float64) {
	by := math.Abs(of - from)
	c.Count++
	c.Largest, c.Mean = max(c.Largest, by), c.Mean+by
	c.Squares, c.Norm = c.Squares+by*by, c.Norm+from*from
}

// finish makes means of the sums.
func (c *Change) finish() {
	if n := float64(c.Count); n > 0 {
		c.Mean, c.Squares, c.Norm = c.Mean/n, math.Sqrt(c.Squares/n), math.Sqrt(c.Norm/n)
	}
}

// ProofText is a text with its tokens under both tokenizers.
type ProofText struct {
	Text     string  `json:"text"`
	Question string  `json:"question,omitempty"` // of a user, that was rendered to the text; "": it is plain
	IDs      []int32 `json:"ids"`                // of the folder; a plain text has BOS if the model wants it
	Equal    bool    `json:"equal"`
}

// ProofAnswer is the greedy answer to a text.
type ProofAnswer struct {
	Prompt []int32   `json:"prompt"`
	Tokens []int32   `json:"tokens"` // of the folder
	Logps  []float32 `json:"logps"`
	Text   string    `json:"text"`
	Same   int       `json:"same"` // tokens from the beginning on that the file has, too
	Whole  bool      `json:"whole"`
}

// prove compares the file with the folder, and writes NAME.proof.json.
func (x *exporter) prove(ctx context.Context) (*Proof, error) {
	work, err := os.MkdirTemp(filepath.Dir(x.o.Out), ".proof-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	folder := filepath.Join(work, "model")
	x.Say("the proof: the file is read back")
	if _, err := Import(ctx, ImportOptions{File: x.o.Out, Out: folder, DType: "float32"}, nil); err != nil {
		return nil, err
	}
	p := &Proof{Model: x.o.Model, File: filepath.Base(x.o.Out), Type: x.o.GGUF}
	m, t, err := local.Load(folder)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	if p.SHA256, err = files.SHA256(x.o.Out); err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		func() error { return p.compareWeights(m, x.model) },
		func() error { return p.compareTokens(t, x.tokens) },
		func() error { return x.compareAnswers(ctx, p, folder) },
	} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := step(); err != nil {
			return nil, err
		}
	}
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return nil, err
	}
	return p, files.Replace(x.o.beside(proofEnding), append(text, '\n'), 0o644)
}

func (p *Proof) compareWeights(file, folder *model.Model) error {
	a, b := model.NewReader(file.Largest()), model.NewReader(folder.Largest())
	for i := range folder.Params {
		x, err := a.Read(file.Params[i])
		y, err2 := b.Read(folder.Params[i])
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		for j := range y {
			p.Weights.add(float64(x[j]), float64(y[j]))
		}
	}
	p.Weights.finish()
	return nil
}

// plainTexts have what tokenizers trip over: digits, blanks, line ends, contractions, other scripts, emoji.
var plainTexts = []string{
	"Hello, world!", "It's 12,345.67 now; they'll've gone.", "  two blanks,\tand a tab\n\nand lines\r\n", "été à Köln",
	"今日は晴れです。", "Привет, мир", "🙂🙃 ok", "a_b(c[d]) == {e: 'f'} // g", "1234567890", "UPPER lower MiXeD",
}

// questions are conversations that are rendered where the model has a template.
var questions = []string{
	"What is the capital of France?", "Write one sentence about the sea.", "Count from one to five.",
	"Tell my dentist that I come at 9:30 on Friday.", "What is 12 + 30?", "Name three colours.",
	"Say hello in German.", "Why is the sky blue?",
}

// compareTokens refuses a file whose tokenizer reads conversations otherwise. Of plain texts it keeps what differs.
func (p *Proof) compareTokens(file, folder *tokenizer.Tokenizer) error {
	for _, q := range questions {
		text := ProofText{Text: q}
		if folder.HasTemplate() {
			turns := []tokenizer.Message{{Role: "user", Content: q}}
			o := tokenizer.RenderOptions{AddGenerationPrompt: true, Now: time.Date(2001, 2, 3, 0, 0, 0, 0, time.UTC)}
			a, err := folder.Render(turns, o)
			b, err2 := file.Render(turns, o)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			if text.Text, text.Question = a, q; a != b {
				return fmt.Errorf("the file's chat template renders %q, the folder's %q", b, a)
			}
		}
		if err := p.addText(text, file, folder); err != nil {
			return err
		}
	}
	for _, text := range plainTexts {
		if err := p.addText(ProofText{Text: text}, file, folder); err != nil {
			return err
		}
	}
	return nil
}

func (p *Proof) addText(text ProofText, file, folder *tokenizer.Tokenizer) error {
	plain := text.Question == ""
	a, err := folder.Encode(text.Text, plain)
	b, err2 := file.Encode(text.Text, plain)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	text.IDs, text.Equal = a, slices.Equal(a, b)
	if !plain && !text.Equal {
		return fmt.Errorf("the tokenizer cannot be written as a GGUF file has it: %q would be %v, not %v", text.Text,
			b, a)
	}
	p.Texts = append(p.Texts, text)
	return nil
}

// compareAnswers lets folder and file answer the questions greedily.
func (x *exporter) compareAnswers(ctx context.Context, p *Proof, folder string) error {
	if x.o.Answers == 0 {
		return nil
	}
	var requests []rollout.Request
	for _, text := range p.Texts[:min(x.o.Answers, len(questions))] {
		requests = append(requests, rollout.Request{Prompt: text.IDs, Sampling: rollout.Sampling{MaxNew: newTokens}})
	}
	x.Say("the proof: %d greedy answers of the folder, and of the file", len(requests))
	before, err := x.answers(ctx, x.o.Model, requests)
	if err != nil {
		return err
	}
	after, err := x.answers(ctx, folder, requests)
	if err != nil {
		return err
	}
	for i, a := range before {
		b := after[i]
		one := ProofAnswer{Prompt: requests[i].Prompt, Tokens: a.Tokens, Logps: a.Logps, Text: a.Text}
		for one.Same < min(len(a.Tokens), len(b.Tokens)) && a.Tokens[one.Same] == b.Tokens[one.Same] {
			p.Logps.add(float64(b.Logps[one.Same]), float64(a.Logps[one.Same]))
			one.Same++
		}
		one.Whole = slices.Equal(a.Tokens, b.Tokens)
		p.Answers = append(p.Answers, one)
	}
	p.Logps.finish()
	return nil
}

// newTokens is the most tokens of a greedy answer.
const newTokens = 32

func (x *exporter) answers(ctx context.Context, folder string, requests []rollout.Request) ([]rollout.Completion,
	error) {
	m, err := local.Open(x.o.Backend, folder)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.Sampler.Sample(ctx, requests)
}

// String says in words what was found.
func (p *Proof) String() string {
	var s strings.Builder
	equal := 0
	for _, t := range p.Texts {
		if t.Equal {
			equal++
		}
	}
	fmt.Fprintf(&s, "weights        differ by at most %.3g; root mean square %.3g of %.3g\n", p.Weights.Largest,
		p.Weights.Squares, p.Weights.Norm)
	fmt.Fprintf(&s, "token ids      equal in %d of %d texts\n", equal, len(p.Texts))
	if len(p.Answers) > 0 {
		whole, same, all := 0, 0, 0
		for _, a := range p.Answers {
			if same, all = same+a.Same, all+len(a.Tokens); a.Whole {
				whole++
			}
		}
		fmt.Fprintf(&s, "greedy answers %d of %d equal; %d of %d tokens before the first that differs\n", whole,
			len(p.Answers), same, all)
		fmt.Fprintf(&s, "log-probs      of these tokens differ by at most %.3g, on average %.3g\n", p.Logps.Largest,
			p.Logps.Mean)
	}
	return s.String()
}
