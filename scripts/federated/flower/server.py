"""The server: `posttrain federated step --server` applies the updates, Flower carries tasks and updates."""
import json
import pathlib
import subprocess
import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    run = context.run_config
    out = pathlib.Path(run["state"] + "-out")

    def step(updates: list[bytes]) -> dict:
        out.mkdir(exist_ok=True)
        files = [out / f"update-{i}.bin" for i in range(len(updates))]
        for path, update in zip(files, updates):
            path.write_bytes(update)
        flags = [word for path in files for word in ("--update", str(path))]
        done = subprocess.run([run["posttrain"], "federated", "step", "--config", run["config"], "--server", "--state",
                               run["state"], "--out", str(out), *flags], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def ask(kind: str, contents: dict) -> list[Message]:
        """Sends each node its content and returns the answers."""
        replies = grid.send_and_receive([Message(c, dst_node_id=node, message_type=kind) for node, c in contents.items()])
        for reply in replies:
            if reply.has_error():
                raise RuntimeError(f"node {reply.metadata.src_node_id}: {reply.error.reason}")
        return list(replies)

    while len(list(grid.get_node_ids())) < run["nodes"]:
        time.sleep(0.2)
    whoami = ask("query", {node: RecordDict({"who": ConfigRecord({})}) for node in grid.get_node_ids()})
    nodes = {reply.content["agent"]["number"]: reply.metadata.src_node_id for reply in whoami}
    agents = {node: agent for agent, node in nodes.items()}
    state = step([])
    while not state["done"]:
        tasks = {nodes[a]: RecordDict({"task": ArrayRecord([np.fromfile(out / f"task-{a}.bin", np.uint8)])})
                 for a in state["tasks"]}
        replies = sorted(ask("train", tasks), key=lambda reply: agents[reply.metadata.src_node_id])
        state = step([reply.content["update"].to_numpy_ndarrays()[0].tobytes() for reply in replies])
    print(f"version {state['version']}, SHA-256 of the parameters {state['params']}")
