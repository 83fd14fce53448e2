package grpo_test

import (
	"context"
	"fmt"
	"log"
	"strconv"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// digits is a tokenizer whose tokens are digits: the last one of their number.
type digits struct{}

func (digits) Decode(ids []int32, _ bool) (text string) {
	for _, id := range ids {
		text += strconv.Itoa(int(id) % 10)
	}
	return text
}

// sums are the tasks "a+b=" for a and b from 0 to 4.
func sums() (tasks []ask.Question) {
	for a := range 5 {
		for b := range 5 {
			tasks = append(tasks, ask.Question{
				Tokens: []int32{int32(20 + a), 31, int32(40 + b), 32},
				Prompt: data.Text{Plain: fmt.Sprintf("%d+%d=", a, b)}, Target: strconv.Itoa(a + b),
			})
		}
	}
	return tasks
}

// exact is a reward of one's own: 1 for the right answer, 0 for any other.
func exact(q *ask.Question, completion string) ask.Score {
	if completion == q.Target {
		return ask.Score{Value: 1}
	}
	return ask.Score{}
}

// learnSums trains a random model on the sums with a reward, and returns the mean reward of every step.
func learnSums(steps int) (rewards []float64, err error) {
	e, err := backend.Open("go")
	if err != nil {
		return nil, err
	}
	defer e.Close()
	config, err := testkit.Llama() // a tiny model; model.Load opens a folder
	if err != nil {
		return nil, err
	}
	learner, err := train.NewLearner(e, model.Init(config, 1), model.GraphOptions{})
	if err != nil {
		return nil, err
	}
	defer learner.Close()
	sampler := rollout.NewCached(e, config, learner.Weights, rollout.Options{Decoder: digits{}})
	defer sampler.Close()

	source := &grpo.Rollouts{Options: grpo.DefaultOptions(), Tasks: sums(), Judge: ask.Rule(exact), Sampler: sampler,
		Sampling: rollout.Sampling{MaxNew: 1, Temperature: 1}}
	source.Options.Prompts, source.Options.GroupSize, source.Options.KL = 25, 16, grpo.None
	t := &train.Trainer{Learner: learner, Source: source, Options: train.Defaults(), Seed: 1}
	t.Options.MaxSteps, t.Options.LearningRate, t.Options.Schedule = steps, 2e-2, "constant"
	t.OnStep = func(_, _ int, values map[string]float64) { rewards = append(rewards, values["reward"]) }
	return rewards, t.Run(context.Background())
}

// A model learns sums from a reward of one's own. Nothing is written, since the trainer has no Folder.
func ExampleRollouts() {
	rewards, err := learnSums(20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the mean reward rose:", rewards[len(rewards)-1] > rewards[0]+0.2)
	// Output: the mean reward rose: true
}

// A minibatch of one's own: two answers to a prompt, the first better than the second.
func ExampleTrainer_Update() {
	e, err := backend.Open("go")
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	config, err := testkit.Llama()
	if err != nil {
		log.Fatal(err)
	}
	learner, err := train.NewLearner(e, model.Init(config, 1), model.GraphOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer learner.Close()

	g := grpo.Group{}
	g.Prompt, g.Answers = []int32{5, 6}, [][]int32{{7, 8}, {9}}
	g.Advantages, _ = grpo.Advantages([]float64{1, 0}, grpo.Sample)
	o := grpo.DefaultOptions()
	o.KL = grpo.None
	t := &grpo.Trainer{Learner: learner, Options: o}
	first, err := t.Measure([]grpo.Group{g}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := t.Update([]grpo.Group{g}, train.Defaults().AdamW(), 1e-2, train.NewMetrics()); err != nil {
		log.Fatal(err)
	}
	then, err := t.Measure([]grpo.Group{g}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the better answer became likelier:", then[0][0][0] > first[0][0][0])
	fmt.Println("the worse one less likely:", then[0][1][0] < first[0][1][0])
	// Output:
	// the better answer became likelier: true
	// the worse one less likely: true
}
