package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/tokenizer"
)

func newModel(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use: "model", Short: "Look at model folders, or make one with random weights",
		Example: "  posttrain model info DIR\n  posttrain model init --like DIR --out NEW",
	}, newModelInfo(s), newModelInit(s))
}

func newModelInfo(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "info DIR", Short: "Print a model's architecture, parameters, dtype and chat template",
		Example: "  posttrain model info embedded\n  posttrain model info models/Qwen2.5-0.5B-Instruct",
		Args:    oneArg("model folder"),
		RunE:    func(_ *cobra.Command, args []string) error { return modelInfo(s, args[0]) },
	}
}

// modelInfo describes a model folder. A tokenizer is no must here: weights alone are a model too.
func modelInfo(s streams, folder string) error {
	fsys, name, err := local.FS(folder)
	if err != nil {
		return err
	}
	info, err := model.DescribeFS(fsys, name)
	if err != nil {
		return err
	}
	if err := info.Write(s.out); err != nil {
		return err
	}
	if _, err := fs.Stat(fsys, "tokenizer.json"); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(s.out, "\ntokenizer: none (no tokenizer.json)")
		return nil
	}
	t, err := tokenizer.LoadFS(fsys, name)
	if err != nil {
		return err
	}
	fmt.Fprint(s.out, "\n"+describeTokenizer(t))
	return local.CheckVocabulary(name, t, info.Config)
}

// previewMessages are what a template is shown with.
var previewMessages = []tokenizer.Message{{Role: "user", Content: "What fits here?"}, {Role: "assistant", Content: "This does."}}

func describeTokenizer(t *tokenizer.Tokenizer) string {
	text := fmt.Sprintf("tokenizer: %d ids\n", t.Size())
	for _, w := range t.Warnings() {
		text += "warning: " + w + "\n"
	}
	if !t.HasTemplate() {
		return text + "chat template: none\n"
	}
	preview, err := t.Render(previewMessages, tokenizer.RenderOptions{})
	if err != nil {
		return text + fmt.Sprintf("chat template: %v\n", err)
	}
	return text + "chat template, a question and its answer:\n" + preview + "\n"
}

func newModelInit(s streams) *cobra.Command {
	var like, out, tokens, dtype string
	var seed uint64
	cmd := &cobra.Command{
		Use: "init", Short: "Make a model folder with random weights",
		Long:    "Make a model folder with random weights, for tests, benchmarks and training from scratch.",
		Example: "  posttrain model init --like models/Qwen2.5-0.5B/config.json --out /tmp/random --tokenizer models/Qwen2.5-0.5B",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if like == "" || out == "" {
				return usageError{errors.New("model init wants --like CONFIG and --out DIR")}
			}
			return initModel(s, like, out, tokens, dtype, seed)
		},
	}
	cmd.Flags().StringVar(&like, "like", "", "config.json, or a folder that has one")
	cmd.Flags().StringVar(&out, "out", "", "folder to make")
	cmd.Flags().StringVar(&tokens, "tokenizer", "", "model folder whose tokenizer to copy")
	cmd.Flags().StringVar(&dtype, "dtype", "float32", "float32, bfloat16 or float16")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of the weights")
	return cmd
}

// initModel makes the folder, with a tokenizer's files where one is named.
func initModel(s streams, like, out, tokens, dtype string, seed uint64) error {
	if dtypes := []string{"float32", "bfloat16", "float16"}; !slices.Contains(dtypes, dtype) {
		return usageError{fmt.Errorf("--dtype %q: want float32, bfloat16 or float16", dtype)}
	}
	c, err := model.ConfigLike(like)
	if err != nil {
		return err
	}
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("--out %s: the folder is not empty; name another", out)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	copyTokenizer := func(string) error { return nil }
	if tokens != "" {
		t, err := tokenizer.Load(tokens)
		if err == nil {
			err = local.CheckVocabulary(tokens, t, c)
		}
		if err != nil {
			return err
		}
		copyTokenizer = t.CopyTo
	}
	if err := model.Init(c, seed).Save(out, dtype); err != nil {
		return err
	}
	if err := copyTokenizer(out); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s: %s with %d parameters, random weights of seed %d\n", out, c.ModelType, c.ParamCount(), seed)
	return nil
}
