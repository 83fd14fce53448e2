"""One node: does an agent's tasks with `posttrain federated step`."""
import pathlib
import subprocess
import tempfile

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def who(msg: Message, context: Context) -> Message:
    """Says which agent this node is: its start names the number, and the folder of its state."""
    return Message(RecordDict({"agent": ConfigRecord({"number": context.node_config["agent"]})}), reply_to=msg)


@app.train()
def work(msg: Message, context: Context) -> Message:
    run, node = context.run_config, context.node_config
    with tempfile.TemporaryDirectory() as folder:
        task, update = pathlib.Path(folder, "task"), pathlib.Path(folder, "update")
        task.write_bytes(msg.content["task"].to_numpy_ndarrays()[0].tobytes())
        subprocess.run([run["posttrain"], "federated", "step", "--config", run["config"], "--agent", str(node["agent"]),
                        "--state", node["state"], "--task", task, "--out", update], check=True)
        done = ArrayRecord([np.frombuffer(update.read_bytes(), np.uint8)])
    return Message(RecordDict({"update": done}), reply_to=msg)
