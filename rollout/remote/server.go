package remote

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// DefaultBaseURL is OpenAI's own server, DefaultKeyEnv the default environment variable with a server's key.
const (
	DefaultBaseURL = "https://api.openai.com/v1"
	DefaultKeyEnv  = "OPENAI_API_KEY"
)

// Server is an OpenAI-compatible server.
type Server struct {
	BaseURL string `yaml:"base_url" want:"@url" needs:"hosts api_key_env" flag:"base-url" help:"OpenAI-compatible server, such as http://localhost:8000/v1"`
	// of Azure OpenAI: the model is the name of a deployment
	APIVersion string `yaml:"api_version,omitempty" words:"one such as 2024-10-21" flag:"api-version" help:"version of Azure OpenAI's API, such as 2024-10-21: the server is an Azure resource, the model's name that of a deployment"`
	// the server's chat template opens the think block, so that replies begin inside it
	ThinkOpened bool          `yaml:"think_opened,omitempty" flag:"think-opened" help:"the server's chat template opens the think block, so that replies begin inside it"`
	KeyEnv      string        `yaml:"api_key_env" want:"@variable" default:"OPENAI_API_KEY" flag:"api-key-env" help:"environment variable with the server's key"`
	Parallel    int           `yaml:"parallel" want:">=1" default:"8" flag:"parallel" help:"requests at the same time"`
	Timeout     time.Duration `yaml:"timeout" want:">0" default:"5m" flag:"timeout" help:"timeout of one request"`
}

// Served is a server's model that answers.
type Served struct {
	Server   `yaml:",inline"`
	APIModel string `yaml:"api_model" words:"a model's name on the server" flag:"api-model" help:"the model's name on the server"`
	// the server continues the beginning of an answer
	Continue string `yaml:"continue,omitempty" want:"|vllm" words:"vllm, or nothing: the server cannot" flag:"continue" help:"vllm: the server continues the beginning of an answer (vLLM, SGLang), so that it can be <think>"`
}

// Options are the options of a client of the model.
func (s Served) Options() Options {
	return Options{Server: s.Server, Model: s.APIModel, Continue: s.Continue}
}

// Check refuses to continue answers on servers that cannot.
func (s Served) Check() []fault.Fault {
	faults := fault.Faults(nil)
	if s.Continue != "" && (s.APIVersion != "" || isOpenAI(s.BaseURL)) {
		faults.Add("continue", s.Continue, "OpenAI and Azure OpenAI do not continue the beginning of an answer: "+
			"want a server such as vLLM, or no continue and no prefill")
	}
	return faults
}

// CheckKey wants the key without which the server of a section of the options refuses: one for OpenAI's own server, for
// Azure, which has a version, and wherever its variable is not the default one. Other servers often need no key.
func (s Server) CheckKey(section string) error {
	key := os.Getenv(s.KeyEnv)
	switch {
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("the environment variable %s contains white space or other characters that no key has: "+
			"set it again", s.KeyEnv)
	case key == "" &&
		(s.KeyEnv != DefaultKeyEnv || s.APIVersion != "" || strings.TrimRight(s.BaseURL, "/") == DefaultBaseURL):
		flag := map[string]string{"agent": " (--api-key-env)", "judge": " (--judge-api-key-env)"}[section]
		return fmt.Errorf("no key for the %s: the environment variable %s is not set, and %s wants a key; set it, or "+
			"name another with %s.api_key_env%s", section, s.KeyEnv, s.BaseURL, section, flag)
	}
	return nil
}
