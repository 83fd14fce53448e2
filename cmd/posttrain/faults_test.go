package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/model"
)

// faultCase is one bad input and what the user must read.
type faultCase struct {
	name string
	make func(t *testing.T) // the bad files, in the working directory
	args []string
	code int
	says []string // each must stand in the message; one message holds all
	also [][]string
}

// writeConfig writes a config for the working directory's world, with lines before and in its train section.
func writeConfig(t *testing.T, head, train string) {
	t.Helper()
	write(t, "bad.yaml", head+"model: model\nbackend: go\ndata:\n  train: pairs.jsonl\ntrain:\n  max_steps: 2\n  "+
		"batch_size: 4\n"+train)
}

func withConfig(head, train string) func(t *testing.T) {
	return func(t *testing.T) { writeConfig(t, head, train) }
}

func withFile(name, text string) func(t *testing.T) {
	return func(t *testing.T) { write(t, name, text) }
}

// reweigh rewrites the model's weights.
func reweigh(t *testing.T, change func(tensors []model.Tensor) []model.Tensor) {
	t.Helper()
	path := filepath.Join("model", "model.safetensors")
	tensors, meta, err := model.ReadTensors(path)
	if err == nil {
		err = model.WriteTensors(path, change(tensors), meta)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tensor finds a tensor by name.
func tensor(tensors []model.Tensor, name string) *model.Tensor {
	i := slices.IndexFunc(tensors, func(x model.Tensor) bool { return x.Name == name })
	return &tensors[i]
}

const mappoHead = "command: mappo\n"

var fromConfig = []string{"mappo", "--config", "bad.yaml", "--out", "out"}

// faults is section 8 of what posttrain has to do, and a few more.
var faults = []faultCase{
	// configs
	{"unknown config key", withConfig(mappoHead, "  batchsize: 8\n"), fromConfig, 1,
		[]string{"bad.yaml:9", `unknown key "train.batchsize"`, "train.batch_size"}, nil},
	{"wrong type", withConfig(mappoHead, "  epochs: many\n"), fromConfig, 1,
		[]string{"bad.yaml:9", `train.epochs "many"`, "whole number, 1 or more"}, nil},
	{"loss misspelt", withConfig(mappoHead+"loss:\n  type: dop\n", ""), fromConfig, 1,
		[]string{"bad.yaml:3", `loss.type "dop"`, "dpo, ipo, simpo, cpo, hinge, robust, rpo, orpo or kto"}, nil},
	{"config for another command", withConfig("command: sft\n", ""), fromConfig, 1,
		[]string{"bad.yaml:1", "posttrain sft", "not mappo"}, nil},
	{"several faults", withConfig(mappoHead+"loss:\n  type: simpo\n  gama: 1\n", "  epochs: 0\n"), fromConfig, 1,
		[]string{"bad.yaml:4", "loss.gama", "loss.gamma"}, [][]string{{"bad.yaml:12", "train.epochs 0", "1 or more"}}},
	{"no YAML", withFile("bad.yaml", "command: [mappo\n"), fromConfig, 1, []string{"bad.yaml", "not YAML"}, nil},
	{"empty config", withFile("bad.yaml", ""), fromConfig, 1, []string{"bad.yaml", "empty", "command: mappo"}, nil},
	{"no config", nil, fromConfig, 1, []string{"bad.yaml: no such file"}, nil},
	{"no config to explain", nil, []string{"mappo", "--explain", "--config", "bad.yaml"}, 1,
		[]string{"bad.yaml: no such file"}, nil},
	{"plan what cannot be planned", withFile("bad.yaml", "command: serve\nmodel: embedded\n"), []string{"plan",
		"--config", "bad.yaml"}, 1, []string{"bad.yaml", "posttrain serve", "mappo, sft, reward-model, ci-rl or grpo"}, nil},
	{"plan online training", nil, []string{"plan", "--mode", "online", "--backend", "go"}, 1,
		[]string{"mode online", "offline"}, nil},
	{"explain a bad config", withConfig(mappoHead, "  epochs: 0\n"), []string{"mappo", "--explain", "--config", "bad.yaml"}, 1,
		[]string{"bad.yaml:9", "train.epochs 0"}, nil},

	// the command line
	{"option that does not apply", nil, tinyMappo(2, "--set", "loss.gamma=1"), 2,
		[]string{"--set", "loss.gamma 1", "dpo does not use it", "simpo"}, nil},
	{"flag of another command", nil, []string{"sft", "--prior", "none"}, 2,
		[]string{"--prior", "posttrain mappo", "posttrain sft"}, nil},
	{"unknown flag", nil, []string{"mappo", "--max-step", "3"}, 2,
		[]string{"--max-step: want --max-steps", "posttrain mappo --help"}, nil},
	{"flag of another tool", nil, []string{"sft", "--per_device_train_batch_size", "3"}, 2,
		[]string{"want --batch-size", "posttrain sft --help"}, nil},
	{"flag that the command lacks", nil, []string{"generate", "--output_dir", "x"}, 2, []string{"want --out "}, nil},
	{"--set without value", nil, tinyMappo(2, "--set", "seed"), 2,
		[]string{"--set seed", "key=value", "--set train.learning_rate=1e-6"}, nil},
	{"--set of an unknown key", nil, tinyMappo(2, "--set", "train.batchsize=3"), 2,
		[]string{"--set", "train.batchsize", "train.batch_size"}, nil},
	{"--set of a section", nil, tinyMappo(2, "--set", "loss=dpo"), 2,
		[]string{"--set", "loss is a section", "loss.type"}, nil},
	{"--set of a wrong type", nil, tinyMappo(2, "--set", "train.epochs=x"), 2,
		[]string{"--set", `train.epochs "x"`, "whole number"}, nil},
	{"bad flag value", nil, tinyMappo(2, "--seed", "-1"), 2, []string{"--seed", "-1", "0 or more"}, nil},
	{"two bad flags", nil, tinyMappo(2, "--loss", "dop", "--prior", "all"), 2, []string{"--loss", `"dop"`, "simpo"},
		[][]string{{"--prior", `"all"`, "mappo or none"}}},
	{"unknown backend", nil, tinyMappo(2, "--backend", "cuda"), 2, []string{"--backend", `"cuda"`, "xla:cuda"}, nil},
	{"unknown command", nil, []string{"zebra"}, 2, []string{`"zebra"`, "mappo", "plan"}, nil},
	{"misspelt command", nil, []string{"mapo", "--model", "x"}, 2, []string{`"mapo": want posttrain mappo`}, nil},
	{"command of another tool", nil, []string{"dpo", "--model", "x"}, 2, []string{`"dpo": want posttrain mappo --prior none`}, nil},
	{"merge", nil, []string{"merge", "--model", "x"}, 2, []string{"want posttrain model export --model DIR --adapter DIR --out NEW"}, nil},
	{"unknown argument", nil, []string{"mappo", "model"}, 2, []string{`"model"`, "flags only"}, nil},
	{"unknown help", nil, []string{"help", "mapo"}, 2, []string{`"posttrain mapo"`, "mappo"}, nil},
	{"unknown shell", nil, []string{"completion", "tcsh"}, 2,
		[]string{`"tcsh"`, "bash", "zsh", "fish", "powershell"}, nil},
	{"model info of nothing", nil, []string{"model", "info"}, 2, []string{"one model folder", "found 0"}, nil},
	{"model export of no adapter", nil, []string{"model", "export", "--model", "model"}, 2,
		[]string{"--model", "--adapter", "--out"}, nil},
	{"model export's type of a GGUF file", nil, []string{"model", "export", "--model", "model", "--out", "m.gguf", "--gguf",
		"f16", "--dtype", "float32"}, 2, []string{"--dtype has no effect with --gguf: remove it"}, nil},
	{"model export's answers of a merged model", nil, []string{"model", "export", "--model", "model", "--out", "m", "--adapter",
		"a", "--answers", "0"}, 2, []string{"--answers has no effect with --adapter: remove it"}, nil},
	{"model export's engine of a merged model", nil, []string{"model", "export", "--model", "model", "--out", "m", "--adapter",
		"a", "--backend", "go"}, 2, []string{"--backend has no effect with --adapter: remove it"}, nil},
	{"adapter that is not there", nil, tinyMappo(2, "--adapter", "nowhere"), 1,
		[]string{"nowhere", "adapter_config.json", "want an adapter's folder"}, nil},
	{"adapter and a new one", nil, tinyMappo(2, "--adapter", "a", "--lora-rank", "2"), 2,
		[]string{"--adapter", `adapter "a": lora.rank 2 makes a new adapter; remove one of the two`}, nil},
	{"adapter's option without a rank", nil, tinyMappo(2, "--set", "lora.alpha=3"), 2,
		[]string{"lora.alpha 3: without lora.rank there is no new adapter; remove it"}, nil},
	{"adapter's dropout", nil, tinyMappo(2, "--lora-rank", "2", "--set", "lora.dropout=0.05"), 2,
		[]string{"lora.dropout 0.05", "not supported: want 0"}, nil},
	{"targets that match nothing", nil, tinyMappo(2, "--lora-rank", "2", "--set", "lora.targets=[q_porj]"), 1,
		[]string{`lora.targets "q_porj" matches no module`, "want some of self_attn.q_proj, self_attn.k_proj"}, nil},
	{"few bits for weights that are trained", nil, tinyMappo(2, "--quantize", "nf4"), 2,
		[]string{"--quantize", `quantize "nf4": all weights are trained`, "want lora.rank or adapter beside it"}, nil},
	{"few bits on several devices", nil, tinyMappo(2, "--lora-rank", "2", "--quantize", "nf4", "--backend", "xla",
		"--set", "engine.devices=2"), 1, []string{"quantize nf4", "remove it or engine.devices"}, nil},
	{"unknown bits", nil, tinyMappo(2, "--lora-rank", "2", "--quantize", "int4"), 2,
		[]string{"--quantize", "int4", "none or nf4"}, nil},
	{"negative rank", nil, tinyMappo(2, "--lora-rank", "-2"), 2,
		[]string{"--lora-rank", "lora.rank -2", "0 (no adapter) or more"}, nil},
	{"model init without flags", nil, []string{"model", "init"}, 2, []string{"--like", "--out"}, nil},
	{"pairs of no answers", nil, []string{"data", "pairs", "--model", "model", "--answers", "0", "--out", "x.jsonl"}, 2,
		[]string{"--answers", "answers 0", "1 or more"}, nil},
	{"no probability", nil, []string{"data", "synth", "--leak", "2", "--out", "x.jsonl"}, 2,
		[]string{"--leak", "leak 2", "0 or more and at most 1"}, nil},
	{"cold temperature", nil, []string{"eval", "ci", "--model", "model", "--temperature", "-1"}, 2,
		[]string{"--temperature", "temperature -1", "0 (greedy) or more"}, nil},
	{"folder to write in is missing", nil, []string{"data", "synth", "--out", "no/x.jsonl"}, 2,
		[]string{"--out", "no/x.jsonl", "no folder no"}, nil},

	// engines
	{"xla is not there", func(t *testing.T) { t.Setenv("PJRT_PLUGIN_LIBRARY_PATH", t.TempDir()) },
		tinyMappo(2, "--backend", "xla"), 1,
		[]string{"backend xla: ", map[bool]string{true: "PJRT plugin", false: "not built in"}[backendtest.Cgo]}, nil},
	{"library is not there", nil, tinyMappo(2, "--backend", "onnx:no.so"), 1, []string{"backend onnx"}, nil},

	// models
	{"no model folder", nil, tinyMappo(2, "--model", "nowhere"), 1,
		[]string{"nowhere", "config.json", "there is no such folder"}, nil},
	{"unsupported model", func(t *testing.T) {
		write(t, "model/config.json", strings.Replace(read(t, "model/config.json"), `"qwen2"`, `"gpt2"`, 1))
	}, tinyMappo(2), 1, []string{"model/config.json", "model_type", `"gpt2"`, "qwen2", "mistral"}, nil},
	{"missing weights", func(t *testing.T) { remove(t, "model/model.safetensors") }, tinyMappo(2), 1,
		[]string{"model: no weights", "model.safetensors"}, nil},
	{"missing shard", func(t *testing.T) {
		copyModel(t, fixture("llama-older"), "sharded")
		remove(t, "sharded/model-00002-of-00003.safetensors")
	}, tinyMappo(2, "--model", "sharded"), 1,
		[]string{"sharded/model-00002-of-00003.safetensors", "no such file"}, nil},
	{"truncated weights", func(t *testing.T) {
		write(t, "model/model.safetensors", read(t, "model/model.safetensors")[:50_000])
	}, tinyMappo(2), 1, []string{"model/model.safetensors", "truncated"}, nil},
	{"weights that are no weights", withFile("model/model.safetensors", "<html>not found</html>"), tinyMappo(2), 1,
		[]string{"model/model.safetensors", "safetensors"}, nil},
	{"wrong shape", func(t *testing.T) {
		reweigh(t, func(all []model.Tensor) []model.Tensor {
			w := tensor(all, "model.layers.1.mlp.up_proj.weight")
			w.Shape = []int{w.Shape[1], w.Shape[0]}
			return all
		})
	}, tinyMappo(2), 1,
		[]string{"model/model.safetensors", "model.layers.1.mlp.up_proj.weight", "[32 48]", "[48 32]"}, nil},
	{"missing tensor", func(t *testing.T) {
		reweigh(t, func(all []model.Tensor) []model.Tensor {
			return slices.DeleteFunc(all, func(x model.Tensor) bool { return x.Name == "model.norm.weight" })
		})
	}, tinyMappo(2), 1, []string{"model/model.safetensors", "model.norm.weight", "missing"}, nil},
	{"weights that are NaN", func(t *testing.T) {
		reweigh(t, func(all []model.Tensor) []model.Tensor {
			tensor(all, "model.norm.weight").Floats[3] = float32(math.NaN())
			return all
		})
	}, tinyMappo(2), 1, []string{"model/model.safetensors", "model.norm.weight", "NaN", "element 3", "finite"}, nil},
	{"weights that are infinite, for few bits", func(t *testing.T) {
		reweigh(t, func(all []model.Tensor) []model.Tensor {
			tensor(all, "model.layers.1.mlp.up_proj.weight").Floats[7] = float32(math.Inf(-1))
			return all
		})
	}, tinyMappo(2, "--lora-rank", "2", "--quantize", "nf4"), 1, []string{"model/model.safetensors",
		"model.layers.1.mlp.up_proj.weight", "-Inf", "element 7", "finite"}, nil},
	{"tokenizer and model disagree", func(t *testing.T) {
		write(t, "model/tokenizer.json", read(t, filepath.Join(fixture("mistral-newer"), "tokenizer.json")))
	}, tinyMappo(2), 1, []string{"model/tokenizer.json", "ids go up to", "vocab_size", "304"}, nil},
	{"tokenizer and model disagree, in info", func(t *testing.T) {
		write(t, "model/tokenizer.json", read(t, filepath.Join(fixture("mistral-newer"), "tokenizer.json")))
	}, []string{"model", "info", "model"}, 1,
		[]string{"model/tokenizer.json", "ids go up to", "vocab_size", "304"}, nil},
	{"no tokenizer", func(t *testing.T) { remove(t, "model/tokenizer.json") }, tinyMappo(2), 1,
		[]string{"model/tokenizer.json", "no such file"}, nil},
	{"chat template missing", func(t *testing.T) { remove(t, "model/chat_template.jinja") }, tinyMappo(2), 1,
		[]string{"pairs.jsonl:1", "conversation", "model", "chat_template.jinja", "plain text"}, nil},
	{"broken chat template", withFile("model/chat_template.jinja", "{% for m in messages %}{{ m.content"),
		tinyMappo(2), 1,
		[]string{"pairs.jsonl:1", "model", "chat template"}, nil},
	{"no reference", nil, tinyMappo(2, "--reference", "nowhere"), 1, []string{"nowhere", "config.json"}, nil},
	{"reference of another vocabulary", nil, tinyMappo(2, "--reference", "/mistral-newer"), 1,
		[]string{"mistral-newer", "328", "304"}, nil},
	{"reference without use", nil, tinyMappo(2, "--loss", "simpo", "--reference", "model"), 2,
		[]string{"--reference", "simpo uses no reference"}, nil},
	{"bfloat16 on a CPU engine", nil, tinyMappo(2, "--set", "train.dtype=bfloat16"), 2,
		[]string{"train.dtype bfloat16", "backend go", "xla"}, nil},
	{"bfloat16 moments on a CPU engine", nil, tinyMappo(2, "--set", "train.moments=bfloat16"), 2,
		[]string{"train.moments bfloat16", "backend go", "only xla"}, nil},
	{"pairs beyond the model's positions", func(t *testing.T) {
		write(t, "model/config.json", strings.Replace(read(t, "model/config.json"), `"max_position_embeddings": 256`,
			`"max_position_embeddings": 8`, 1))
	}, tinyMappo(2, "--set", "data.max_tokens=0"), 1,
		[]string{"pairs.jsonl", "no row is left", "are too long", "the model takes 8 tokens"}, nil},
	{"random model over another", nil, []string{"model", "init", "--like", "model", "--out", "model"}, 1,
		[]string{"model: the folder is not empty"}, nil},
	{"random model like nothing", nil, []string{"model", "init", "--like", "nowhere", "--out", "x"}, 1,
		[]string{"nowhere", "no such file"}, nil},
	{"random model of no dtype", nil, []string{"model", "init", "--like", "model", "--out", "x", "--dtype", "int8"}, 2,
		[]string{"--dtype", `"int8"`, "float32, bfloat16 or float16"}, nil},
	{"random model of terabytes", withFile("big.json", `{"model_type": "llama", "vocab_size": 64,
		"hidden_size": 1048576,
		"intermediate_size": 1048576, "num_hidden_layers": 80, "num_attention_heads": 4096, "num_key_value_heads": 8,
		"max_position_embeddings": 128, "rms_norm_eps": 1e-6, "hidden_act": "silu"}`),
		[]string{"model", "init", "--like", "big.json", "--out", "x"}, 1,
		[]string{"big.json: its weights take", "GB of memory: want at most"}, nil},
	{"control characters in a file", withFile("bad.jsonl", `{"\u001b[31mred\n\u202e": 1}`),
		[]string{"data", "check", "bad.jsonl"}, 1,
		[]string{`bad.jsonl:1: found columns \x1b[31mred\n\u202e: want`}, nil},
	{"random model with no tokenizer", nil, []string{"model", "init", "--like", "model", "--out", "x", "--tokenizer",
		"nowhere"}, 1, []string{"nowhere: there is no such folder"}, nil},

	// data
	{"no data", nil, tinyMappo(2, "--data", "no.jsonl"), 1, []string{"no.jsonl: no such file"}, nil},
	{"unknown kind of file", withFile("pairs.txt", "a,b\n"), tinyMappo(2, "--data", "pairs.txt"), 1,
		[]string{"pairs.txt", `".txt"`, ".jsonl, .json, .parquet, .csv or .tsv"}, nil},
	{"empty file", withFile("pairs.jsonl", ""), tinyMappo(2), 1, []string{"pairs.jsonl", "empty"}, nil},
	{"bad JSON line", withFile("pairs.jsonl", pairLines(3, true)+`{"prompt": "a", "chosen": `+"\n"), tinyMappo(2), 1,
		[]string{"pairs.jsonl:4", "bad JSON", "not closed"}, nil},
	{"columns missing in a line", withFile("pairs.jsonl", pairLines(1, true)+`{"prompt": "a", "chosen": "b"}`+"\n"),
		tinyMappo(2), 1,
		[]string{"pairs.jsonl:2", "found columns chosen, prompt", "prompt, chosen, rejected"}, nil},
	{"parquet without the columns", func(t *testing.T) {
		rows := []struct{ Question, Answer string }{{"a", "b"}}
		if err := parquet.WriteFile("pairs.parquet", rows); err != nil {
			t.Fatal(err)
		}
	}, tinyMappo(2, "--data", "pairs.parquet"), 1, []string{"pairs.parquet: row 1", "found columns Answer, Question",
		"prompt, chosen, rejected"}, nil},
	{"parquet that is not parquet", withFile("pairs.parquet", "PAR1 and no more"),
		tinyMappo(2, "--data", "pairs.parquet"), 1,
		[]string{"pairs.parquet", "parquet"}, nil},
	{"all rows empty", withFile("pairs.jsonl", `{"prompt": "a", "chosen": "b", "rejected": "b"}`+"\n"), tinyMappo(2), 1,
		[]string{"pairs.jsonl", "all 1 rows dropped", "equal", "pairs.jsonl:1"}, nil},
	{"all rows too long", nil, tinyMappo(2, "--set", "data.max_tokens=5"), 1,
		[]string{"pairs.jsonl", "no row is left", "12 are too long", "data.max_tokens 5"}, nil},
	{"no scores with the prior on", withFile("pairs.jsonl", pairLines(2, true)+pairLines(5, false)), tinyMappo(2), 1,
		[]string{"pairs.jsonl:3, 4, 5 and 2 more", "5 of 7", "posttrain mappo --model model --data pairs.jsonl --prior none", "posttrain data score",
			"--score-columns", "--prior none"}, nil},
	{"no such score columns", nil, tinyMappo(2, "--score-columns", "a,b"), 1,
		[]string{"pairs.jsonl", "score columns a and b", "chosen_score"}, nil},
	{"nothing to hold out", withFile("pairs.jsonl", pairLines(1, true)), tiny("mappo", 2, "--data", "pairs.jsonl"), 1,
		[]string{"data.eval_fraction 0.1", "1 pairs", "at least one of each"}, nil},
	{"no held-out file", nil, tiny("mappo", 2, "--data", "pairs.jsonl", "--set", "data.eval_fraction=0", "--set",
		"data.eval=no.jsonl"), 1, []string{"no.jsonl: no such file"}, nil},
	{"demonstrations without the columns", nil, tiny("sft", 2, "--data", "pairs.jsonl"), 1,
		[]string{"pairs.jsonl:1", "found columns", "messages, or prompt and completion"}, nil},
	{"pairs of one answer", nil, []string{"data", "pairs", "--answers", "1", "--out", "x.jsonl"}, 2,
		[]string{"answers 1", "want 2 or more"}, nil},

	// run folders
	{"run folder exists", func(t *testing.T) { must(t, tinyMappo(1)...) }, tinyMappo(1), 1,
		[]string{"out exists", "--out", "--resume out"}, nil},
	{"folder in use", func(t *testing.T) {
		if err := os.Mkdir("out", 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, "out/thesis.tex", "")
	}, tinyMappo(1), 1, []string{"out", "not empty", "thesis.tex", "--out"}, nil},
	{"run folder is a file", withFile("out", ""), tinyMappo(1), 1, []string{"out", "not a directory"}, nil},
	{"resume with a changed config", func(t *testing.T) { must(t, tinyMappo(1)...) },
		[]string{"mappo", "--resume", "out", "--set", "train.learning_rate=0.5"}, 1,
		[]string{"--resume out", "train.learning_rate: 0.001, now 0.5", "--out"}, nil},
	{"resume by another command", func(t *testing.T) { must(t, tinyMappo(1)...) }, []string{"sft", "--resume", "out"},
		1, []string{"out/config.yaml:1", "posttrain mappo"}, nil},
	{"resume of no run", nil, []string{"mappo", "--resume", "model"}, 1,
		[]string{"--resume model", "config.yaml", "runs/mappo-"}, nil},
	{"resume of nothing", nil, []string{"mappo", "--resume", "nowhere"}, 1,
		[]string{"--resume nowhere", "config.yaml"}, nil},
	{"resume of an empty name", nil, []string{"mappo", "--resume", ""}, 2,
		[]string{"--resume is empty", "run folder"}, nil},
	{"run folder of an empty name", nil, tinyMappo(1, "--out", ""), 2, []string{"--out is empty", "folder"}, nil},
	{"resume elsewhere", nil, []string{"mappo", "--resume", "out", "--out", "other"}, 2,
		[]string{"--out other", "out", "remove one"}, nil},
	{"NaN loss", nil, tinyMappo(3, "--set", "train.learning_rate=1e30"), 1,
		[]string{"step 2", "NaN", "pairs.jsonl:", "train.learning_rate", "no good checkpoint"}, nil},
	{"NaN in evaluation", nil, tiny("mappo", 1, "--data", "pairs.jsonl", "--set", "train.learning_rate=1e30"), 1,
		[]string{"step 1", "evaluation loss is NaN", "pairs.jsonl:",
			"the best weights are out/checkpoints/best-00000000"}, nil},
}

// TestFaults: every bad input gives a line that names the file, the line or field, what was found and what is accepted;
// the exit code differs for faults of the command line; a command that never began to train leaves nothing behind.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			work(t, "qwen2-newer")
			if f.make != nil {
				f.make(t)
			}
			args := slices.Clone(f.args)
			for i, a := range args {
				if strings.HasPrefix(a, "/") { // a fixture
					args[i] = fixture(a[1:])
				}
			}
			before := tree(t)
			o := cli(t, args...)
			checkRefusal(t, o, f)
			if strings.Contains(f.name, "folder") || strings.Contains(f.name, "resume") {
				if strings.Count(o.err, "\n") != 1 {
					t.Errorf("something was done before the folder was looked at:\n%s", o.err)
				}
			}
			if after := tree(t); !strings.HasPrefix(f.name, "NaN") && !slices.Equal(before, after) {
				t.Errorf("left behind:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
			}
		})
	}
}

