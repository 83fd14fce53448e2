"""Prints steps a second of processor time of a task under random actions: Gymnasium's, then those of its mj_step alone.

steps.py TASK STEPS
"""

import sys
import time

import gymnasium
import mujoco
import numpy as np

task = {"swimmer": "Swimmer-v4", "hopper": "Hopper-v4", "walker2d": "Walker2d-v4",
        "humanoid": "Humanoid-v4"}[sys.argv[1]]
steps = int(sys.argv[2])
env = gymnasium.make(task, disable_env_checker=True)
rng = np.random.default_rng(1)
low, high = env.action_space.low, env.action_space.high
actions = rng.uniform(low, high, (steps, len(low)))


def rate(step, reset):
    reset()
    begun = time.process_time()
    for k, action in enumerate(actions, 1):
        if step(action) or k % env.spec.max_episode_steps == 0:
            reset()
    return steps / (time.process_time() - begun)


def whole(action):
    _, _, terminated, truncated, _ = env.step(action)
    return terminated or truncated


base = env.unwrapped


def bare(action):
    """MuJoCo's own work in a step: no observation, no reward. The task says when an episode ends."""
    base.data.ctrl[:] = action
    mujoco.mj_step(base.model, base.data, base.frame_skip)
    return not getattr(base, "is_healthy", True)


print(rate(whole, env.reset), rate(bare, env.reset))
