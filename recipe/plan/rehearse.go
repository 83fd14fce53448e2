package plan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/endpoint"
	"github.com/posttrain/posttrain/recipe/sft"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

const (
	learnt   = 8    // rows that are learnt by heart
	examined = 1000 // rows whose tokens are examined
	drawn    = 64   // rows of which the shortest are learnt
	longest  = 512  // tokens of a row that is learnt, unless all are longer
	known    = 0.02 // the loss of rows that are known by heart after the last try
)

// tries are the lengths and rates of learning. The next one follows where the rows are not known by heart.
var tries = []struct {
	steps int
	rate  float64
}{{150, 7e-3}, {600, 3e-3}}

// choose draws rows and takes the shortest of them, with a prompt and an answer that no other one has.
func choose(rows []row, seed uint64) (some []row) {
	r := rand.New(rand.NewPCG(seed, 0x7265686561727365))
	rows = slices.Clone(rows)
	r.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	rows = rows[:min(len(rows), drawn)]
	slices.SortStableFunc(rows, func(a, b row) int { return a.tokens() - b.tokens() })
	for _, one := range rows {
		_, ok := one.answer()
		same := func(other row) bool { return slices.Equal(other.Prompt, one.Prompt) }
		fits := ok && !one.cut && !one.asksTools() && len(some) < learnt
		if fits && (one.bare() || !slices.ContainsFunc(some, same)) {
			some = append(some, one)
		}
	}
	for len(some) > 1 && some[len(some)-1].tokens() > longest {
		some = some[:len(some)-1]
	}
	return some
}

func (r row) tokens() int { return len(r.Prompt) + len(r.Answers[0]) }

// bare says that the row is text without a prompt.
func (r row) bare() bool { return r.demo.Prompt.Empty() && !r.demo.Completion.IsChat() }

func (r row) asksTools() bool {
	return slices.ContainsFunc(slices.Concat(r.demo.Prompt.Messages, r.demo.Completion.Messages),
		func(m data.Message) bool { return m.Tools+m.Whole != "" })
}

// rehearsal learns rows with a tiny model in a folder of its own.
type rehearsal struct {
	*examiner
	dir  string
	rows []row
}

func (h *rehearsal) path(name string) string { return filepath.Join(h.dir, name) }

// prepare writes the rows and the tiny model.
func (h *rehearsal) prepare() error {
	var demos []data.Demonstration
	for _, one := range h.rows {
		demos = append(demos, one.demo)
	}
	if err := data.WriteAll(h.path("rows.jsonl"), demos); err != nil {
		return err
	}
	if err := model.Init(h.config.Tiny(), h.Seed).Save(h.path("tiny"), "float32"); err != nil {
		return err
	}
	return h.tokenizer.CopyTo(h.path("tiny"))
}

// learn trains the tiny model as posttrain sft does, and gives its folder and its last loss.
func (h *rehearsal) learn(ctx context.Context, try int, r run.Reporter) (trained string, loss float64, err error) {
	o, n := sft.Defaults(), len(h.rows)
	o.Model, o.Chat, o.Backend, o.Seed = h.path("tiny"), h.Chat, h.Backend, h.Seed
	o.Dir.Out = h.path(fmt.Sprint("run-", try))
	o.Data.Train, o.Data.Options, o.Data.LossOn = []string{h.path("rows.jsonl")}, h.Limits, h.LossOn
	o.Train.BatchSize, o.Train.MicroBatchSize, o.Train.MaxSteps, o.Train.Epochs = n, n, tries[try].steps, 0
	o.Train.LearningRate, o.Train.Schedule, o.Train.WarmupSteps = tries[try].rate, "cosine", 10
	o.Train.CheckpointEvery, o.Train.CheckpointMinutes = 0, 0
	result, err := sft.Run(ctx, o, r)
	if err != nil {
		return "", 0, err
	}
	records, err := run.ReadMetrics(filepath.Join(result.Dir, "metrics.jsonl"))
	if err != nil || len(records) == 0 {
		return "", 0, err
	}
	return filepath.Join(result.Dir, run.ModelName), records[len(records)-1].Values["loss"], nil
}

