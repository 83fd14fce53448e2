package recipe

import (
	"os"
	"time"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/rollout"
)

// Server is a model that an OpenAI-compatible server has, in the place of a model folder.
type Server struct {
	BaseURL string `yaml:"base_url" want:"@url"`
	Model   string `yaml:"api_model" words:"the model's name on the server"`
	// of Azure OpenAI: the model is the name of a deployment
	APIVersion string        `yaml:"api_version,omitempty" words:"one such as 2024-10-21"`
	KeyEnv     string        `yaml:"api_key_env" want:"@variable"` // the environment variable that holds the server's key
	Parallel   int           `yaml:"parallel" want:">=1"`          // requests at a time
	Timeout    time.Duration `yaml:"timeout" want:">0"`            // of a request
}

// DefaultServer has no URL: the model is a folder's.
func DefaultServer() Server {
	return Server{KeyEnv: "OPENAI_API_KEY", Parallel: 8, Timeout: 5 * time.Minute}
}

// ServerKeys are the keys of a section server that need server.base_url.
func ServerKeys() []string {
	return []string{"server.api_model", "server.api_version", "server.api_key_env", "server.parallel", "server.timeout"}
}

// Check wants the model's name on the server, and the key that the user names. A file that names the default may be the
// config of a run, which had no key, either.
func (s Server) Check(g *config.Given) {
	if s.BaseURL == "" {
		return
	}
	if s.Model == "" {
		g.Fault("server.api_model", "server.api_model is missing: want the model's name on the server")
	}
	const key = "server.api_key_env"
	named := g.FromCommandLine(key) || s.KeyEnv != DefaultServer().KeyEnv
	if g.Has(key) && named && os.Getenv(s.KeyEnv) == "" {
		g.Fault(key, "%s %s: this environment variable is not set", key, s.KeyEnv)
	}
}

// Open connects to the server; tick hears of answers, and may be nil.
func (s Server) Open(tick func(done int), warn func(format string, args ...any)) (*rollout.Remote, error) {
	return s.OpenAs(rollout.Dialect{APIVersion: s.APIVersion}, tick, warn)
}

// OpenAs is Open for a server that speaks a dialect.
func (s Server) OpenAs(
	d rollout.Dialect, tick func(done int), warn func(format string, args ...any),
) (*rollout.Remote, error) {
	return rollout.NewRemote(rollout.RemoteOptions{BaseURL: s.BaseURL, Dialect: d, Model: s.Model,
		Key: os.Getenv(s.KeyEnv), KeyName: s.KeyEnv, Parallel: s.Parallel, Timeout: s.Timeout, Tick: tick, Warn: warn})
}
