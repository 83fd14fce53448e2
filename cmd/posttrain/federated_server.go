package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/federated"
)

func newFederatedServer(s streams) *cobra.Command {
	place := func(o *federated.Service) *recipe.Place { return &o.Place }
	flags := append(serviceFlags[:len(serviceFlags):len(serviceFlags)], networkFlags...)
	c := configured[federated.Service]{federated.ServerSpec, flags, place, federated.Serve}
	return c.command(s, &cobra.Command{
		Use:   "server",
		Short: "Serve a federated run: agents connect, work, and send their updates",
		Long: "Serve a federated run. Agents connect to it (posttrain federated client), each with data or an\n" +
			"environment of its own. Every update is on the disk before it is applied: after a kill, --resume\n" +
			"continues with the same bits. The server brings its own NATS server, or uses another with --nats. On\n" +
			"an address that other machines reach it uses TLS, and only agents that were invited take part\n" +
			"(posttrain federated invite). It ends when the run is done, and stops the agents.",
		Example: "  posttrain federated server --config configs/federated.yaml\n" +
			"  posttrain federated server --listen 0.0.0.0:4222 --agents 8 --out runs/f1\n" +
			"  posttrain federated server --resume runs/f1",
	})
}

// serviceFlags set the keys of every federated run on a network.
var serviceFlags = []config.Flag{
	{Name: "method", Key: "method", Help: "fednpg-admm, fednpg, afedpg, fedpg, vanilla, a3c, fedppo, fedavg,\n" +
		"fedprox, fedbuff or diloco"},
	{Name: "agents", Key: "agents", Help: "number of agents"},
	{Name: "workload", Key: "workload", Help: "control, ci-rl, mappo or quadratic"},
	{Name: "updates", Key: "updates", Help: "updates of an asynchronous run"},
	{Name: "rounds", Key: "rounds", Help: "rounds of a synchronous run"},
	{Name: "seed", Key: "seed", Help: "seed of every random choice"},
}

// networkFlags say where a server is.
var networkFlags = []config.Flag{
	{Name: "listen", Key: "listen", Help: "address and port for agents; port 0 takes a free one"},
	{Name: "tls", Key: "tls", Help: "auto (where other machines reach the address, or agents were invited), on or off"},
	{Name: "nats", Key: "nats.url", Help: "URL of a NATS server or cluster with JetStream, instead of an own one"},
	{Name: "nats-credentials", Key: "nats.credentials", Help: "file with the server's credentials for --nats"},
	{Name: "nats-ca", Key: "nats.ca", Help: "file with the certificate that signed that of --nats"},
}