// ask has the rows' prompts answered by the trained model: conversations by a server, plain text by the sampler.
func (h *rehearsal) ask(ctx context.Context, folder string) ([]rollout.Answer, error) {
	if h.rows[0].demo.Completion.IsChat() {
		return h.askServer(ctx, folder)
	}
	m, err := local.OpenWith(local.Options{Backend: h.Backend, Model: folder, Chat: h.Chat})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var requests []rollout.Request
	for _, r := range h.rows {
		prompt, _ := r.split(m.Tokenizer.Decode)
		requests = append(requests, rollout.Request{Prompt: prompt, Sampling: h.sampling()})
	}
	completions, err := m.Sampler.Sample(ctx, requests)
	var all []rollout.Answer
	for _, c := range completions {
		all = append(all, rollout.Answer{Text: m.Tokenizer.Decode(withoutStop(c), true), Reason: c.Reason})
	}
	return all, err
}

func withoutStop(c rollout.Completion) []int32 {
	if c.Reason == rollout.EOS {
		return c.Tokens[:len(c.Tokens)-1]
	}
	return c.Tokens
}

// sampling gives greedy answers with some more room than the longest row needs.
func (h *rehearsal) sampling() rollout.Sampling {
	most := 0
	for _, r := range h.rows {
		most = max(most, len(r.Answers[0]))
	}
	return rollout.Sampling{MaxNew: most + 8, TopP: 1}
}

// split gives a row's prompt in tokens and its answer in words. A text without a prompt is asked for from its first
// third on.
func (r row) split(decode func([]int32, bool) string) (prompt []int32, answer string) {
	if !r.bare() {
		answer, _ = r.answer()
		if len(r.Prompt) > 1 {
			return r.Prompt, answer
		}
	}
	ids := slices.Concat(r.Prompt, r.Answers[0])
	at := max(1, len(ids)/3)
	return ids[:at], strings.TrimSpace(decode(ids[at:], true))
}

// askServer serves the model as posttrain serve does, on a free port of this machine.
func (h *rehearsal) askServer(ctx context.Context, folder string) ([]rollout.Answer, error) {
	ctx, stop := context.WithCancel(ctx)
	o := endpoint.Defaults()
	o.Model, o.Chat, o.Backend, o.Addr, o.Quiet, o.Name = folder, h.Chat, h.Backend, "127.0.0.1:0", true, "tiny"
	at, ended := make(chan string, 1), make(chan error, 1)
	o.Ready = func(_, url string) { at <- url }
	go func() { ended <- endpoint.Run(ctx, o, nil) }()
	defer func() { stop(); <-ended }()
	select {
	case err := <-ended:
		ended <- err
		return nil, err
	case url := <-at:
		return h.askAt(ctx, url, os.Getenv(endpoint.TokenVariable))
	}
}

func (h *rehearsal) askAt(ctx context.Context, url, token string) ([]rollout.Answer, error) {
	remote, err := rollout.NewRemote(rollout.RemoteOptions{BaseURL: url, Model: "tiny", Key: token})
	if err != nil {
		return nil, err
	}
	var asked []rollout.Conversation
	for _, r := range h.rows {
		d := r.demo.Last()
		asked = append(asked, rollout.Conversation{Messages: d.Prompt.Messages, Sampling: h.sampling()})
	}
	answers, err := remote.Answer(ctx, asked)
	var first []rollout.Answer
	for _, a := range answers {
		first = append(first, a[0])
	}
	return first, err
}

// judge compares the answers with the rows'.
func (h *rehearsal) judge(answers []rollout.Answer) {
	for i, r := range h.rows {
		_, want := r.split(h.tokenizer.Decode)
		want, got := joinThoughts(want), joinThoughts(answers[i].Text)
		same := got == want || strings.HasSuffix(got, want) && emptyThought.MatchString(strings.TrimSuffix(got, want))
		switch {
		case answers[i].Reason != rollout.EOS && strings.Contains(got, want):
			h.add("the model that learnt the row by heart does not stop after the answer", fmt.Sprintf("%.60q goes on "+
				"as %.80q", want, got), r.demo.Source)
		case !same:
			h.add("the model that learnt the row by heart, saved, loaded and served, does not give the answer back",
				fmt.Sprintf("%.60q becomes %.60q", want, got), r.demo.Source)
		}
	}
}

// open reads what makes tokens, without the weights.
func open(p *recipe.Rehearsal) (*examiner, error) {
	m, t, err := local.LoadShapes(p.Model)
	if err != nil {
		return nil, err
	}
	if err := p.Chat.Apply(t); err != nil {
		return nil, err
	}
	return &examiner{Rehearsal: p, config: m.Config, tokenizer: t}, nil
}

