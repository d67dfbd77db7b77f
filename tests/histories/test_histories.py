"""Random histories of an instance, and what has to hold after every step of them.

Killed, restored, copied back or edited: what was erased is in no file of the instance and in no answer, and what was
not is still there, byte for byte.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pikobot.config_file import default_config_text, set_values
from pikobot.instance import create_instance
from tests.histories.operations import History
from tests.histories.snapshots import Killer

STEPS = 18


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance in recall mode, ready to be copied."""
    root = tmp_path_factory.mktemp("histories") / "i"
    changes = [("chat.provider", "none"), ("embedding.provider", "disabled")]
    create_instance(root, set_values(default_config_text(), changes))
    return root


def steps_of(world: History) -> list[tuple[int, Callable[[], None]]]:
    """Everything that can happen, each with how often."""

    def changing(operate: Callable[[], Callable[[], None]], *, in_parts: bool = False) -> Callable[[], None]:
        return lambda: world.change(operate, is_killed=world.chance.randrange(4) == 0, in_parts=in_parts)

    return [
        (4, changing(world.say)),
        (3, changing(world.claim)),
        (3, changing(world.answer)),
        (2, changing(world.remember)),
        (3, changing(world.import_)),
        (4, changing(world.learn)),
        (5, changing(world.forget)),
        (3, changing(world.edit)),
        (2, changing(world.sweep, in_parts=True)),
        (1, changing(world.sweep_beyond, in_parts=True)),
        (2, world.wait),
        (1, world.set_days),
        (3, world.keep),
        (4, world.go_back),
        (2, world.fork),
    ]


def play(template: Path, directory: Path, seed: int) -> None:
    shutil.copytree(template, directory / "i")
    chance = random.Random(seed)
    killer = Killer(chance)
    with killer.watching():
        world = History(directory, chance, killer)
        try:
            for operate in (world.import_, world.say, world.answer, world.learn):
                world.change(operate, is_killed=False)
            weights, steps = zip(*steps_of(world), strict=True)
            for step in chance.choices(steps, weights, k=STEPS):
                step()
                world.check()
            world.verify()
            assert world.erased.ids or world.state.said
        finally:
            world.close()


@pytest.mark.parametrize("seed", range(6))
def test_nothing_erased_comes_back_and_nothing_else_is_lost(
    template: Path, tmp_path: Path, seed: int
) -> None:
    play(template, tmp_path, seed)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(100, 300))
def test_nothing_erased_comes_back_and_nothing_else_is_lost_in_any_history(
    template: Path, tmp_path: Path, seed: int
) -> None:
    play(template, tmp_path, seed)
