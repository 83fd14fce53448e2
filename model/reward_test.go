package model

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// rewardFolder writes a fixture of testdata/reward (scripts/oracle/rewards.py) as a model folder.
func rewardFolder(t *testing.T, kind string) (dir string, head []float32) {
	t.Helper()
	var f struct {
		Model  string          `json:"model"`
		Config json.RawMessage `json:"config"`
		Score  []float32       `json:"score"`
		// of heads of several rows
		Tensors map[string]struct {
			Shape []int
			Data  []float32
		}
	}
	expect.Decode(t, filepath.Join("testdata", "reward", kind+".json"), &f)
	tensors, _, err := ReadTensors(filepath.Join("testdata", f.Model, weightsFile))
	expect.OK(t, err)
	tensors = slices.DeleteFunc(tensors, func(x Tensor) bool { return x.Name == headName })
	if f.Score != nil {
		tensors = append(tensors, Tensor{Name: scoreName, Shape: []int{1, len(f.Score)}, Floats: f.Score})
	}
	for name, x := range f.Tensors {
		tensors = append(tensors, Tensor{Name: name, Shape: x.Shape, Floats: x.Data})
	}
	dir = t.TempDir()
	expect.Write(t, filepath.Join(dir, "config.json"), f.Config)
	expect.OK(t, WriteTensors(filepath.Join(dir, weightsFile), tensors, nil))
	return dir, f.Score
}

// TestRewardModelsOfTransformers: they load, and what is saved of them loads to the same, under transformers' names.
func TestRewardModelsOfTransformers(t *testing.T) {
	for kind, class := range map[string]string{"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2",
		"qwen3": "Qwen3", "gemma": "Gemma"} {
		dir, head := rewardFolder(t, kind)
		m := load(t, dir)
		last := m.Params[m.HeadTable()]
		if !m.Config.Reward || last.Name != scoreName || !slices.Equal(last.Data, head) {
			t.Fatalf("%s: reward %v, head %s", kind, m.Config.Reward, last.Name)
		}
		again := t.TempDir()
		expect.OK(t, m.Save(again, ""))
		n := load(t, again)
		if !reflect.DeepEqual(n.Params, m.Params) || !reflect.DeepEqual(n.Config.Pad, m.Config.Pad) {
			t.Errorf("%s: what was saved loads to another model", kind)
		}
		text := expect.Bytes(t, filepath.Join(again, "config.json"))
		var c struct {
			Architectures []string
			ID2Label      map[string]string
		}
		if err := json.Unmarshal(text, &c); err != nil || len(c.ID2Label) != 1 ||
			!slices.Equal(c.Architectures, []string{class + "ForSequenceClassification"}) {
			t.Errorf("%s: %v, %+v", kind, err, c)
		}
		if _, err := os.Stat(filepath.Join(again, "generation_config.json")); err == nil {
			t.Errorf("%s: a reward model has a generation_config.json", kind)
		}
	}
}

// TestScoreHeads: the published heads of several rows load, and what is saved of them loads to the same.
func TestScoreHeads(t *testing.T) {
	for kind, want := range map[string]string{"armo": ", head of 3 scores that are weighed (" + armoClass + ")",
		"urm": ", head of 3 scores that are weighed (" + urmClass + ")"} {
		dir, _ := rewardFolder(t, kind)
		m, again := load(t, dir), t.TempDir()
		expect.OK(t, m.Save(again, ""))
		n := load(t, again)
		if !reflect.DeepEqual(n.Params, m.Params) || n.Config.DiffersFrom(m.Config) != "" ||
			n.Config.Class() != m.Config.Head.Class {
			t.Errorf("%s: what was saved loads to another model", kind)
		}
		if info, err := DescribeFS(os.DirFS(dir), kind); err != nil || !strings.HasSuffix(info.Architecture(), want) {
			t.Errorf("%v, %v: want %s", info, err, want)
		}
	}
}

// TestToReward: the head follows from the seed, everything else is the language model's, and the folder that is saved
// names transformers' class.
func TestToReward(t *testing.T) {
	for _, dir := range []string{"llama-newer", "qwen2-older"} { // tied, and untied
		m := load(t, filepath.Join("testdata", dir))
		r := m.ToReward(5)
		if n := len(r.Params) - 1; n != r.HeadTable() || !slices.Equal(r.Params[:n], m.Params[:n]) || m.Config.Reward {
			t.Errorf("%s: %d tensors of %d, head %d", dir, len(r.Params), len(m.Params), r.HeadTable())
		}
		head := func(m *Model) []float32 { return m.Params[m.HeadTable()].Data }
		if !slices.Equal(head(r), head(m.ToReward(5))) || slices.Equal(head(r), head(m.ToReward(6))) {
			t.Errorf("%s: the head does not follow from the seed", dir)
		}
		to := t.TempDir()
		expect.OK(t, r.Save(to, ""))
		if again := load(t, to); !again.Config.Reward || !slices.Equal(head(again), head(r)) {
			t.Errorf("%s: the saved model has another head", dir)
		}
	}
}

func TestRewardConfigFaults(t *testing.T) {
	classes := with(base("llama"), "architectures", []string{"LlamaForSequenceClassification"})
	three := map[string]string{"0": "a", "1": "b", "2": "c"}
	for want, m := range map[string]map[string]any{
		"config.json: num_labels: found 2 labels, want 1: the head of a reward model": classes,
		"config.json: num_labels: found 5 labels, want 1":                             with(classes, "num_labels", 5),
		"config.json: id2label: found 3 labels, want 1":                               with(classes, "id2label", three),
		"config.json: architectures: found Qwen2ForRewardModel, want …ForSequenceClassification with one label, " +
			armoClass + " (ArmoRM) or " + urmClass + " (URM): other heads that score are not supported": with(base("qwen2"),
			"architectures", []string{"Qwen2ForRewardModel"}),
		"config.json: num_labels: found 5, want an even number": with(classes, "architectures", []string{urmClass},
			"num_labels", 5),
		"config.json: gating_temperature: found 0, want more than 0": with(classes, "architectures", []string{armoClass},
			"gating_temperature", 0),
		"config.json: gating_n_hidden: found 65": with(classes, "architectures", []string{armoClass}, "gating_n_hidden", 65),
		"config.json: architectures: found " + armoClass + ", want a class of qwen2": with(base("qwen2"), "architectures",
			[]string{armoClass}),
	} {
		if _, err := ParseConfig(text(t, m), nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
	if c := parse(t, with(classes, "num_labels", 1)); !c.Reward {
		t.Error("a reward model is read as a language model")
	}
	dir, _ := rewardFolder(t, "llama")
	path := filepath.Join(dir, "config.json")
	expect.Write(t, path, strings.Replace(expect.Read(t, path), "SequenceClassification", "CausalLM", 1))
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "tensor score.weight: a llama model") {
		t.Errorf("a language model with a head that scores: %v", err)
	}
}
