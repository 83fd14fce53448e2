package recipe_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// score rewards an answer that contains the target, and among such answers the short ones.
func score(q *ask.Question, answer string) ask.Score {
	r := -0.01 * float64(len(strings.Fields(answer)))
	if strings.Contains(answer, q.Target) {
		r++
	}
	return ask.Score{Value: r}
}

// teach trains the model in folder on questions with prompt and target. out/model is the trained model.
func teach(ctx context.Context, folder, out string, questions []ask.Question, o train.Options, g grpo.Options) error {
	base := recipe.Base{Model: folder, Train: o, Seed: 1, Dir: recipe.RunDir{Out: out}}
	r, err := recipe.Open(recipe.Config{Base: &base, Title: "Short answers"}, recipe.NewReporter(os.Stderr))
	if err != nil {
		return err
	}
	defer r.Close()
	for i, q := range questions { // with the model's chat template
		if questions[i].Tokens, err = r.Encode(q.Prompt); err != nil {
			return err
		}
	}
	if err := r.Start(); err != nil { // makes the run directory; the engine gets the weights
		return err
	}
	sampler := r.Sampler(0)
	defer sampler.Close()
	t, err := r.Trainer(&grpo.Rollouts{Options: g, Tasks: questions, Judge: ask.Rule(score), Sampler: sampler,
		Sampling: rollout.Sampling{MaxNew: 64, Temperature: 1}})
	if err != nil {
		return err
	}
	if err := r.Fit(ctx, t); err != nil {
		return err
	}
	_, err = r.Save(t)
	return err
}

// Example trains the embedded model for two steps. A folder's path in its place trains the model of that folder.
func Example() {
	out, err := os.MkdirTemp("", "teach")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(out)
	times := func(n, target string) ask.Question {
		text := "What is 6 times " + n + "?"
		return ask.Question{Prompt: data.Text{Messages: []data.Message{{Role: "user", Content: text}}}, Target: target}
	}
	questions := []ask.Question{times("7", "42"), times("8", "48")}
	o, g := train.Defaults(), grpo.DefaultOptions()
	o.MaxSteps, o.LearningRate = 2, 1e-5
	g.Prompts, g.GroupSize, g.Updates, g.KL = 2, 4, 1, grpo.None // no KL: no reference model
	if err := teach(context.Background(), "embedded", filepath.Join(out, "run"), questions, o, g); err != nil {
		log.Fatal(err)
	}
	m, err := model.Load(filepath.Join(out, "run", "model"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("trained a", m.Config.ModelType, "model")
	// Output: trained a qwen2 model
}
