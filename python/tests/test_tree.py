"""Folders of an archive, compared with what a walk over all names gives."""

import random

import pytest

from holdall.listing import is_path, order_of
from holdall.tree import Tree


def raw(name):
    return name.encode("utf-8", "surrogateescape")


class Names:
    def __init__(self, names):
        self.names = sorted(set(names), key=lambda name: order_of(raw(name)))

    def __len__(self):
        return len(self.names)

    def name(self, number):
        return self.names[number]


def slow(names):
    """folder -> (files in it, folders in it, files below it)"""
    found = {"": (set(), set(), set())}
    for name in names:
        if not is_path(raw(name)):
            found[""][0].add(name)
            continue
        *folders, _ = name.split("/")
        for depth in range(len(folders) + 1):
            folder = "/".join(folders[:depth])
            here = found.setdefault(folder, (set(), set(), set()))
            if depth == len(folders):
                here[0].add(name)
            else:
                here[1].add("/".join(folders[: depth + 1]))
                here[2].add(name)
    return found


@pytest.mark.parametrize("seed", range(300))
def test_folders_are_what_a_walk_gives(seed):
    rnd = random.Random(seed)
    letters = ["a", "b", "-", ".x", "0", "a-b", "\x01", "\x00", "é", "\udcff", "~"]
    names = Names(
        "/".join(rnd.choice(letters) for _ in range(rnd.randint(1, 4))) for _ in range(rnd.randint(0, 60))
    )
    if rnd.random() < 0.3:
        names = Names([*names.names, "/a/b", "a//b", "../a", "a/./b"])
    tree = Tree(names)
    for folder, (files, folders, below) in slow(names.names).items():
        assert {names.name(i) for i in tree.files(folder)} == files
        assert {names.name(i) for i in tree.below(folder)} == below
        found = tree.folders(folder)
        assert len(found) == len(set(found)) and set(found) == folders
        assert tree.is_folder(folder) == bool(names.names)
    for folder in ("nowhere", "a/nowhere", "a-", "z/z/z"):
        if folder not in slow(names.names):
            assert not tree.is_folder(folder)


def test_few_names_are_looked_at():
    class Counted(Names):
        looked = 0

        def name(self, number):
            Counted.looked += 1
            return super().name(number)

    names = Counted(f"{i // 1000:03}/{i:06}" for i in range(100_000))
    tree = Tree(names)
    assert len(tree.files("050")) == 1000
    assert Counted.looked < 50
    assert len(tree.folders("")) == 100
    assert Counted.looked < 100 * 25
