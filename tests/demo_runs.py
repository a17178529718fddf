"""Three runs of the demonstration data, as the command line makes them, with images."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from PIL import Image
from sklearn.datasets import load_digits
from support.cli import main

RUNS = ("pixels", "blurred", "noisy")
IMAGES = "images/{side}/{row:06d}.png"
METRICS = "CMC@1,CMC@5,mAP,mINP,mReP_max,tau_max,MFR,DIR@1|FAR=0.1,EER,mP@recall=0.5"
EVERY, WITHHELD, STEP = 9, (8, 9), 3  # every third image: the pages stay small


def make_runs(folder: Path) -> Path:
    """Write features, labels, images and three results into a folder; it becomes the current."""
    os.chdir(folder)
    digits = load_digits()
    pixels, ids = digits.data[::STEP].astype(np.float32), digits.target[::STEP]
    is_query = np.arange(len(ids)) % EVERY == 0
    sides = {"query": is_query, "gallery": ~is_query & ~np.isin(ids, WITHHELD)}
    noise = np.random.default_rng(0).normal(0, 6, pixels.shape).astype(np.float32)
    blurred = pixels.reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(len(pixels), 16)
    for side, chosen in sides.items():
        for run, features in zip(RUNS, (pixels, blurred, pixels + noise), strict=True):
            np.save(f"{run}_{side}.npy", features[chosen])
        with Path(f"{side}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "cam", "path"])
            images = Path("images") / side
            images.mkdir(parents=True)
            for row, at in enumerate(np.flatnonzero(chosen).tolist()):
                path = images / f"{row:06d}.png"
                shades = 255 - pixels[at].reshape(8, 8) * 15.9
                Image.fromarray(shades.astype(np.uint8)).save(path)
                writer.writerow([ids[at], at % 4, path])
    for run in RUNS:
        evaluate(run, run)
    return folder


def evaluate(features: str, out: str, *more: str) -> None:
    """Evaluate as a user does."""
    sides = ("query", "gallery")
    labels = [one for side in sides for one in (f"--{side}-labels", f"{side}.csv")]
    inputs = [one for side in sides for one in (f"--{side}", f"{features}_{side}.npy")]
    given = ["evaluate", *inputs, *labels, "--metrics", METRICS, "--out", out, "--quiet", *more]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 0, done.output
