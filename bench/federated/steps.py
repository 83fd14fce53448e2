"""Prints the steps a second of processor time of a task of Gymnasium under random actions: steps.py TASK STEPS."""

import sys
import time

import gymnasium
import numpy as np

task = {"swimmer": "Swimmer-v4", "hopper": "Hopper-v4", "walker2d": "Walker2d-v4"}[sys.argv[1]]
env = gymnasium.make(task, disable_env_checker=True)
rng = np.random.default_rng(1)
low, high = env.action_space.low, env.action_space.high
env.reset(seed=0)
begun = time.process_time()
for _ in range(int(sys.argv[2])):
    _, _, terminated, truncated, _ = env.step(rng.uniform(low, high))
    if terminated or truncated:
        env.reset()
print(int(sys.argv[2]) / (time.process_time() - begun))
