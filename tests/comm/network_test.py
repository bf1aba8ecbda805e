#!/usr/bin/env python3
"""Trains with two processes on two hosts that a network connects: network namespaces of this machine.

    network_test.py --mpirun mpirun --windrow build/release/bin/windrow

Three networks: a pair of virtual Ethernet devices; one that delays packets and loses some, which a thread here relays
between two TUN devices, since few kernels have netem; and the first one again, cut while the processes train. Needs
root, namespaces and /dev/net/tun; exits with 77 and says what is missing if they are not there.
"""
import argparse
import ctypes
import fcntl
import heapq
import os
import random
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

SKIP = 77
TRAINING = "tree-lstm --hidden 8 --embedding 8 --samples 200 --epochs {epochs} --optimiser adam --workers 1"
LIMIT = 120  # seconds, for what takes a few


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **more)


def must(*command):
    done = run(*command)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


class Hosts:
    """Two namespaces, each with a device of the network."""

    def __init__(self, folder, subnet):
        self.names = [f"windrow{os.getpid()}{end}" for end in "ab"]
        self.addresses = [f"10.213.{subnet}.{number}" for number in (1, 2)]
        self.device = "net0"
        self.agent = os.path.join(folder, "agent")
        with open(self.agent, "w") as file:  # in place of ssh
            file.write(f'#!/bin/sh\nshift\nexec ip netns exec {self.names[1]} unshare --uts '
                       f'sh -c "hostname {self.names[1]}; $*"\n')
        os.chmod(self.agent, 0o755)

    def __enter__(self):
        for name in self.names:
            must("ip", "netns", "add", name)
        return self

    def __exit__(self, *_):
        for name in self.names:
            for pid in run("ip", "netns", "pids", name).stdout.split():
                try:
                    os.kill(int(pid), 9)
                except ProcessLookupError:
                    pass
            run("ip", "netns", "del", name)

    def connect_directly(self):
        must("ip", "link", "add", self.device, "netns", self.names[0], "type", "veth", "peer", "name", self.device,
             "netns", self.names[1])
        self.bring_up()

    def bring_up(self):
        for name, address in zip(self.names, self.addresses):
            must("ip", "-n", name, "addr", "add", address + "/24", "dev", self.device)
            must("ip", "-n", name, "link", "set", self.device, "up")
            must("ip", "-n", name, "link", "set", "lo", "up")

    def start(self, mpirun, windrow, arguments, **more):
        """Starts a process on each host."""
        name = self.names[0]
        words = [mpirun, "--allow-run-as-root", "--mca", "plm_rsh_agent", self.agent, "--mca", "btl", "tcp,self",
                 "--mca", "btl_tcp_if_include", self.device, "--mca", "oob_tcp_if_include", self.device,
                 "--host", ",".join(address + ":1" for address in self.addresses), "-n", "2", windrow, "train"]
        command = " ".join(words + arguments.split() + ["--comm", "mpi"])
        return subprocess.Popen(["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c",
                                 f"hostname {name}; exec timeout -k 5 {LIMIT} {command}"],
                                text=True, **more)

    def any_runs(self, program):
        """Whether a process of the program is left on one of the hosts."""
        for name in self.names:
            for pid in run("ip", "netns", "pids", name).stdout.split():
                try:
                    if os.path.samefile(f"/proc/{pid}/exe", program):
                        return True
                except OSError:
                    pass
        return False


