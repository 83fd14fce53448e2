package recipe_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// score rewards an answer that contains the target, and among such answers the short ones.
func score(t *grpo.Task, answer string) grpo.Score {
	r := -0.01 * float64(len(strings.Fields(answer)))
	if strings.Contains(answer, t.Target) {
		r++
	}
	return grpo.Score{Reward: r}
}

// teach trains the model in folder on tasks with prompt and target. out/model is the trained model.
func teach(ctx context.Context, folder, out string, tasks []grpo.Task, o train.Options, g grpo.Options) error {
	job, err := recipe.NewJob(recipe.Setup{
		Title: "Short answers", Backend: "auto", Folder: folder, Train: o, Seed: 1, Place: recipe.Place{Out: out},
	}, run.NewReporter(os.Stderr, false, false))
	if err != nil {
		return err
	}
	defer job.Close()
	encoder := batch.Encoder{Tokenizer: job.Tokenizer} // with the model's chat template
	for i, t := range tasks {
		question := data.Text{Messages: []data.Message{{Role: "user", Content: t.Prompt}}}
		if tasks[i].Tokens, err = encoder.Prompt(question); err != nil {
			return err
		}
	}
	if err := job.Open(); err != nil { // makes the run folder; the engine gets the weights
		return err
	}
	sampling := rollout.Options{Graph: job.Graph, Decoder: job.Tokenizer}
	sampler := rollout.NewCached(job.Engine, job.Model.Config, job.Learner.Weights, sampling)
	defer sampler.Close()
	trainer := job.Trainer(&grpo.Rollouts{Options: g, Tasks: tasks, Score: score, Sampler: sampler,
		Sampling: rollout.Sampling{MaxNew: 64, Temperature: 1}})
	if err := job.Follow(ctx, trainer); err != nil {
		return err
	}
	_, err = job.Save(trainer)
	return err
}

// Example trains the embedded model for two steps. A folder's path in its place trains the model of that folder.
func Example() {
	out, err := os.MkdirTemp("", "teach")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(out)
	tasks := []grpo.Task{{Prompt: "What is 6 times 7?", Target: "42"}, {Prompt: "What is 6 times 8?", Target: "48"}}
	o, g := train.Defaults(), grpo.DefaultOptions()
	o.MaxSteps, o.LearningRate = 2, 1e-5
	g.Prompts, g.GroupSize, g.Updates, g.KL = 2, 4, 1, grpo.None // no KL: no reference model
	if err := teach(context.Background(), "embedded", filepath.Join(out, "run"), tasks, o, g); err != nil {
		log.Fatal(err)
	}
	m, err := model.Load(filepath.Join(out, "run", "model"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("trained a", m.Config.ModelType, "model")
	// Output: trained a qwen2 model
}
