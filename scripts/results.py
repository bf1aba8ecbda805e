"""Functions that the scripts share that write tables of measurements."""
import os
import pathlib
import platform
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
CAUTION = ("Do not compare the results of two runs, because the machine is shared with other work. Compare ratios "
           "within one run.")


def machine():
    with open("/proc/cpuinfo") as lines:
        models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} cores, {model}, {platform.system()}"


def commit():
    if shutil.which("git") is None:
        return "unknown"
    git = lambda *arguments: subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True).stdout
    changed = git("status", "--porcelain", "-uno")
    return git("rev-parse", "--short", "HEAD").strip() + (" and changes" if changed else "")


def table(header, rows):
    """Returns lines of Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows] + [""]
