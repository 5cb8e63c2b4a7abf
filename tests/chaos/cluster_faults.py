"""The kinds of faults that jobs of several machines meet."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import machinery
from faults import DISK, EVERY, STEPS, moment
from machines import PIPELINE, TENSOR, Layout, Machines, send

Fault = Callable[[Machines], Callable[[], None]]
"""Prepares; what it returns strikes."""


def kill_rank(layout: Layout | None = None) -> Fault:
    def fault(machines: Machines) -> Callable[[], None]:
        machines.layout = layout or machines.layout
        rank = machines.turn % (2 * machines.layout.each)
        machine, place = divmod(rank, machines.layout.each)
        when, wait = moment(machines.scene)
        machines.scene.said = f"SIGKILL to rank {rank} {when}"

        def strike() -> None:
            wait(machines.attempts[0])
            _await_ranks(machines, machine)
            machines.strike()
            machines.kill(*machines.attempts[machine].ranks()[place : place + 1])

        return strike

    return fault


def _await_ranks(machines: Machines, machine: int) -> None:
    while not machines.are_over() and len(machines.attempts[machine].ranks()) < machines.layout.each:
        time.sleep(0.01)


def freeze_rank(machines: Machines) -> Callable[[], None]:
    """Which the hang watchdog has to see: its machine is there, and says so."""
    machine = machines.turn % 2
    step = machines.scene.rng.randrange(1, STEPS - 2)
    machines.known_within = 3 * machines.timeout
    machines.flags = ["--train.hang-timeout", f"{machines.known_within:g}"]
    machines.scene.said = f"SIGSTOP to rank {machine} after step {step}, for good"

    def strike() -> None:
        machines.scene.wait_for_step(machines.attempts[0], step)
        machines.strike()
        send(signal.SIGSTOP, machines.attempts[machine].ranks()[:1])

    return strike


def kill_launcher(machine: int) -> Fault:
    def fault(machines: Machines) -> Callable[[], None]:
        when, wait = moment(machines.scene)
        pause = machines.scene.rng.choice((0.0, 0.5 * machines.timeout, 2 * machines.timeout))
        what = "that has made the store" if machine == 0 else "without the store"
        machines.looked_after = True
        machines.scene.said = f"SIGKILL to the launcher {what} {when}; started again after {pause:g} s"

        def strike() -> None:
            wait(machines.attempts[0])
            machines.strike()
            machines.kill(machines.attempts[machine].pid)
            machines.later(pause, lambda: machines.start(machine))

        return strike

    return fault


def kill_store(machines: Machines) -> Callable[[], None]:
    when, wait = moment(machines.scene)
    machines.scene.said = f"SIGKILL to the process that keeps the store {when}"

    def strike() -> None:
        wait(machines.attempts[0])
        while not machines.are_over() and not machines.attempts[0].children_of("paddock.launch.rendezvous.keeper"):
            time.sleep(0.01)
        machines.strike()
        machines.kill(*machines.attempts[0].children_of("paddock.launch.rendezvous.keeper"))

    return strike


def kill_machine_0(machines: Machines) -> Callable[[], None]:
    when, wait = moment(machines.scene)
    machines.scene.said = f"SIGKILL to every process of machine 0 {when}"

    def strike() -> None:
        wait(machines.attempts[0])
        machines.strike()
        machines.kill(machines.attempts[0].pid, *machines.attempts[0].processes())

    return strike


def elastic(machines: Machines) -> Callable[[], None]:
    """Steps take so long that the machine comes back while the other is at work."""
    step = machines.scene.rng.randrange(1, STEPS // 2)
    machines.elastic = True
    machines.flags = ["--train.callbacks", "SlowSteps"]
    machines.prepare = _slow_steps
    machines.scene.said = f"SIGKILL to every process of machine 1 after step {step}; started again two steps later"

    def strike() -> None:
        scene = machines.scene
        scene.wait_for_step(machines.attempts[0], step)
        machines.strike()
        machines.kill(machines.attempts[1].pid, *machines.attempts[1].processes())
        before = scene.reported()
        machines.when(lambda: scene.reported() >= before + 2, lambda: _come_again(machines))

    return strike


def _come_again(machines: Machines) -> None:
    if not machines.attempts[0].is_over():  # the job has been done without it
        machines.start(1)


def _slow_steps(machine: int) -> None:
    import slow_steps  # noqa: F401


def freeze(machine: int) -> Fault:
    def fault(machines: Machines) -> Callable[[], None]:
        when, wait = moment(machines.scene)
        seconds = machines.scene.rng.choice((0.5, 1.5, 3)) * machines.timeout
        machines.looked_after = True
        machines.scene.said = f"SIGSTOP to every process of machine {machine} for {seconds:g} s {when}"

        def strike() -> None:
            wait(machines.attempts[0])
            pids = [machines.attempts[machine].pid, *machines.attempts[machine].processes()]
            machines.strike()
            send(signal.SIGSTOP, pids)
            machines.later(seconds, lambda: send(signal.SIGCONT, pids))

        return strike

    return fault


def cut_loopback(machines: Machines) -> Callable[[], None]:
    """For less than it takes to be lost: it is also the way from machine 0 to itself."""
    machines.scene.mounts()
    when, wait = moment(machines.scene)
    seconds = machines.scene.rng.uniform(0.1, 0.4) * machines.timeout
    machines.scene.said = f"the network between all processes is down for {seconds:.1f} s {when}"

    def strike() -> None:
        wait(machines.attempts[0])
        machines.strike()
        machinery.set_loopback(up=False)
        machines.later(seconds, lambda: machinery.set_loopback(up=True))

    machines.scene.undo_by(lambda: machinery.set_loopback(up=True))
    return strike


def cut_link_5s(machines: Machines) -> Callable[[], None]:
    """Where the timeout is 5 s, too; else as long as that."""
    machines.on_hosts()
    when, wait = moment(machines.scene)
    machines.looked_after = True
    machines.scene.said = f"the link of machine {machines.turn % 2} is down for {machines.timeout:g} s {when}"

    def strike() -> None:
        host = machines.hosts[machines.turn % 2]
        wait(machines.attempts[0])
        machines.strike()
        host.cut()
        machines.later(machines.timeout, host.mend)

    return strike


def cut_link_for_good(machines: Machines) -> Callable[[], None]:
    """Until machine 1 has given up; somebody mends the link then, and starts it again."""
    machines.on_hosts()
    step = machines.scene.rng.randrange(1, STEPS - 2)
    machines.scene.said = f"the link of machine 1 is down after step {step}, until it has given up"

    def strike() -> None:
        host, cut_off = machines.hosts[1], machines.attempts[1]
        machines.scene.wait_for_step(machines.attempts[0], step)
        machines.strike()
        host.cut()

        def mend() -> None:
            host.mend()
            if cut_off.code and (cut_off.code != 3 or "machine 0" not in cut_off.text()):
                machines.scene.complaints.append(
                    f"machine 1, cut off, ended with {cut_off.code}: {cut_off.text()[-300:]}"
                )
            if cut_off.code:
                machines.started_again += 1
                machines.start(1)

        machines.when(cut_off.is_over, mend)

    return strike


def skew_clock(machines: Machines) -> Callable[[], None]:
    """The clock of machine 1 is an hour ahead, or behind; and a rank is killed, so that there is something to do."""
    hours = machines.scene.rng.choice((1, -1))
    strike = kill_rank()(machines)
    machines.scene.said = f"the clock of one machine is off by {hours} h, and {machines.scene.said}"
    machines.scene.environment["CHAOS_CLOCK"] = str(3600 * hours)
    machines.prepare = _skew
    return strike


def _skew(machine: int) -> None:
    """In a launcher, which is not begun anew, what Python runs first in what it starts."""
    from sitecustomize import skew

    if "CHAOS_CLOCK" in os.environ:
        skew()


def stop(machines: Machines) -> Callable[[], None]:
    number = machines.scene.rng.choice((signal.SIGTERM, signal.SIGHUP))
    machine = machines.scene.rng.randrange(2)
    step = machines.scene.rng.randrange(1, STEPS - 2)
    machines.scene.said = f"{number.name} to the launcher of machine {machine} after step {step}"

    def strike() -> None:
        machines.scene.wait_for_step(machines.attempts[0], step)
        machines.strike()
        machines.attempts[machine].signal(number)

    return strike


def full_disk(machines: Machines) -> Callable[[], None]:
    """At a save, of which a part fits."""
    scene = machines.scene
    scene.mounts()
    saved, room = EVERY * scene.rng.randint(1, STEPS // EVERY - 1), scene.rng.choice((0, 20, 100, 300)) << 10
    scene.said = (
        f"{room >> 10} kB are left of the run's disk when it is to save step {saved}, until it has failed for it"
    )
    scene.run_dir.mkdir(parents=True)
    machinery.mount_memory(scene.run_dir, DISK)
    scene.undo_by(lambda: machinery.resize_memory(scene.run_dir, DISK))

    def strike() -> None:
        scene.wait_for_step(machines.attempts[0], saved - 1)
        machines.strike()
        machinery.leave_room(scene.run_dir, room)

    return strike


def damage_all(machines: Machines) -> Callable[[], None]:
    """Something that no run survives: for trying whether a campaign sees it."""
    machines.scene.said = "a changed byte in every checkpoint, and SIGKILL to rank 1"

    def strike() -> None:
        machines.scene.wait_for_step(machines.attempts[0], EVERY + 1)
        machines.strike()
        machines.kill(*machines.attempts[1].ranks()[:1])
        for place in machines.scene.run_dir.glob("checkpoints/step-*"):
            change_a_byte(place)

    return strike


def change_a_byte(checkpoint: Path) -> None:
    for file in checkpoint.glob("*.safetensors"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)


def truncate(checkpoint: Path) -> None:
    file = min(checkpoint.glob("*.safetensors"))
    os.truncate(file, file.stat().st_size // 2)


def remove_description(checkpoint: Path) -> None:
    (checkpoint / "checkpoint.json").unlink()


def garble_latest(checkpoint: Path) -> None:
    latest = checkpoint.with_name("latest")
    latest.unlink()
    latest.write_bytes(b"\0 no checkpoint \xff")


def damage(what: str, harm: Callable[[Path], None]) -> Fault:
    """The job has to go on by itself, from the checkpoint before it if need be."""

    def fault(machines: Machines) -> Callable[[], None]:
        scene = machines.scene
        step = scene.rng.randrange(2 * EVERY + 1, STEPS - 2)
        machine = machines.turn % 2
        scene.said = f"{what}, and SIGKILL to rank {machine} after step {step}"

        def strike() -> None:
            scene.wait_for_step(machines.attempts[0], step)
            machines.strike()
            machines.kill(*machines.attempts[machine].ranks()[:1])
            harm(max(place for place in scene.run_dir.glob("checkpoints/step-*") if any(place.glob("checkpoint.json"))))

        return strike

    return fault


PLANTED: dict[str, Fault] = {"damaged_run": damage_all}
KINDS: dict[str, Fault] = {
    "kill_rank": kill_rank(),
    "kill_rank_tensor": kill_rank(TENSOR),
    "kill_rank_pipeline": kill_rank(PIPELINE),
    "freeze_rank": freeze_rank,
    "kill_launcher_1": kill_launcher(1),
    "kill_launcher_0": kill_launcher(0),
    "kill_store": kill_store,
    "kill_machine_0": kill_machine_0,
    "elastic": elastic,
    "freeze_machine_1": freeze(1),
    "freeze_machine_0": freeze(0),
    "cut_link": cut_loopback,
    "cut_link_5s": cut_link_5s,
    "cut_link_for_good": cut_link_for_good,
    "skew_clock": skew_clock,
    "stop": stop,
    "full_disk": full_disk,
    "damaged_checkpoint": damage("a changed byte in the newest checkpoint", change_a_byte),
    "truncated_shard": damage("half of a file of the newest checkpoint", truncate),
    "no_description": damage("no checkpoint.json in the newest checkpoint", remove_description),
    "garbled_latest": damage("something else in place of `latest`", garble_latest),
}
