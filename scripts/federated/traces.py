#!/usr/bin/env python3
"""Makes the traces that hold federated/control to Gymnasium: given actions from a given state, and what came of them.

Usage: traces.py FOLDER
Writes FOLDER/NAME.json for each task. Needs Gymnasium, MuJoCo and NumPy (pip install gymnasium[mujoco]==1.4.0
mujoco==4.0.0 numpy==2.4.6) in a virtual environment outside the repository. Actions are float64, so that all arithmetic
is. A start of MuJoCo's tasks is positions, then velocities. Of an observation of more than 20 numbers every tenth step
keeps one.
"""

import json
import pathlib
import sys

import gymnasium
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv

STEPS = 200


def balance(observation, _):
    """Keeps cartpole's pole up for as long as the trace lasts."""
    x, v, angle, turn = observation
    return int(angle + 0.4 * turn + 0.05 * x + 0.1 * v > 0)


def draw_push(_, rng):
    return int(rng.integers(2))


def draw_controls(n, high):
    return lambda _, rng: [float(a) for a in rng.uniform(-high, high, n)]


def draw_start(position, velocities, noise, rng):
    """Draws a start as the tasks of MuJoCo do."""
    return [float(x) for x in rng.uniform(-noise, noise, len(position) + velocities) + (position + [0] * velocities)]


def trace(task, start, act, rng):
    """Returns steps of [action, observation, [reward, terminated, truncated]]; an episode that ends begins again."""
    env = gymnasium.make(task, disable_env_checker=True)
    env.reset(seed=0)
    steps, observation = [], begin(env, start)
    for k in range(STEPS):
        action = act(observation, rng)
        given = action if isinstance(action, int) else np.array(action, dtype=np.float64)
        observation, reward, terminated, truncated, _ = env.step(given)
        kept = observation if len(observation) <= 20 or k % 10 == 0 else []
        steps.append([action if isinstance(action, list) else [action], [float(o) for o in kept],
                      [float(reward), int(terminated), int(truncated)]])
        if terminated or truncated:
            env.reset()
            observation = begin(env, start)
    return {"task": task, "limit": env.spec.max_episode_steps, "start": start, "steps": steps}


def begin(env, start):
    env, start = env.unwrapped, np.array(start, dtype=np.float64)
    if isinstance(env, MujocoEnv):
        env.set_state(start[:env.model.nq], start[env.model.nq:])
    else:
        env.state = start
    return start


def write(path, traces):
    """Keeps a step on a line, so that a difference can be read."""
    with open(path, "w", encoding="utf-8") as out:
        out.write("[\n")
        for i, t in enumerate(traces):
            steps = ",\n".join(json.dumps(s, separators=(",", ":")) for s in t.pop("steps"))
            end = "\n]},\n" if i + 1 < len(traces) else "\n]}\n"
            out.write(json.dumps(t)[:-1] + ', "steps": [\n' + steps + end)
        out.write("]\n")


def main(folder):
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "cartpole.json", [trace("CartPole-v1", [0.01, -0.02, 0.03, 0.04], balance, rng),
                                     trace("CartPole-v1", [0.2, 0.1, -0.05, 0.3], draw_push, rng)])
    rng.uniform(-3, 3, STEPS)  # the draws of a task that is gone: those below were made after them
    for task, position, velocities, noise, controls, high in (
            ("Swimmer", [0] * 5, 5, 0.1, 2, 1), ("Hopper", [0, 1.25] + [0] * 4, 6, 5e-3, 3, 1),
            ("Walker2d", [0, 1.25] + [0] * 7, 9, 5e-3, 6, 1),
            ("Humanoid", [0, 0, 1.4, 1] + [0] * 20, 23, 1e-2, 17, 0.4)):
        rng = np.random.default_rng(2)
        start = draw_start(position, velocities, noise, rng)
        write(folder / f"{task.lower()}.json", [trace(f"{task}-v4", start, draw_controls(controls, high), rng)])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
