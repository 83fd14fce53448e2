package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

// refused runs a command that must say in one line which value of a config it refuses, and how to allow that.
func refused(t *testing.T, value, grant string, args ...string) {
	t.Helper()
	o := cli(t, args...)
	if o.code == 0 || strings.Count(o.err, "\n") != 1 || !strings.Contains(o.err, value) ||
		!strings.Contains(o.err, "--allow "+grant) {
		t.Errorf("%v: want one line with %s and --allow %s: %+v", args, value, grant, o)
	}
}

// TestForeignLibraries: a library whose constructor leaves a file, named by a config or a run folder, is not loaded by
// any command, until the user allows it.
func TestForeignLibraries(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "e.c", `#include <stdio.h>
__attribute__((constructor)) static void f(void) { fclose(fopen("LOADED", "w")); }`)
	if out, err := exec.Command(need.Path(t, "cc"), "-shared", "-fPIC", "-o", "e.so", "e.c").CombinedOutput(); err != nil {
		need.Lack(t, "cc", string(out))
	}
	workItems(t)
	must(t, append(tinyMappo(1), "--out", "run", "--quiet")...)
	must(t, append(tinyCIRL(1), "--out", "rl", "--quiet")...)
	write(t, "rows.jsonl", `{"prompt":"a"}`)
	write(t, "rm.yaml", "command: data score\ndata: pairs.jsonl\nout: scored.jsonl\n"+
		"reward: {kind: model, model: {folder: model, backend: 'onnx:./e.so'}}\n")
	for _, library := range []string{"onnx:./e.so", "xla:./e.so", "xla:./e.so,option=1"} {
		for _, dir := range []string{"run", "rl"} {
			config := read(t, dir+"/config.yaml")
			write(t, dir+"/config.yaml", strings.Replace(config, "backend: go", "backend: '"+library+"'", 1))
			defer write(t, dir+"/config.yaml", config)
		}
		for _, args := range [][]string{
			{"plan", "--config", "run/config.yaml"}, {"plan", "--config", "run/config.yaml", "--rehearse"},
			{"plan", "--config", "rl/config.yaml"}, {"mappo", "--config", "run/config.yaml"},
			{"mappo", "--resume", "run"}, {"mappo", "--resume", "run", "--allow", "commands,hosts"},
			{"ci-rl", "--config", "rl/config.yaml"}, {"ci-rl", "--resume", "rl"},
			{"ci-rl", "--config", "rl/config.yaml", "--sweep", "seed=1,2"},
			{"eval", "ci", "--config", "rl/config.yaml"},
			{"data", "pairs", "--config", "rl/config.yaml", "--out", "x.jsonl"},
		} {
			refused(t, library, "libraries", args...)
		}
		must(t, "mappo", "--config", "run/config.yaml", "--explain")
		must(t, "plan", "--config", "run/config.yaml", "--backend", "go")
		cli(t, "doctor", "run")
		for _, dir := range []string{"run", "rl"} {
			write(t, dir+"/config.yaml", strings.Replace(read(t, dir+"/config.yaml"), "'"+library+"'", "go", 1))
		}
	}
	refused(t, "onnx:./e.so", "libraries", "data", "score", "--config", "rm.yaml")
	if _, err := os.Stat("LOADED"); err == nil {
		t.Fatal("a library that a file names was loaded")
	}
	write(t, "own.yaml", strings.Replace(read(t, "run/config.yaml"), "backend: go", "backend: 'xla:./e.so'", 1))
	if o := cli(t, "mappo", "--config", "own.yaml", "--out", "own", "--allow", "libraries"); o.code == 0 ||
		!strings.Contains(o.err, "it is no PJRT plugin") {
		t.Errorf("%+v", o)
	}
	if _, err := os.Stat("LOADED"); err != nil {
		t.Error("--allow libraries loads nothing")
	}
}

