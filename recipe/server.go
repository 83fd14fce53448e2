package recipe

import (
	"os"
	"time"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/rollout/remote"
)

// Server is a model that an OpenAI-compatible server has, in the place of a model folder.
type Server struct {
	BaseURL    string        `yaml:"base_url" want:"@url" needs:"hosts api_key_env" flag:"base-url" help:"OpenAI-compatible server to ask instead of a model folder, such as http://localhost:8000/v1"`
	Model      string        `yaml:"api_model" words:"the model's name on the server" flag:"api-model" help:"the model's name on the server"`
	APIVersion string        `yaml:"api_version,omitempty" words:"one such as 2024-10-21" flag:"api-version" help:"of Azure OpenAI's API, such as 2024-10-21: the model is the name of a deployment"`
	KeyEnv     string        `yaml:"api_key_env" want:"@variable" default:"OPENAI_API_KEY" flag:"api-key-env" help:"environment variable with the server's key; no key is sent where it is not set"`
	Parallel   int           `yaml:"parallel" want:">=1" default:"8" flag:"parallel" help:"requests to the server at a time"`
	Timeout    time.Duration `yaml:"timeout" want:">0" default:"5m" flag:"timeout" help:"of one request; after it, and after passing failures, the request is sent again"`
}

// ServerKeys are the keys of a section server that need server.base_url.
func ServerKeys() []string {
	return []string{"server.api_model", "server.api_version", "server.api_key_env", "server.parallel", "server.timeout"}
}

// Validate wants the model's name on the server, and the key that the user names. A file that names the default may be
// the config of a run, which had no key, either.
func (s *Server) Validate(g *config.Given) {
	if s.BaseURL == "" {
		return
	}
	if s.Model == "" {
		g.Fault("api_model", "%s is missing: want the model's name on the server", g.Key("api_model"))
	}
	named := g.FromCommandLine("api_key_env") || s.KeyEnv != config.Default[Server]().KeyEnv
	if g.Has("api_key_env") && named && os.Getenv(s.KeyEnv) == "" {
		g.Refuse("api_key_env", s.KeyEnv, "this environment variable is not set")
	}
}

// Open connects to the server; tick hears of answers, and may be nil.
func (s Server) Open(tick func(done int), warn func(format string, args ...any)) (*remote.Client, error) {
	return s.OpenAs(remote.Dialect{APIVersion: s.APIVersion}, tick, warn)
}

// OpenAs is Open for a server that speaks a dialect.
func (s Server) OpenAs(
	d remote.Dialect, tick func(done int), warn func(format string, args ...any),
) (*remote.Client, error) {
	return remote.New(remote.Options{BaseURL: s.BaseURL, Dialect: d, Model: s.Model,
		Key: os.Getenv(s.KeyEnv), KeyName: s.KeyEnv, Parallel: s.Parallel, Timeout: s.Timeout, Tick: tick, Warn: warn})
}