// Rehearsal says what one found.
type Rehearsal struct {
	Examined int       `json:"examined"` // rows whose tokens were looked at
	Learnt   int       `json:"learnt"`   // rows that the tiny model learnt; 0 where the tokens already showed a fault
	Findings []Finding `json:"findings"`
}

// Rehearse tries a run. The error is about what could not be read or done; what is wrong with rows is a finding.
func Rehearse(ctx context.Context, p *recipe.Rehearsal, r run.Reporter) (*Rehearsal, error) {
	r = run.Listen(r)
	if p.Limits.Truncate == "" {
		p.Limits = batch.Defaults()
	}
	if len(p.Rows) == 0 {
		return nil, errors.New("the data have no answer that is to be learnt")
	}
	x, err := open(p)
	if err != nil {
		return nil, err
	}
	rows, err := x.encode(spread(p.Rows))
	if err != nil {
		return nil, err
	}
	for _, one := range rows {
		x.examine(one)
	}
	result := &Rehearsal{Examined: len(rows), Findings: x.findings}
	if len(x.findings) > 0 {
		return result, nil
	}
	h := &rehearsal{examiner: x, rows: choose(rows, p.Seed)}
	if len(h.rows) == 0 {
		return nil, errors.New("every row calls tools or is cut: want some with an answer in words to rehearse")
	}
	r.Say("the tokens of %s are right; a tiny model learns %d of them by heart", recipe.Count(len(rows), "row"),
		len(h.rows))
	result.Learnt = len(h.rows)
	err = h.perform(ctx, r)
	result.Findings = x.findings
	if errors.Is(err, recipe.ErrInterrupted) || err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: nothing was written", recipe.ErrInterrupted)
	}
	return result, err
}

// perform learns, asks and judges in a temporary folder.
func (h *rehearsal) perform(ctx context.Context, r run.Reporter) (err error) {
	if h.dir, err = os.MkdirTemp("", "posttrain-rehearsal-"); err != nil {
		return err
	}
	defer os.RemoveAll(h.dir)
	if err := h.prepare(); err != nil {
		return err
	}
	loss := 0.0
	for try := range tries {
		var trained string
		if trained, loss, err = h.learn(ctx, try, barAlone{r}); err != nil {
			return err
		}
		answers, err := h.ask(ctx, trained)
		if err != nil {
			return err
		}
		h.findings = nil
		if h.judge(answers); len(h.findings) == 0 || h.knows(try, loss) {
			return nil
		}
	}
	return fmt.Errorf("the tiny model did not learn %s by heart (loss %.3f), so that the rehearsal shows nothing: "+
		"give it rows with shorter answers", recipe.Count(len(h.rows), "row"), loss)
}

// knows reports whether a wrong answer is a fault, and not a row that the model does not know. Where the losses of all
// tokens add up to less than ln 2, each has more than half of the probability. After the last try a small mean is
// enough.
func (h *rehearsal) knows(try int, loss float64) bool {
	tokens := 0
	for _, r := range h.rows {
		tokens += len(r.Answers[0])
	}
	return loss*float64(tokens) < math.Ln2 || try == len(tries)-1 && loss < known
}

// barAlone hears of a run's progress only.
type barAlone struct{ run.Reporter }

func (barAlone) Say(string, ...any)  {}
func (barAlone) Warn(string, ...any) {}

// spread takes the rows that are examined, from all over the data.
func spread(rows []data.Demonstration) []data.Demonstration {
	n := min(len(rows), examined)
	some := make([]data.Demonstration, n)
	for i := range some {
		some[i] = rows[i*len(rows)/n]
	}
	return some
}

// Err is an error where faults were found; nil: none.
func (r *Rehearsal) Err() error {
	if len(r.Findings) == 0 {
		return nil
	}
	return fmt.Errorf("the rehearsal found %s, listed above", recipe.Count(len(r.Findings), "fault"))
}

// String is the result in words.
func (r *Rehearsal) String() string {
	if len(r.Findings) > 0 {
		text := ""
		for _, f := range r.Findings {
			text += "fault: " + f.String() + "\n"
		}
		return text
	}
	return fmt.Sprintf("The tokens of %s are right. A tiny model learnt %d by heart, was saved, loaded and served, "+
		"gave each answer back word by word and stopped.\n", recipe.Count(r.Examined, "row"), r.Learnt)
}