def enter(namespace):
    """Moves this thread to the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as file:
        if libc.setns(file.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")


class SlowNetwork:
    """Relays packets between the hosts: later, and not all of them."""

    def __init__(self, hosts, delay, loss):
        self.delay, self.loss, self.lost, self.relayed = delay, loss, 0, 0
        self.random = random.Random(1)
        self.tunnels = []
        for name in hosts.names:
            opened = []

            def open_tunnel(name=name, opened=opened):
                enter(name)
                tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                no_header, tun = 0x1000, 0x0001
                fcntl.ioctl(tunnel, 0x400454CA, struct.pack("16sH22x", hosts.device.encode(), tun | no_header))
                opened.append(tunnel)

            thread = threading.Thread(target=open_tunnel)
            thread.start()
            thread.join()
            if not opened:
                raise OSError("no TUN device")
            self.tunnels += opened
        self.ending = False
        self.thread = threading.Thread(target=self.relay)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        for tunnel in self.tunnels:
            os.close(tunnel)

    def relay(self):
        late, number = [], 0
        while not self.ending:
            wait = 0.05 if not late else max(0, min(0.05, late[0][0] - time.monotonic()))
            for tunnel in select.select(self.tunnels, [], [], wait)[0]:
                packet = os.read(tunnel, 65536)
                if self.random.random() < self.loss:
                    self.lost += 1
                    continue
                number += 1
                other = self.tunnels[1 - self.tunnels.index(tunnel)]
                heapq.heappush(late, (time.monotonic() + self.delay, number, other, packet))
            while late and late[0][0] <= time.monotonic():
                _, _, tunnel, packet = heapq.heappop(late)
                try:
                    os.write(tunnel, packet)
                    self.relayed += 1
                except OSError:
                    self.lost += 1


def epochs_of(text):
    """The lines of epochs, without the throughput."""
    return re.findall(r"^( +\d+ .* %) +\d+$", text, re.MULTILINE)


def check(holds, what, *shown):
    if holds:
        return
    print(what, *shown, sep="\n")
    sys.exit(1)


def trains(hosts, arguments, expected):
    process = hosts.start(arguments.mpirun, arguments.windrow, TRAINING.format(epochs=2), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=LIMIT + 10)
    check(process.returncode == 0, f"mpirun ended with {process.returncode}", out, err)
    check(epochs_of(out) == expected, "other epochs than on two devices of one process", out, err)


def is_cut(hosts, arguments):
    with tempfile.TemporaryFile("w+") as errors:
        process = hosts.start(arguments.mpirun, arguments.windrow,
                              TRAINING.format(epochs=1000000) + " --comm-timeout 2", stdout=subprocess.PIPE,
                              stderr=errors)
        for line in process.stdout:
            if epochs_of(line):
                break
        must("ip", "-n", hosts.names[0], "link", "set", hosts.device, "down")
        threading.Thread(target=process.stdout.read, daemon=True).start()
        # mpirun cannot end what runs on the other host: that must end by itself.
        until = time.monotonic() + 60
        while hosts.any_runs(arguments.windrow):
            check(time.monotonic() < until, "a process is left 60 seconds after the network was cut")
            time.sleep(0.2)
        process.kill()
        process.wait()
        errors.seek(0)
        text = errors.read()
    lines = [line for line in text.splitlines() if line.startswith("windrow: ")]
    check(any(re.match("windrow: rank 0(:| has waited) ", line) and "rank 1 did not answer" in line for line in lines),
          "rank 0 does not say that rank 1 is cut off", text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("--windrow", required=True)
    arguments = parser.parse_args()

    def skip(why):
        print("skipped: " + why)
        sys.exit(SKIP)

    if os.geteuid() != 0:
        skip("not root, who makes network namespaces")
    for program in ("ip", "unshare"):
        if shutil.which(program) is None:
            skip(f"no program {program}")
    alone = run(arguments.windrow, "train", *TRAINING.format(epochs=2).split(), "--devices", "cpu:0,cpu:1")
    expected = epochs_of(alone.stdout)
    check(len(expected) == 2, "no epochs on two devices", alone.stdout, alone.stderr)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Hosts(folder, 1) as hosts:
                hosts.connect_directly()
        except OSError as error:
            skip(f"no network namespaces: {error}")
        with Hosts(folder, 1) as hosts:
            hosts.connect_directly()
            trains(hosts, arguments, expected)
            print("two hosts: the epochs of one")
        with Hosts(folder, 2) as hosts:
            try:
                slow = SlowNetwork(hosts, delay=0.002, loss=0.01)
            except OSError as error:
                print(f"no TUN devices, so no slow network: {error}")
            else:
                with slow:
                    hosts.bring_up()
                    trains(hosts, arguments, expected)
                print(f"a slow network: the epochs of one, although {slow.lost} of "
                      f"{slow.lost + slow.relayed} packets were lost")
        with Hosts(folder, 3) as hosts:
            hosts.connect_directly()
            is_cut(hosts, arguments)
            print("a network that is cut: rank 0 says who is missing, and both processes end")


if __name__ == "__main__":
    main()