// TestForeignCommands: a command that a config names runs only where it is allowed, or given by a flag.
func TestForeignCommands(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "score.yaml", "command: data score\ndata: pairs.jsonl\nout: scored.jsonl\n"+
		"reward: {kind: command, command: [seq, '24']}\n")
	write(t, "online.yaml", "command: mappo\nmode: online\nmodel: model\nbackend: go\ndata: {train: pairs.jsonl}\n"+
		"online: {reward: {kind: command, command: [touch, RAN]}}\n")
	refused(t, `["seq" "24"]`, "commands", "data", "score", "--config", "score.yaml")
	refused(t, `["touch" "RAN"]`, "commands", "mappo", "--config", "online.yaml", "--allow", "libraries,hosts")
	if o := cli(t, "plan", "--config", "online.yaml"); strings.Contains(o.err, "--allow") {
		t.Errorf("%+v", o) // a plan runs no command
	}
	if _, err := os.Stat("RAN"); err == nil {
		t.Fatal("a command that a file names was run")
	}
	must(t, "data", "score", "--config", "score.yaml", "--allow", "commands")
	remove(t, "scored.jsonl")
	must(t, "data", "score", "--config", "score.yaml", "--command", "seq 24")
	remove(t, "scored.jsonl")
	t.Setenv("POSTTRAIN_ALLOW", "commands")
	must(t, "data", "score", "--config", "score.yaml")
	if o := cli(t, "data", "score", "--config", "score.yaml", "--allow", "all"); o.code != exitUsage ||
		!strings.Contains(o.err, "--allow all: want some of libraries, commands and hosts") {
		t.Errorf("%+v", o)
	}
}

// TestForeignHosts: a host of another machine that a config names gets no request, and no key, until the user names it
// or allows it. The server here is reached by an address that is not a loopback one.
func TestForeignHosts(t *testing.T) {
	work(t, "qwen2-newer")
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	t.Setenv("MLFLOW_TRACKING_TOKEN", "sk-secret")
	var requests, keys atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") == "Bearer sk-secret" {
			keys.Add(1)
		}
		http.Error(w, "no", http.StatusBadRequest)
	}))
	defer server.Close()
	host := strings.Replace(server.URL, "127.0.0.1", "0.0.0.0", 1)
	write(t, "score.yaml", "command: data score\ndata: pairs.jsonl\nout: scored.jsonl\n"+
		"reward: {kind: judge, judge: {model: m, retries: 0, base_url: '"+host+"/v1'}}\n")
	write(t, "agent.yaml", "command: eval ci\nn: 2\nagent: {api_model: m, base_url: '"+host+"/v1'}\n")
	write(t, "flow.yaml", "command: sft\nmodel: model\ndata: {train: pairs.jsonl}\ntracking: {mlflow: '"+host+"'}\n")
	write(t, "fleet.yaml", "command: ci-rl\nmodel: model\ndata: {train: pairs.jsonl}\nrollout: {engine: sglang, urls: ['"+host+"']}\n")
	for file, command := range map[string]string{"score": "data score", "agent": "eval ci", "flow": "sft",
		"fleet": "ci-rl"} {
		refused(t, host, "hosts", slices.Concat(strings.Fields(command), []string{"--config", file + ".yaml"})...)
	}
	write(t, "other.yaml", "command: data synth\nout: items\nwriter: {model: m, api_key_env: MLFLOW_TRACKING_TOKEN}\n")
	refused(t, "https://api.openai.com/v1", "hosts", "data", "synth", "--config", "other.yaml")
	if n := requests.Load(); n > 0 {
		t.Fatalf("%d requests were sent to a host that a file names", n)
	}
	for _, more := range [][]string{{"--allow", "hosts"}, {"--judge-base-url", host + "/v1"}} {
		keys.Store(0)
		cli(t, slices.Concat([]string{"data", "score", "--config", "score.yaml"}, more)...)
		if keys.Load() == 0 {
			t.Errorf("%v: the server got no key", more)
		}
	}
}
