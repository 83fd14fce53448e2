package track

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/posttrain/posttrain/internal/secret"
)

// Variables of MLflow's own clients.
const (
	tokenVariable    = "MLFLOW_TRACKING_TOKEN"
	userVariable     = "MLFLOW_TRACKING_USERNAME"
	passwordVariable = "MLFLOW_TRACKING_PASSWORD"
)

// runTag is the tag by which a run folder finds its run.
const runTag = "posttrain_run"

// mlflowAPI is the REST interface of a server.
type mlflowAPI struct {
	base string
	http *retryablehttp.Client
	keys []secret.Key // in nothing that a server says
}

// environmentKeys are the keys that requests have, in each form.
func environmentKeys() (keys []secret.Key) {
	password := os.Getenv(passwordVariable)
	basic := base64.StdEncoding.EncodeToString([]byte(os.Getenv(userVariable) + ":" + password))
	for _, key := range []string{os.Getenv(tokenVariable), basic, password} {
		if len(key) >= 4 {
			keys = append(keys, secret.New(key))
		}
	}
	return keys
}

// madeRun is a run in replies.
type madeRun struct {
	Info struct {
		Run string `json:"run_id"`
	}
}

// experiment finds an experiment by its name, or makes it.
func (a mlflowAPI) experiment(ctx context.Context, name string) (string, error) {
	type experiment struct {
		ID string `json:"experiment_id"`
	}
	var found struct{ Experiment experiment }
	err := a.call(ctx, http.MethodGet, "experiments/get-by-name?experiment_name="+url.QueryEscape(name), nil, &found)
	if missing := (*mlflowError)(nil); errors.As(err, &missing) && missing.Code == "RESOURCE_DOES_NOT_EXIST" {
		err = a.post(ctx, "experiments/create", map[string]any{"name": name}, &found.Experiment)
	}
	return found.Experiment.ID, err
}

// find finds the run with a tag; "": the server has none.
func (a mlflowAPI) find(ctx context.Context, experiment, tag string) (string, error) {
	var found struct{ Runs []madeRun }
	err := a.post(ctx, "runs/search", map[string]any{"experiment_ids": []string{experiment}, "max_results": 1,
		"filter": fmt.Sprintf("tags.%s = '%s'", runTag, tag)}, &found)
	if err != nil || len(found.Runs) == 0 {
		return "", err
	}
	return found.Runs[0].Info.Run, nil
}

// create makes a run.
func (a mlflowAPI) create(ctx context.Context, experiment, name, source, tag string) (string, error) {
	var made struct{ Run madeRun }
	err := a.post(ctx, "runs/create", map[string]any{
		"experiment_id": experiment, "run_name": name, "start_time": time.Now().UnixMilli(),
		"tags": []map[string]string{{"key": "mlflow.source.name", "value": source},
			{"key": "mlflow.source.type", "value": "LOCAL"}, {"key": runTag, "value": tag}},
	}, &made)
	if err == nil && made.Run.Info.Run == "" {
		err = fmt.Errorf("%s: the reply to runs/create names no run: want an MLflow server", a.base)
	}
	return made.Run.Info.Run, err
}

// mlflowError is a reply of the server that refuses a request.
type mlflowError struct {
	Code    string `json:"error_code"`
	Message string `json:"message"`
	status  string
}

func (e *mlflowError) Error() string {
	return e.status + " " + shorten(strings.Join(strings.Fields(e.Code+" "+e.Message), " "), 200)
}

// shorten cuts a text that has more characters than that.
func shorten(text string, most int) string {
	if all := []rune(text); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return text
}

func (a mlflowAPI) post(ctx context.Context, path string, body, reply any) error {
	return a.call(ctx, http.MethodPost, path, body, reply)
}

// call sends a request. Its error names the server and the path.
func (a mlflowAPI) call(ctx context.Context, method, path string, body, reply any) error {
	text, err := a.do(ctx, method, path, body)
	if cause := (*url.Error)(nil); errors.As(err, &cause) {
		err = cause.Err
	}
	if err == nil && reply != nil {
		if err = json.Unmarshal(text, reply); err != nil {
			err = fmt.Errorf("the reply is not MLflow's: %w", err)
		}
	}
	if err != nil {
		name, _, _ := strings.Cut(path, "?")
		return fmt.Errorf("%s: %s: %w", a.base, name, err)
	}
	return nil
}

// do gives the text of the reply.
func (a mlflowAPI) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := retryablehttp.NewRequestWithContext(ctx, method, a.base+"/api/2.0/mlflow/"+path, text)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token := os.Getenv(tokenVariable); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	} else if user := os.Getenv(userVariable); user != "" {
		request.SetBasicAuth(user, os.Getenv(passwordVariable))
	}
	response, err := a.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("the reply is incomplete: %w", err)
	}
	for _, key := range a.keys {
		reply = []byte(key.Hide(string(reply)))
	}
	if response.StatusCode/100 == 3 {
		return nil, fmt.Errorf("%s: it sends requests to another address, which would get the key: want that address in its place",
			response.Status)
	}
	if response.StatusCode != http.StatusOK {
		refused := &mlflowError{status: response.Status}
		_ = json.Unmarshal(reply, refused) // another server's reply has no code
		return nil, refused
	}
	return reply, nil
}
