package config

import (
	"reflect"
	"testing"
)

type judged struct {
	Model string `yaml:"model" flag:"model" help:"the model that judges"`
}

type flagged struct {
	Model string   `yaml:"model" default:"embedded" flag:"model" help:"the model to train"`
	Chat  bool     `yaml:"chat" flag:"no-chat=false" help:"plain text"`
	Words []string `yaml:"words" flag:"word,exact"`
	Plain int      `yaml:"plain"`
	Judge judged   `yaml:"judge" defaults:"model=m" flags:"judge-"`
	Other judged   `yaml:"other" flags:"-"`
}

// TestFlags: the tags of an options struct say which flags its command has.
func TestFlags(t *testing.T) {
	spec := Spec[flagged]{Command: "c"}
	want := []Flag{
		{Name: "model", Key: "model", Help: "the model to train (default embedded)"},
		{Name: "no-chat", Key: "chat", Help: "plain text", Value: "false"},
		{Name: "word", Key: "words", Exact: true},
		{Name: "judge-model", Key: "judge.model", Help: "the model that judges (default m)"},
	}
	if got := spec.Flags(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