// TestLongMessages: a message that quotes a whole file keeps its beginning and its end.
func TestLongMessages(t *testing.T) {
	got := oneLine(fmt.Errorf("file: found %s\n, want less", strings.Repeat("x", 1<<20)))
	if !strings.HasPrefix(got, "file: found xxx") || !strings.HasSuffix(got, "xxx , want less") || len(got) > maxMessage+8 {
		t.Errorf("%d bytes: %.1200s", len(got), got)
	}
}

// refuseAll runs commands that must fail, each in a new folder that enter makes, where it must leave nothing behind.
func refuseAll(t *testing.T, enter func(t *testing.T), list []faultCase) {
	t.Helper()
	for _, f := range list {
		t.Run(f.name, func(t *testing.T) {
			enter(t)
			if f.make != nil {
				f.make(t)
			}
			before := tree(t)
			checkRefusal(t, cli(t, f.args...), f)
			if after := tree(t); !slices.Equal(before, after) {
				t.Errorf("left behind:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
			}
		})
	}
}

// checkRefusal holds a failed command against what it must say.
func checkRefusal(t *testing.T, o outcome, f faultCase) {
	t.Helper()
	var found []string
	for line := range strings.Lines(o.err) {
		if text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "posttrain: "); ok {
			found = append(found, text)
		}
	}
	t.Logf("exit code %d: %s", o.code, strings.Join(found, "\n"))
	if o.code != f.code {
		t.Errorf("exit code %d, want %d", o.code, f.code)
	}
	wanted := append([][]string{f.says}, f.also...)
	if len(found) != len(wanted) || !strings.HasSuffix(o.err, "posttrain: "+strings.Join(found, "\nposttrain: ")+"\n") {
		t.Fatalf("want %d lines of what is wrong, at the end of\n%s", len(wanted), o.err)
	}
	for i, parts := range wanted {
		for _, part := range parts {
			if !strings.Contains(found[i], part) {
				t.Errorf("%q lacks %q", found[i], part)
			}
		}
		checkWording(t, found[i])
	}
}

// noise is what no user should read.
var noise = []string{"panic", "goroutine", "internal error", "open ", "stat ", "lstat", "mkdir", "runtime error", "%!",
	"<nil>", "0x"}

func checkWording(t *testing.T, line string) {
	t.Helper()
	for _, n := range noise {
		if strings.Contains(line, n) {
			t.Errorf("%q has %q in it", line, n)
		}
	}
	if file, _, ok := strings.Cut(line, ": "); ok && strings.Contains(line, file+": "+file+":") {
		t.Errorf("%q names its file twice", line)
	}
	if len(line) > 450 {
		t.Errorf("%d characters are no line: %q", len(line), line)
	}
}

// panicky is a stream that panics.
type panicky struct{}

func (panicky) Write([]byte) (int, error) { panic("boom\nand more") }

// TestPanicBecomesALine: a panic never reaches the user as such.
func TestPanicBecomesALine(t *testing.T) {
	o := &watched{}
	code := execute(t.Context(), streams{in: strings.NewReader(""), out: panicky{}, err: o},
		[]string{"mappo", "--explain"})
	if got := o.String(); code != 1 || got != "posttrain: internal error, please report it: boom and more\n" {
		t.Errorf("exit code %d: %q", code, got)
	}
}
